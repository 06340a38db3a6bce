"""Plugins that come to a running instance, and go from it again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.messages import Errno, FluxError, Response, topics
from flux_trio.testing import simulated_instance
from flux_trio.trace import Record
from tests.support.playing import GUEST, OwnJobs

COUNTS = """
from flux_trio import jobtap

class Counts(jobtap.Plugin):
    heard = []
    running = jobtap.counter(jobtap.State.RUN, key=lambda job: job.userid)

    @jobtap.enter(jobtap.State.RUN, jobtap.State.SCHED, jobtap.State.DEPEND)
    def entered(self, job):
        self.heard.append(f"enter {job.state.name}")

    @jobtap.leave(jobtap.State.RUN, jobtap.State.SCHED, jobtap.State.DEPEND)
    def left(self, job):
        self.heard.append(f"leave, now {job.state.name}")

    @jobtap.on("job.new")
    def new(self, job):
        self.heard.append("new")

    @jobtap.on("job.state.depend")
    def depend(self, job):
        self.heard.append("depend")

    @jobtap.on("job.priority.get")
    def priority(self, job):
        return self.conf.get("priority", 5)

    @jobtap.service("heard", owner_only=False)
    def tell(self, request):
        return {"heard": list(self.heard), "asked by": request.userid}

    @jobtap.service("secret")
    async def secret(self, request):
        return {"total": self.running.total}
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "counts.py"
    path.write_text(COUNTS)
    return str(path)


class User(OwnJobs):
    """The instance's owner, and jobs of theirs."""

    async def load(self, plugin: str, **more: Any) -> dict[str, Any]:
        return await self.call(topics.JOB_JOBTAP, {"load": plugin, **more})

    async def error(self, topic: str, payload: dict[str, Any]) -> FluxError:
        with pytest.raises(FluxError) as caught:
            await self.call(topic, payload)
        return caught.value

    async def heard(self) -> list[str]:
        found: list[str] = (await self.call("job-manager.counts.heard"))["heard"]
        return found


@asynccontextmanager
async def opened(config: str = "", **more: Any) -> AsyncIterator[User]:
    async with (
        simulated_instance(config=parse_config(config), **more) as instance,
        instance.connect() as handle,
    ):
        yield User(instance, handle)


async def three_jobs(user: User) -> tuple[int, int, int]:
    """One that runs, one that waits for it to end, one that waits for resources."""
    running = await user.submit(seconds=3600, nnodes=4, ntasks=16)
    depends = await user.submit(f"afterany:{running}")
    pending = await user.submit(nnodes=4, ntasks=16)
    await user.events(running, "start")
    await user.events(pending, "priority")
    return running, depends, pending


async def test_plugin_that_is_loaded_is_told_of_active_jobs_and_asked_for_priorities(
    autojump_clock: MockClock, plugin: str
) -> None:
    async with opened() as user:
        _, _, pending = await three_jobs(user)
        loaded = await user.load(plugin, conf={"priority": 77})
        assert loaded == {"removed": [], "name": "counts", "path": plugin}
        assert await user.heard() == [
            *("enter RUN", "new"),
            *("enter DEPEND", "new", "depend"),
            *("enter SCHED", "new"),
        ]
        priority = (await user.so_far(pending))[-1]
        assert (priority.name, priority.context) == ("priority", {"priority": 77})
        told = await user.call(topics.JOB_JOBTAP_QUERY, {"name": "counts"})
        assert told["counters"] == {"running": {"1000": 1}}
        assert told["hooks"]["enter RUN"]["count"] == 1


@pytest.mark.parametrize("is_removed", [False, True])
async def test_plugin_of_run_time_that_ends_with_the_job_manager_is_named_in_the_log(
    autojump_clock: MockClock, plugin: str, *, is_removed: bool
) -> None:
    """It is not loaded again; those of the configuration are."""
    config = f'[job-manager]\nplugins = [{{ load = "{plugin}" }}]'
    other = Path(plugin).with_name("other.py")
    other.write_text(COUNTS.replace("Counts", "Other"))
    async with opened(config) as user:
        await user.load(str(other))
        if is_removed:
            await user.call(topics.JOB_JOBTAP, {"remove": "other"})
        await user.call(topics.MODULE_RELOAD, {"name": "job-manager"})
        told = [str(entry) for entry in user.instance.log if "at run time" in str(entry)]
        assert len(told) == (0 if is_removed else 1)
        if told:
            assert "other: loaded at run time, not loaded again with the job manager" in told[0]


async def test_plugin_is_told_in_the_order_that_was_asked_for(
    autojump_clock: MockClock, plugin: str
) -> None:
    async with opened() as user:
        await three_jobs(user)
        await user.load(plugin, order="state")
        assert (await user.heard())[0] == "enter DEPEND"


async def test_removed_plugin_leaves_what_it_entered_and_its_priorities_no_longer_count(
    autojump_clock: MockClock, plugin: str
) -> None:
    async with opened() as user:
        _, _, pending = await three_jobs(user)
        await user.load(plugin, conf={"priority": 77})
        removed = await user.call(topics.JOB_JOBTAP, {"remove": "cou*"})
        assert removed == {"removed": ["counts"]}
        await user.call(topics.JOB_GETINFO)
        priority = (await user.so_far(pending))[-1]
        assert priority.context == {"priority": 16}
        error = await user.error("job-manager.counts.heard", {})
        assert error.errnum == Errno.ENOSYS
        loaded = await user.load(plugin)
        assert loaded["name"] == "counts"


async def test_guests_reach_only_what_is_for_all(autojump_clock: MockClock, plugin: str) -> None:
    async with opened() as user, user.instance.connect("guest", userid=GUEST) as guest:
        await user.load(plugin)
        told = await guest.call("job-manager.counts.heard")
        assert told["asked by"] == GUEST
        for topic, payload in [
            ("job-manager.counts.secret", {}),
            (topics.JOB_JOBTAP, {"load": plugin}),
            (topics.JOB_JOBTAP_LIST, {}),
            (topics.JOB_JOBTAP_QUERY, {"name": "counts"}),
        ]:
            with pytest.raises(FluxError, match="requires owner") as caught:
                await guest.call(topic, payload)
            assert caught.value.errnum == Errno.EPERM


async def test_what_cannot_be_done_is_answered_with_why(
    autojump_clock: MockClock, plugin: str
) -> None:
    async with opened() as user:
        cases: list[tuple[dict[str, Any], Errno, str]] = [
            ({"load": "nothing"}, Errno.EINVAL, "no plugin nothing: looked for nothing.py in the"),
            ({"load": plugin, "order": "random"}, Errno.EINVAL, "expected an order of none, state"),
            ({"remove": "x"}, Errno.EINVAL, "no plugin matches x"),
            ({"load": 3}, Errno.EPROTO, "load"),
        ]
        for payload, errnum, text in cases:
            error = await user.error(topics.JOB_JOBTAP, payload)
            assert error.errnum == errnum
            assert text in error.text
        await user.load(plugin)
        error = await user.error(topics.JOB_JOBTAP, {"load": plugin})
        assert error.text == "plugin counts is already loaded"
        assert await user.call(topics.JOB_JOBTAP_LIST, {}) == {"plugins": ["counts"]}


REFUSES = """
from flux_trio import jobtap
@jobtap.on("conf.update")
def no(config):
    raise jobtap.Reject("never")
"""

FAILS = """
from flux_trio import jobtap
@jobtap.on("job.new")
def new(job): pass
def loaded(plugin):
    raise ValueError("too late")
"""


async def test_plugin_that_is_refused_takes_the_place_of_no_other(
    autojump_clock: MockClock, plugin: str, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    refuses, fails = tmp_path / "new" / "counts.py", tmp_path / "fails.py"
    refuses.write_text(REFUSES)
    fails.write_text(FAILS)
    async with opened() as user:
        _, _, pending = await three_jobs(user)
        await user.load(plugin, conf={"priority": 77})
        await user.error(topics.JOB_JOBTAP, {"remove": "all", "load": "nothing"})
        assert await user.call(topics.JOB_JOBTAP_LIST, {}) == {"plugins": ["counts"]}
        before = await user.call(topics.JOB_JOBTAP_QUERY, {"name": "counts"})
        error = await user.error(topics.JOB_JOBTAP, {"remove": "all", "load": str(refuses)})
        assert error.text == "plugin counts: never"
        assert await user.call(topics.JOB_JOBTAP_LIST, {}) == {"plugins": ["counts"]}
        assert await user.call(topics.JOB_JOBTAP_QUERY, {"name": "counts"}) == before
        error = await user.error(topics.JOB_JOBTAP, {"remove": "all", "load": str(fails)})
        assert "ValueError: too late" in error.text
        assert await user.call(topics.JOB_JOBTAP_LIST, {}) == {"plugins": []}
        await user.call(topics.JOB_GETINFO)
        assert (await user.so_far(pending))[-1].context == {"priority": 16}


async def test_configured_plugins_are_loaded_in_order_and_told_of_jobs_read_back(
    autojump_clock: MockClock, plugin: str
) -> None:
    config = f"[job-manager]\nplugins = [{{load = {json.dumps(plugin)}, conf = {{priority = 9}}}}]"
    async with opened(config) as user:
        assert await user.call(topics.JOB_JOBTAP_LIST, {}) == {"plugins": ["counts"]}
        await three_jobs(user)
        await user.instance.supervisor.reload("job-manager")
        await trio.sleep(1)
        heard = await user.heard()
        assert heard.count("new") == 3
        assert heard.count("enter RUN") == 1
        told = await user.call(topics.JOB_JOBTAP_QUERY, {"name": "counts"})
        assert told["counters"] == {"running": {"1000": 1}}


class Looks(jobtap.Plugin):
    name = "looks"

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    @jobtap.on("job.state.*")
    def look(self, job: jobtap.Job) -> None:
        event = job.event.name if job.event else None
        previous = job.previous.name if job.previous else None
        self.seen.append((job.state.name, previous, event, job.R is not None, job.result))


async def test_job_shows_its_resources_while_it_has_them_and_its_result_at_the_end(
    autojump_clock: MockClock,
) -> None:
    """20.overview.4: R is tracked through the states and plugins can have it"""
    looks = Looks()
    async with opened(plugins=[looks]) as user:
        await user.events(await user.submit(status=256))
    assert looks.seen == [
        ("DEPEND", "NEW", "validate", False, None),
        ("PRIORITY", "DEPEND", "depend", False, None),
        ("SCHED", "PRIORITY", "priority", False, None),
        ("RUN", "SCHED", "alloc", True, None),
        ("CLEANUP", "RUN", "finish", True, "failed"),
        ("INACTIVE", "CLEANUP", "clean", True, "failed"),
    ]


class Slow(jobtap.Plugin):
    name = "slow"
    answered = 0

    @jobtap.service("think")
    async def think(self, _request: jobtap.ServiceRequest) -> dict[str, Any]:
        await trio.sleep(10)
        self.answered += 1
        return {"answered": self.answered}


async def test_plugin_service_does_not_answer_a_client_that_is_gone(
    autojump_clock: MockClock,
) -> None:
    """6.disconnect.2: what it was asked for is done."""
    trace: list[Record] = []
    async with opened(plugins=[Slow()]) as user:
        user.instance.trace.add_sink(trace.append)
        async with user.instance.connect() as shortlived:
            with trio.move_on_after(5):
                await shortlived.call("job-manager.slow.think")
        assert await user.call("job-manager.slow.think") == {"answered": 2}
    topics_said = [
        record.message.topic
        for record in trace
        if record.party == topics.JOB_MANAGER and isinstance(record.message, Response)
    ]
    assert topics_said.count("job-manager.slow.think") == 1


WAITS = """
import trio
from flux_trio import jobtap

class Waits(jobtap.Plugin):
    seen = []

    @jobtap.on("conf.update")
    async def configure(self, config):
        self.seen.append(config.job_manager.inactive_num_limit)
        await trio.sleep(10)

    @jobtap.service("seen")
    def tell(self, request):
        return {"seen": self.seen}
"""


STAYS = """
import trio
from flux_trio import jobtap

class Stays(jobtap.Plugin):
    def loaded(self):
        self.start_soon(self.stay)

    async def stay(self):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
"""


@pytest.mark.parametrize("at_s", [5, 11], ids=["configured", "other-ends"])
async def test_plugin_that_is_loaded_while_the_configuration_changes_gets_the_new_one(
    autojump_clock: MockClock, tmp_path: Path, at_s: float
) -> None:
    waits, stays = tmp_path / "waits.py", tmp_path / "stays.py"
    waits.write_text(WAITS)
    stays.write_text(STAYS)
    changed = parse_config("[job-manager]\ninactive-num-limit = 7").to_json()
    async with opened() as user:
        await user.load(str(stays))
        async with trio.open_nursery() as nursery:
            load = {"load": str(waits), "remove": "stays"}
            nursery.start_soon(user.call, topics.JOB_JOBTAP, load)
            await trio.sleep(at_s)
            reload = topics.config_reload_of(topics.JOB_MANAGER)
            await user.call(reload, {"config": changed})
        assert (await user.call("job-manager.waits.seen"))["seen"] == [None, 7]


class Explains(jobtap.Plugin):
    def __init__(self, name: str) -> None:
        self.name = name

    @jobtap.on("job.explain")
    async def explain(self, _job: jobtap.Job) -> str:
        await trio.sleep(5)
        return self.name


async def test_plugin_that_goes_while_a_job_is_explained_is_not_asked(
    autojump_clock: MockClock,
) -> None:
    told: dict[str, Any] = {}
    async with opened(plugins=[Explains("stays"), Explains("goes")]) as user:
        _, _, pending = await three_jobs(user)

        async def explain() -> None:
            told.update(await user.call(topics.JOB_EXPLAIN, {"id": pending}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(explain)
            await trio.sleep(2)
            await user.call(topics.JOB_JOBTAP, {"remove": "goes"})
    assert [said.get("text") for said in told["said"]] == ["the urgency", "stays"]
