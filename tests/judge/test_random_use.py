"""Whatever users and operators do, and whichever service comes and goes, no clause is broken.

A story is drawn from one seed, which is the test's parameter: jobs with constraints, queues, time
limits and resources of their own; nodes that are down, drained and excluded; plugins that take
their time; prologs and epilogs; services that answer late, and that are reloaded while jobs hold
resources.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import trio

from flux_trio import jobtap
from flux_trio.broker import Handle
from flux_trio.config import Config, parse_config
from flux_trio.formats import Idset, ResourceSet
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import FluxError, topics
from tests.support.judged import judge
from tests.support.perilog import Acting
from tests.support.scenarios import Stage, play_on

STEPS = 60
PAUSES_S = (0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 3.0)
DELAYS_S = (0.0, 0.0, 0.0, 0.2, 2.0)
"""How long a service that answers late takes before each turn."""
END_S = 600.0
"""Longer than all jobs of a story take one after the other."""
NNODES, CORES = 4, 2
PROPERTIES = {"fast": Idset.parse("0-1"), "big": Idset.parse("1-3")}
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"properties": ["fast"]},
    {"properties": ["^fast"]},
    {"ranks": ["0,2"]},
    {"hostlist": ["node[1-2]"]},
    {"not": [{"ranks": ["3"]}]},
    {"or": [{"properties": ["big"]}, {"ranks": ["0"]}]},
)

EXEC = """
[exec]
simulate = true
"""
QUEUES = """
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
requires = { properties = ["big"] }
policy.limits.job-size.max.nnodes = 3
[queues.debug]
requires = { properties = ["fast"] }
policy.limits.duration = "20s"
policy.jobspec.defaults.system.duration = "5s"
"""
PERILOG = """
[job-manager.prolog]
command = ["prolog"]
per-rank = true
[job-manager.epilog]
command = ["epilog"]
per-rank = true
"""


@dataclass(frozen=True)
class World:
    """What a story is played in."""

    tables: str = ""
    plugins: Callable[[random.Random], list[jobtap.Plugin]] = lambda _random: []
    late: tuple[str, ...] = ()
    """The services that answer late."""

    @property
    def config(self) -> Config:
        """Its configuration."""
        return parse_config(self.tables + EXEC)

    @property
    def queues(self) -> list[str]:
        """The names of its queues."""
        return list(self.config.queues)


class Hesitant(jobtap.Plugin):
    """Takes its time to say what a job's priority is, and whether it is valid."""

    name = "hesitant"

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._random = draw

    async def _think(self) -> None:
        await trio.sleep(self._random.choice(PAUSES_S))

    @jobtap.on("job.validate")
    async def validate(self, job: jobtap.Job) -> None:
        """Refuse one job in ten, late."""
        await self._think()
        if self._random.random() < 0.1:
            raise jobtap.Reject("not today")

    @jobtap.on("job.state.priority", "job.priority.get")
    async def priority(self, job: jobtap.Job) -> int:
        """Somewhere near the urgency."""
        await self._think()
        return max(1, job.urgency * 10 + self._random.randrange(-20, 20))


def acted_perilog(draw: random.Random) -> list[jobtap.Plugin]:
    """Prologs and epilogs that take a moment; one world in three has epilogs that fail."""
    status = 256 if draw.random() < 1 / 3 else 0
    return [Acting({"seconds": 0.3}, {"seconds": 0.7, "status": status})]


WORLDS = {
    "fifo": World(),
    "limited": World('sched = { mode = "limited", limit = 2 }'),
    "easy": World('sched = { policy = "easy" }'),
    "conservative": World('sched = { policy = "conservative" }'),
    "queues": World('sched = { policy = "easy" }\n' + QUEUES),
    "limited-queues": World('sched = { mode = "limited", limit = 3 }\n' + QUEUES),
    "perilog": World(PERILOG, acted_perilog),
    "hesitant": World(plugins=lambda draw: [Hesitant(draw)]),
    "late": World('sched = { mode = "limited", limit = 4 }', late=("sched", "job-exec")),
    "everything": World(
        'sched = { policy = "easy" }\n' + QUEUES + PERILOG,
        lambda draw: [*acted_perilog(draw), Hesitant(draw)],
        late=("sched", "job-exec"),
    ),
}


class Late:
    """A handle whose owner takes its time after each look into its inbox."""

    def __init__(self, handle: Handle, draw: random.Random) -> None:
        self._handle = handle
        self._random = draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    async def receive(self) -> list[Any]:
        """As the handle's, and later."""
        return await self._later(await self._handle.receive())

    async def receive_for(self, seconds: float) -> list[Any]:
        """As the handle's, and later."""
        return await self._later(await self._handle.receive_for(seconds))

    async def _later(self, inputs: list[Any]) -> list[Any]:
        await trio.sleep(self._random.choice(DELAYS_S))
        return inputs


class Story:
    """What happens, drawn from one seed."""

    def __init__(self, stage: Stage, world: World, draw: random.Random) -> None:
        self.stage = stage
        self.world = world
        self.random = draw
        self.jobs: list[int] = []
        self.done: Counter[str] = Counter()
        self.steps: dict[Callable[[], Awaitable[None]], int] = {  # and how often, in proportion
            self.submit: 14,
            self.bring_resources: 1,
            self.cancel: 4,
            self.set_urgency: 4,
            self.submit_and_change_urgency: 2,
            self.update: 2,
            self.reload: 3,
            self.reload_with_holders: 2,
            self.stop_queue: 1,
            self.drain: 2,
            self.exclude: 1,
            self.fail_node: 1,
        }

    async def play(self) -> None:
        """Take all steps; then let held jobs run, and everything end."""
        for name in self.world.late:
            await self.make_late(name)
        for _ in range(STEPS):
            await trio.sleep(self.random.choice(PAUSES_S))
            (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
            try:
                await step()
            except FluxError:
                continue  # a job that is over or refused, or a service that is not there
            self.done[step.__name__] += 1
        await self.put_everything_right()
        await self.stage.settle(END_S)
        assert (await self.stage.call(topics.JOB_STATS))["states"]["run"] == 0

    async def put_everything_right(self) -> None:
        """No node is down, drained or excluded any more, and no job is held."""
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets="")
        status = await self.stage.call(topics.RESOURCE_STATUS)
        if status["offline"]:
            await self.stage.call(topics.RESOURCE_UP, targets=status["offline"])
        for targets in status["drained"]:
            await self.stage.call(topics.RESOURCE_UNDRAIN, targets=targets)
        for jobid in self.jobs:
            try:
                await self.stage.set_urgency(jobid, 16)
            except FluxError:
                continue

    async def make_late(self, name: str) -> None:
        """From now on the service takes its time."""
        supervisor = self.stage.instance.supervisor
        spec = supervisor.specs[name]

        async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
            late: Any = Late(handle, self.random)
            await spec.main(late, task_status=task_status)

        supervisor.specs[name] = msgspec.structs.replace(spec, main=main)
        await supervisor.remove(name)
        await supervisor.load(name)

    # --- steps

    async def submit(self, urgency: int | None = None) -> None:
        draw = self.random.choice
        attributes: dict[str, Any] = {}
        if self.random.random() < 0.3:
            attributes["system.constraints"] = draw(CONSTRAINTS)
        if self.world.queues and self.random.random() < 0.7:
            attributes["system.queue"] = draw(self.world.queues)
        shape = draw(({"ntasks": draw((1, 1, 2, 3, 4, 5))}, {"nnodes": draw((1, 2, 4))}))
        jobid = await self.stage.submit_test(
            {"run_duration": draw((0.0, 0.5, 2.0, 7.0))},
            urgency=draw((0, 5, 16, 16, 30)) if urgency is None else urgency,
            duration=draw((0.0, 1.0, 10.0)),  # shorter than some jobs take
            attributes=attributes,
            **shape,
        )
        self.jobs.append(jobid)

    async def bring_resources(self) -> None:
        """A job that the scheduler does not know of."""
        brought = ResourceSet.build([(NNODES, 1, 0)], "elsewhere{}".format).to_json()
        attributes = {"system.alloc-bypass.R": brought}
        self.jobs.append(await self.stage.submit(2.0, attributes=attributes))

    async def submit_and_change_urgency(self) -> None:
        """The new urgency may cross the grant."""
        await self.submit(urgency=16)
        await self.stage.set_urgency(self.jobs[-1], self.random.choice((0, 1, 31)))

    async def cancel(self) -> None:
        if self.jobs:
            await self.stage.cancel(self.random.choice(self.jobs))

    async def set_urgency(self) -> None:
        if self.jobs:
            urgency = self.random.choice((0, 1, 16, 20, 31))
            await self.stage.set_urgency(self.random.choice(self.jobs), urgency)

    async def update(self) -> None:
        if self.jobs:
            updates = {"attributes.system.duration": self.random.choice((5.0, 50.0))}
            jobid = self.random.choice(self.jobs)
            await self.stage.call(topics.JOB_UPDATE, id=jobid, updates=updates)

    async def reload(self) -> None:
        name = self.random.choice(("sched", "sched", "job-exec", "job-manager"))
        await self.stage.instance.supervisor.remove(name)
        await self.pause()
        await self.stage.instance.supervisor.load(name)

    async def reload_with_holders(self) -> None:
        """Jobs hold resources while the scheduler or the job manager is away, and some end then."""
        for _ in range(3):
            await self.submit(urgency=30)
        await trio.sleep(0.4)
        await self.reload()

    async def stop_queue(self) -> None:
        named = {"name": self.random.choice(self.world.queues)} if self.world.queues else {}
        await self.stage.call(topics.JOB_QUEUE_START, start=False, **named)
        await self.pause()
        await self.stage.call(topics.JOB_QUEUE_START, start=True, **named)

    async def drain(self) -> None:
        rank = str(self.random.randrange(NNODES))
        await self.stage.call(topics.RESOURCE_DRAIN, targets=rank)
        await self.pause()
        await self.stage.call(topics.RESOURCE_UNDRAIN, targets=rank)

    async def fail_node(self) -> None:
        rank = str(self.random.randrange(NNODES))
        await self.stage.call(topics.RESOURCE_DOWN, targets=rank)
        await self.pause()
        await self.stage.call(topics.RESOURCE_UP, targets=rank)

    async def exclude(self) -> None:
        """The scheduler is shrunk, which ends the jobs there, and grown again."""
        rank = str(self.random.randrange(NNODES))
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets=rank)
        await self.pause()
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets="")

    async def pause(self) -> None:
        await trio.sleep(self.random.choice((0.0, 0.01, 1.0)))


def machine() -> ResourceSet:
    entries = [(rank, (1 << CORES) - 1, 0) for rank in range(NNODES)]
    return ResourceSet.build(entries, "node{}".format, properties=PROPERTIES)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("world", WORLDS)
def test_no_clause_is_broken_by_any_use(world: str, seed: int) -> None:
    given, draw = WORLDS[world], random.Random(seed)

    async def play(stage: Stage) -> None:
        await Story(stage, given, draw).play()

    trace = play_on(play, given.config, seed, machine(), given.plugins(draw))
    found = judge(trace, ALL_RULES, is_late=bool(given.late)).violations
    assert [f"{v.clause} at {v.record.n}: {v.text}" for v in found] == []
