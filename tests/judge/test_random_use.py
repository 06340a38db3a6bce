"""Whatever users and operators do, and whichever service comes and goes, no clause is broken.

A story is drawn from one seed, which is the test's parameter: jobs with constraints, queues, time
limits and resources of their own; nodes that are down, drained and excluded; plugins that take
their time; prologs and epilogs; services that answer late, and that are reloaded while jobs hold
resources.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import trio

from flux_trio import jobtap
from flux_trio.broker import Handle
from flux_trio.config import Config, parse_config
from flux_trio.formats import ResourceSet
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import topics
from tests.support.administration import NNODES, Administrator, machine
from tests.support.judged import judge
from tests.support.perilog import Acting
from tests.support.scenarios import Stage, play_on

LASTS_S = 40.0
PAUSES_S = (0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 3.0)
DELAYS_S = (0.0, 0.0, 0.0, 0.2, 2.0)
"""How long a service that answers late takes before each turn."""

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


class Story(Administrator):
    """What happens in less than a minute: services answer truly, but perhaps late."""

    lasts_s = LASTS_S
    pauses_s = PAUSES_S
    runs_s = (0.0, 0.5, 2.0, 7.0)
    durations_s = (0.0, 1.0, 10.0)  # shorter than some jobs take

    def __init__(self, stage: Stage, world: World, draw: random.Random) -> None:
        super().__init__(stage, draw)
        self.queues = world.queues
        self.late = world.late
        self.steps = {  # and how often, in proportion
            self.submit: 14,
            self.bring_resources: 1,
            self.cancel: 4,
            self.set_urgency: 4,
            self.submit_and_change_urgency: 2,
            self.set_duration: 2,
            self.reload: 3,
            self.reload_with_holders: 2,
            self.stop_queues: 1,
            self.start_queues: 1,
            self.drain: 2,
            self.undrain: 2,
            self.exclude: 1,
            self.lose_node: 1,
        }

    async def work(self) -> None:
        """As an administrator, with services that are late from now on."""
        for name in self.late:
            await self.make_late(name)
        await super().work()
        assert (await self.stage.call(topics.JOB_STATS))["states"]["run"] == 0

    async def put_everything_right(self) -> None:
        """The services are there as they are configured."""
        await self.open_everything()

    async def make_late(self, name: str) -> None:
        """From now on the service takes its time."""
        supervisor = self.stage.instance.supervisor
        spec = supervisor.specs[name]

        async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
            late: Any = Late(handle, self.random)
            await spec.main(late, task_status=task_status)

        supervisor.specs[name] = msgspec.structs.replace(spec, main=main)
        await self.reload(name)

    # --- steps

    async def bring_resources(self) -> None:
        """A job that the scheduler does not know of."""
        brought = ResourceSet.build([(NNODES, 1, 0)], "elsewhere{}".format).to_json()
        attributes = {"system.alloc-bypass.R": brought}
        self.jobs.append(await self.stage.submit(2.0, attributes=attributes))

    async def submit_and_change_urgency(self) -> None:
        """The new urgency may cross the grant."""
        await self.submit(urgency=16)
        await self.stage.set_urgency(self.jobs[-1], self.random.choice((0, 1, 31)))

    async def reload_with_holders(self) -> None:
        """Jobs hold resources while the scheduler or the job manager is away, and some end then."""
        for _ in range(3):
            await self.submit(urgency=30)
        await trio.sleep(0.4)
        await self.reload()


@pytest.mark.in_part(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("world", WORLDS)
def test_no_clause_is_broken_by_any_use(world: str, seed: int) -> None:
    given, draw = WORLDS[world], random.Random(seed)

    async def play(stage: Stage) -> None:
        await Story(stage, given, draw).work()

    trace = play_on(play, given.config, seed, machine(), given.plugins(draw))
    found = judge(trace, ALL_RULES, is_late=bool(given.late)).violations
    assert [f"{v.clause} at {v.record.n}: {v.text}" for v in found] == []
