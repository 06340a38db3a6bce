"""Jobs that give their nodes back one by one: nothing is held twice, and no promise is broken."""

from __future__ import annotations

import random

import pytest

from flux_trio.formats import Group
from flux_trio.policies import POLICIES, Job, Schedule
from tests.support.scheduling import machine, nodes, slots, units

RANKS, CORES = 4, 2
EVERYTHING = {(rank, "core", core) for rank in range(RANKS) for core in range(CORES)}
STEPS = 40
STEP_S = 0.5  # all ends are multiples of it, so that no job is overdue


class Busy:
    """A schedule whose jobs come, give back parts of what they hold, and end in time."""

    def __init__(self, policy: str, seed: int) -> None:
        self.schedule = Schedule(policy)
        self.schedule.grow(machine(RANKS, CORES), -1)
        self.draw = random.Random(seed)
        self.now = 0.0
        self.last_id = 0
        self.ends: dict[int, float] = {}  # of the jobs that run

    def step(self) -> None:
        running = sorted(self.ends)
        match self.draw.choice(["submit", "submit", "part", "part", "free", "time"]):
            case "submit":
                self._submit()
            case "part" if running:
                part = Group(self.draw.randrange(1, 1 << RANKS), (1 << CORES) - 1, 0)
                self.schedule.free_part(self.draw.choice(running), (part,))
            case "free" if running:
                self._end(self.draw.choice(running))
            case _:
                self.now += STEP_S
        for jobid in [each for each, end in self.ends.items() if end <= self.now]:
            self._end(jobid)

    def _submit(self) -> None:
        self.last_id += 1
        shape = self.draw.choice(
            [slots(self.draw.randint(1, 6)), nodes(self.draw.randint(1, RANKS), whole=True)]
        )
        duration = self.draw.choice([3.0, 5.0, 20.0])
        self.schedule.submit(Job(self.last_id, shape, duration, 16, 0.0))

    def _end(self, jobid: int) -> None:
        assert self.schedule.free(jobid) == 0
        del self.ends[jobid]

    def decide(self) -> dict[int, float]:
        """Start jobs; return by when each job that waits, or starts, is to start."""
        decided = self.schedule.decide(self.now)
        self.ends |= {job.id: grant.end for job, grant in decided.started}
        started = {job.id: self.now for job, _ in decided.started}
        waiting = {job.id: at for job, at in decided.waiting.items() if at is not None}
        return started | waiting


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_each_core_is_free_or_held_by_one_job(policy: str) -> None:
    for seed in range(60):
        busy = Busy(policy, seed)
        for _ in range(STEPS):
            busy.step()
            busy.decide()
            state = busy.schedule.state
            held = [unit for grant in state.grants for unit in units(grant.allocation)]
            assert len(held) == len(set(held)), seed
            free = units(state.pool.free_allocation())
            assert (free | set(held), free & set(held)) == (EVERYTHING, set()), seed


def test_conservative_promise_holds_when_parts_come_early() -> None:
    for seed in range(100):
        busy = Busy("conservative", seed)
        promised: dict[int, float] = {}
        for _ in range(STEPS):
            busy.step()
            for jobid, start in busy.decide().items():
                assert start <= promised.setdefault(jobid, start), seed
                promised[jobid] = start
