"""Plugin host and job manager together: plugins answer at once, later, badly, come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from flux_trio import jobtap
from flux_trio.jobtap import HostServices, Plugin, PluginHost, open_host
from flux_trio.jobtap.builtins.priority_default import PriorityDefault
from flux_trio.protocols import JobState, PluginsChanged, Reprioritize
from flux_trio.services.at_once import PluginTurns
from tests.support.manager_script import ManagerScript

TOPICS = ("job.validate", "job.new", "job.state.depend", "job.state.priority", "job.state.sched")
TOPICS += ("job.priority.get", "job.event.urgency")
MOODS = ("later", "silent", "raises", "refuses", "posts", "follows")
NAMES = ("a", "b")


class Moody(Plugin):
    """Does what its mood of a topic says."""

    deadline = 1e6

    def __init__(self, name: str, moods: dict[str, str], go_on: trio.Event) -> None:
        self.name = name
        self.moods = moods
        self.go_on = go_on

    @jobtap.on(*TOPICS)
    def handle(self, job: jobtap.Job, event: Any = None) -> Any:
        match self.moods.get(job.topic, "silent"):
            case "later":
                return self.later()
            case "raises":
                raise KeyError("mood")
            case "refuses":
                raise jobtap.Reject("no")
            case "posts":
                job.post("weather", {"sky": "blue"})
            case "follows":
                job.subscribe()
        return None

    async def later(self) -> None:
        await self.go_on.wait()


class World:
    """A job manager, and the plugin host that it asks."""

    def __init__(self, host: PluginHost, inbox: list[Any]) -> None:
        self.host = host
        self.inbox = inbox
        self.m = ManagerScript(peers=True)
        self.m.turns = PluginTurns(self.m.core, host)
        self.moods: dict[str, dict[str, str]] = {name: {} for name in NAMES}
        self.go_on = trio.Event()
        self.jobids: list[int] = []
        host.jobs = self.m.core

    async def do(self, step: Sequence[Any]) -> None:
        match step:
            case ("mood", name, topic, mood):
                self.moods[name][topic] = mood
            case ("load", name) if name not in self.host.names():
                await self.host.load(Moody(name, self.moods[name], self.go_on))
                self.inbox.append(PluginsChanged(name))
            case ("remove", name) if name in self.host.names():
                await self.host.remove(name)
                self.inbox.append(PluginsChanged())
            case ("submit",):
                self.jobids.append(len(self.jobids) + 1)
                self.m.submit(self.jobids[-1])
            case ("end", place) if self.jobids:
                self.m.raise_(self.jobids[place % len(self.jobids)])
            case ("urgency", place) if self.jobids:
                self.m.urgency(self.jobids[place % len(self.jobids)], 3 + place)
            case ("again",):
                self.inbox.append(Reprioritize("a"))
            case ("go on",):
                await self.let_go()
        await self.settle()

    async def let_go(self) -> None:
        """Everything that a plugin thinks about is answered now."""
        self.go_on.set()
        await self.settle()
        self.go_on = trio.Event()
        for loaded in self.host.plugins:
            if isinstance(loaded.plugin, Moody):
                loaded.plugin.go_on = self.go_on

    async def settle(self) -> None:
        await wait_all_tasks_blocked()
        while self.inbox:
            inputs, self.inbox[:] = list(self.inbox), []
            self.m.put(*inputs)
            await wait_all_tasks_blocked()
        assert set(self.m.core._parts.hooks.open) == set(self.host._awaited)


NAME = st.sampled_from(NAMES)
STEPS = st.one_of(
    st.tuples(st.just("mood"), NAME, st.sampled_from(TOPICS), st.sampled_from(MOODS)),
    st.tuples(st.sampled_from(["load", "remove"]), NAME),
    st.tuples(st.sampled_from(["submit", "again", "go on"])),
    st.tuples(st.sampled_from(["end", "urgency"]), st.integers(0, 9)),
)


@given(
    moods=st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(MOODS)),
    steps=st.lists(STEPS, max_size=25),
)
@settings(max_examples=40, deadline=None)
def test_each_question_is_answered_once_and_no_job_is_stuck(
    moods: dict[str, str], steps: list[tuple[Any, ...]]
) -> None:
    async def main() -> None:
        inbox: list[Any] = []
        parts = HostServices(
            post=inbox.append,
            note_all=lambda _kind, _notes: None,
            is_traced=lambda: False,
            now=trio.current_time,
            log=lambda _level, _text: None,
        )
        async with open_host(parts) as host:
            await host.load(PriorityDefault())
            world = World(host, inbox)
            world.moods["a"] = moods
            for step in [("load", "a"), ("submit",), *steps]:
                await world.do(step)
            for name in NAMES:
                world.moods[name].clear()
            await world.let_go()
            inbox.append(PluginsChanged())
            await world.settle()
            assert not host._awaited
            states = {job.state for job in world.m.core.active()}
            assert states <= {JobState.SCHED}, states

    trio.run(main, clock=MockClock())
