"""The policies against textbook ones, job by job, on jobs of a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.policies import Grant, Job, Schedule
from flux_trio.sim import read_workload
from tests.support import reference_scheduling as reference
from tests.support.reference_scheduling import Decide, Machine, RefJob
from tests.support.scheduling import machine, nodes

LOG = Path(__file__).parents[1] / "data" / "workloads" / "lassen-10000.csv"
NODES = 792
JOBS = 500
TEXTBOOKS: dict[str, Decide] = {
    "fifo": reference.fifo,
    "easy": reference.easy,
    "conservative": reference.conservative,
}


def lassen(count: int) -> list[RefJob]:
    """The first jobs of the log; one that ran into its limit is ended there."""
    log = read_workload(LOG.read_text().splitlines()[: count + 1], LOG.name)
    first = min(job.submit_s for job in log)
    return [
        RefJob(
            id=number,
            nnodes=min(job.nnodes or 1, NODES),
            limit=max(job.timelimit_s, 1.0),
            lasts=min(job.elapsed_s, max(job.timelimit_s, 1.0)),
            arrives=job.submit_s - first,
        )
        for number, job in enumerate(log)
    ]


class Ours:
    """A schedule that decides in place of a textbook."""

    def __init__(self, policy: str) -> None:
        self.schedule = Schedule(policy)
        self.schedule.grow(machine(NODES, 1), -1)
        self.known: set[int] = set()
        self.first_promise: dict[int, float] = {}

    def decide(self, told: Machine) -> None:
        """Pass on what has changed; start what the schedule starts."""
        gone = [grant.id for grant in self.schedule.state.grants if grant.id not in told.running]
        for jobid in gone:
            self.schedule.free(jobid)
        waiting = {job.id: job for job in told.queue}
        for job in told.queue:
            if job.id not in self.known:
                self.known.add(job.id)
                self.schedule.submit(Job(job.id, nodes(job.nnodes), job.limit, 16, job.arrives))
        decisions = self.schedule.decide(told.now)
        for started, grant in decisions.started:
            told.start(waiting[started.id], ranks(grant))
        for promised, start in decisions.waiting.items():
            if start is not None:
                self.first_promise.setdefault(promised.id, start)


def ranks(grant: Grant) -> int:
    return grant.allocation.ranks


@pytest.mark.parametrize("policy", sorted(TEXTBOOKS))
def test_each_job_starts_when_and_where_the_textbook_says(policy: str) -> None:
    jobs, ours = lassen(JOBS), Ours(policy)
    wanted = reference.replay(jobs, NODES, TEXTBOOKS[policy])
    found = reference.replay(jobs, NODES, ours.decide)
    assert len(wanted.started) == JOBS
    for job in jobs:
        assert found.started[job.id] == wanted.started[job.id], job
    for jobid, start in ours.first_promise.items():
        assert found.started[jobid][0] <= start
