"""begin-time: a job waits until a given time (RFC 26, begin-time)."""

from __future__ import annotations

import heapq
import math

import trio

from flux_trio import jobtap
from flux_trio.jobtap.builtins.dependencies import hold


class BeginTime(jobtap.Plugin):
    """The dependency is open until the instance's clock shows its value."""

    name = ".begin-time"

    def loaded(self) -> None:
        """Watch the clock."""
        self._due: list[tuple[float, int, str]] = []  # a heap: moment, job id, description
        self._first_changed = trio.Event()
        self.start_soon(self._watch)

    @jobtap.on("job.dependency.begin-time")
    def depend(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Hold the job until that time; if it is past, the next look at the clock frees the job."""
        moment = _timestamp(dependency.value)
        description = f"begin-time={moment:.3f}"
        if hold(job, description):
            heapq.heappush(self._due, (moment, job.id, description))
            if self._due[0][1] == job.id:
                self._first_changed.set()

    async def _watch(self) -> None:
        while True:
            self._first_changed = trio.Event()
            left = self._due[0][0] - self.now() if self._due else math.inf
            # a date: the clock may be set meanwhile
            with trio.move_on_after(max(0.0, min(left, self.clock_look_s()))):
                await self._first_changed.wait()
            due = set()
            while self._due and self._due[0][0] <= self.now():
                due.add(heapq.heappop(self._due)[1:])
            for jobid, description in sorted(due):
                self._free(jobid, description)

    def _free(self, jobid: int, description: str) -> None:
        job = self.jobs.get(jobid)  # it may have been canceled meanwhile
        if job is not None and _waits(job) and description in job.dependencies:
            job.remove_dependency(description)


def _waits(job: jobtap.Job) -> bool:
    return job.state in (jobtap.State.NEW, jobtap.State.DEPEND)


def _timestamp(text: str) -> float:
    """Return seconds since the Unix epoch. Raises Reject."""
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not 0 <= moment < math.inf:
        raise jobtap.Reject(f"Invalid begin-time={text}")
    return moment
