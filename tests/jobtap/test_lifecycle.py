"""Loading and removing plugins; what lives with one: tasks, services, calls."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.jobtap import Plugin, PluginError, State
from flux_trio.protocols import HookAnswer, HookAnswered, PluginReplayed, PluginsChanged, PostEvent
from tests.support.job_view import SeenJob
from tests.support.plugin_host import JOB, OWNER, PRIORITY, handling, rig


class Recording(Plugin):
    """Says what happens to it."""

    name = "recording"

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @jobtap.on("conf.update")
    def configure(self, config: jobtap.Config) -> None:
        self.heard.append(("conf", dict(self.conf), config.edition))
        if self.conf.get("bad"):
            raise jobtap.Reject("bad: not today")

    def loaded(self) -> None:
        self.heard.append("loaded")

    def removed(self) -> None:
        self.heard.append("removed")

    @jobtap.on("job.*")
    def anything(self, job: jobtap.Job) -> None:
        self.heard.append(job.topic)


# --- loading


async def test_plugin_is_configured_first_then_loaded_then_asked() -> None:
    plugin = Recording()
    async with rig() as r:
        await r.host.load(plugin, {"x": 1}, "/where/recording.py")
        r.ask()
        assert plugin.heard == [("conf", {"x": 1}, "classic"), "loaded", PRIORITY]
        assert plugin.config == r.host.config
        assert r.host.names() == ["recording"]
        assert not r.posted
    assert plugin.heard[-1] == "removed"


async def test_plugin_that_refuses_its_configuration_is_not_there() -> None:
    plugin = Recording()
    async with rig() as r:
        with pytest.raises(PluginError, match=r"^plugin recording: bad: not today$"):
            await r.host.load(plugin, {"bad": 1})
        assert r.host.names() == []
        r.ask()
        assert plugin.heard == [("conf", {"bad": 1}, "classic"), "removed"]
        with pytest.raises(PluginError, match="plugin recording is not loaded"):
            plugin.now()
        await r.host.load(plugin, {})


async def test_plugin_that_fails_when_it_is_loaded_is_not_there() -> None:
    class Fails(Plugin):
        def loaded(self) -> None:
            raise KeyError("bank")

    async with rig() as r:
        with pytest.raises(PluginError, match="plugin fails failed when it was loaded: KeyError"):
            await r.host.load(Fails())
        assert r.host.names() == []


async def test_configuration_may_be_looked_at_asynchronously(autojump_clock: MockClock) -> None:
    async def configure(config: Any) -> None:
        await trio.sleep(5)
        raise jobtap.Reject("no")

    async with rig() as r:
        with pytest.raises(PluginError, match="plugin a: no"):
            await r.host.load(handling("conf.update", configure))


async def test_second_load_of_a_name_is_refused() -> None:
    async with rig(Recording()) as r:
        with pytest.raises(PluginError, match="plugin recording is already loaded"):
            await r.host.load(Recording())


async def test_name_is_that_of_the_class_unless_it_says() -> None:
    class HoldUntilNoon(Plugin):
        pass

    async with rig(HoldUntilNoon()) as r:
        assert r.host.names() == ["hold-until-noon"]


async def test_replay_waits_for_the_job_machine() -> None:
    async with rig(Recording()) as r, trio.open_nursery() as nursery:
        nursery.start_soon(r.host.replay, "recording", "-state")
        await trio.testing.wait_all_tasks_blocked()
        (change,) = r.posted
        assert change == PluginsChanged("recording", "-state", change.ticket)
        assert nursery.child_tasks
        r.host.replayed(PluginReplayed(change.ticket))
        r.host.replayed(PluginReplayed(change.ticket))
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks


async def test_reload_of_the_configuration_reaches_plugins_unless_one_refuses() -> None:
    new = parse_config("[job-manager]\nplugins = []\n[sched]\npolicy = 'easy'\n")
    plugin = Recording()
    async with rig(plugin) as r:
        before = r.host.config
        plugin.conf["bad"] = True
        answer = r.answer("conf.update", None, new)
        assert answer.reject == "plugin recording: bad: not today"
        assert r.host.config == before
        plugin.conf["bad"] = False
        assert r.answer("conf.update", None, new) == HookAnswer()
        assert plugin.config is new


async def test_reload_that_takes_its_time_is_answered_later(autojump_clock: MockClock) -> None:
    async def configure(config: Any) -> None:
        await trio.sleep(1)

    new = parse_config("")
    async with rig(handling("conf.update", configure)) as r:
        assert r.ask("conf.update", None, new, ticket=8) is None
        await trio.sleep(2)
        assert r.posted == [HookAnswered(8, HookAnswer())]
        assert r.host.config is new


# --- removing


async def test_removed_plugin_is_never_called_again(autojump_clock: MockClock) -> None:
    plugin = Recording()

    async def poll() -> None:
        try:
            await trio.sleep_forever()
        finally:
            plugin.heard.append("task ended")

    async with rig(plugin) as r:
        plugin.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        plugin.heard.clear()
        gone = await r.host.remove("recording.so")  # a name as flux-core has it
        assert gone.plugins == ["recording"]
        r.host.announce()
        assert r.posted == [PluginsChanged()]
        r.ask()
        r.host.notify("job.inactive-add", JOB)
        await trio.sleep(1000)
        assert plugin.heard == ["task ended", "removed"]
        assert not r.interests.handled(PRIORITY)


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("all", [".builtin", ".other"]),
        ("ab*", [".builtin", ".other", "ba"]),
        ("ba", [".builtin", ".other", "ab", "abc"]),
        ("*", [".builtin", ".other"]),
        (".b*", [".other", "ab", "abc", "ba"]),
        (".builtin", [".other", "ab", "abc", "ba"]),
    ],
)
async def test_plugins_are_removed_by_name_or_glob(pattern: str, left: list[str]) -> None:
    names = [".builtin", ".other", "ab", "abc", "ba"]
    async with rig(*(handling("job.new", lambda job: None, name) for name in names)) as r:
        gone = (await r.host.remove(pattern)).plugins
        assert r.host.names(builtins=True) == left
        assert sorted([*gone, *left]) == sorted(names)
        assert r.host.names() == [name for name in left if not name.startswith(".")]


async def test_pattern_that_matches_nothing_is_an_error_unless_it_is_all() -> None:
    async with rig() as r:
        with pytest.raises(PluginError, match=r"no plugin matches x\*"):
            await r.host.remove("x*")
        assert await r.host.remove("all") == ([], [])


async def test_failure_when_it_is_removed_is_logged() -> None:
    class Fails(Plugin):
        def removed(self) -> None:
            raise KeyError("bank")

    async with rig(Fails()) as r:
        await r.host.remove("fails")
        assert r.logged[0].startswith("plugin fails failed when it was removed: KeyError: 'bank'")


# --- background tasks


async def test_task_that_raises_ends_alone_and_is_told_with_its_stack(
    autojump_clock: MockClock,
) -> None:
    ticks: list[float] = []

    class Polls(Plugin):
        def loaded(self) -> None:
            self.start_soon(self.fail, 3)
            self.start_soon(self.tick)
            self.start_soon(len, 3)  # type: ignore[arg-type]  # wrong on purpose

        async def fail(self, seconds: float) -> None:
            await trio.sleep(seconds)
            raise ValueError("no data")

        async def tick(self) -> None:
            while True:
                await trio.sleep(2)
                ticks.append(self.now())

    async with rig(Polls()) as r:
        await trio.sleep(9)
        assert len(ticks) == 4
        assert [text.partition("\n")[0] for text in r.logged] == [
            "plugin polls: task len ended: TypeError: object of type 'int' has no len()",
            "plugin polls: task fail ended: ValueError: no data",
        ]
        assert "in fail" in r.logged[1]
        assert [note["hook"] for note in r.notes] == ["task len", "task fail"]


@pytest.mark.parametrize("how", ["at once", "in a nursery of its own", "when it is cancelled"])
async def test_whatever_fails_while_a_plugin_is_removed_ends_with_it(
    autojump_clock: MockClock, how: str
) -> None:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("no cleanup")

    async def work(job: jobtap.Job | None = None) -> None:
        if how == "at once":
            raise ValueError("no work")
        if how == "when it is cancelled":
            await fail()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(trio.sleep_forever)

    plugin = handling(PRIORITY, work)
    async with rig(plugin, handling(PRIORITY, lambda job: 3, "b")) as r:
        plugin.start_soon(work)
        plugin.start_soon(trio.sleep_forever)
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        await r.host.remove("a")
        (answered,) = r.answers
        assert answered.answer.priority == (None if how == "at once" else 3)
        told = [text.partition("\n")[0] for text in r.logged if "task" in text]
        assert len(told) == 1
        assert told[0].startswith("plugin a: task work ended: ")
        assert r.answer().priority == 3


async def test_operations_of_a_task_go_to_the_job_machine_even_if_a_hook_started_it(
    autojump_clock: MockClock,
) -> None:
    class Later(Plugin):
        @jobtap.on("job.state.depend")
        async def depend(self, job: jobtap.Job) -> None:
            job.add_dependency("x")
            self.start_soon(self.release, job)
            await trio.sleep(2)

        async def release(self, job: jobtap.Job) -> None:
            await trio.sleep(1)
            job.post("memo", {})
            await trio.sleep(5)
            job.post("memo", {})

    async with rig(Later()) as r:
        r.ask("job.state.depend", SeenJob(state=State.DEPEND))
        await trio.sleep(10)
        first, answered, last = r.posted
        assert first == last == PostEvent(7, "memo", {}, "later")
        assert [each.name for each in answered.answer.operations] == ["dependency-add"]


# --- what a plugin reaches


async def test_plugin_reaches_the_instance(autojump_clock: MockClock) -> None:
    plugin = Recording()
    async with rig(plugin) as r:
        plugin.log(3, "hello")
        assert r.logged == ["recording: hello"]
        assert plugin.owner == OWNER
        assert plugin.users == "users"
        assert plugin.now() == trio.current_time()
        assert await plugin.rpc("kvs.lookup", {"key": "a"}) == {"from": "kvs.lookup"}
        assert r.called == [("kvs.lookup", {"key": "a"})]


async def test_plugins_call_each_other_by_topics_of_their_own() -> None:
    class Asks(Plugin):
        @jobtap.on(PRIORITY)
        def priority(self, job: jobtap.Job) -> Any:
            return self.call("fair.share", job)

    def share(job: jobtap.Job) -> int:
        job.post("shared", {})
        return job.userid

    first = handling("fair.share", lambda job: 5, "first")
    async with rig(Asks(), first, handling("fair.*", share, "second")) as r:
        answer = r.answer()
        assert answer.priority == 1000
        assert answer.operations == (PostEvent(7, "shared", {}, "asks"),)
        assert [note["hook"] for note in r.notes] == ["fair.share", "fair.share", PRIORITY]
        await r.host.remove("second")
        assert r.answer().priority == 5
        await r.host.remove("first")
        error = "PluginError: no plugin handles fair.share"
        assert str(r.answer().error).endswith(error)
        with pytest.raises(PluginError, match=r"no plugin handles job\.validate"):
            r.host.call("job.validate", None)
