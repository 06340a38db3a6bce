"""A plugin for worlds with faults: it counts jobs, holds some of them, and changes some jobspecs.

The third part of the seeds of `make mutants` have it, so that the plugin host has something to do.
"""

from __future__ import annotations

from typing import Final

from flux_trio import jobtap

AFTER: Final = "after-the-one-before"
PENDING: Final = (jobtap.State.DEPEND, jobtap.State.PRIORITY, jobtap.State.SCHED)
RUNNING: Final = (jobtap.State.RUN, jobtap.State.CLEANUP)
EVERY: Final = 3  # each third job waits for the end of the two active jobs before it


class Busy(jobtap.Plugin):
    """Holds jobs in DEPEND until the jobs before them are inactive; counts jobs and their tasks."""

    name = "busy"

    active = jobtap.counter(*PENDING, *RUNNING, key=lambda job: job.urgency)
    running = jobtap.counter(*RUNNING, amount=lambda job: job.jobspec.ntasks)
    waiting = jobtap.counter(*PENDING)
    submitted = jobtap.counter(jobtap.State.NEW)

    def loaded(self) -> None:
        """No job waits."""
        self._behind: dict[int, int] = {}  # the job that waits for a job, by the latter's id

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Count the job before it is accepted."""
        self.submitted.update(job)

    @jobtap.on("job.state.depend")
    def depend(self, job: jobtap.Job) -> None:
        """Hold each third job, if a job before it is active."""
        if job.event_posted("dependency-add"):
            return
        before = [each.id for each in self.jobs.active() if each.id < job.id]
        if before and len(before) % EVERY == 0:
            for other in before[-2:]:
                if other not in self._behind:
                    self._behind[other] = job.id
                    job.add_dependency(f"{AFTER}-{other}")

    @jobtap.on("job.new")
    def read_back(self, job: jobtap.Job) -> None:
        """After a restart nobody knows for which job it was held here: let it go on."""
        for each in list(job.dependencies):
            if each.startswith(AFTER):  # others are not this plugin's
                job.remove_dependency(each)

    @jobtap.on("job.state.inactive", "job.destroy")
    def ended(self, job: jobtap.Job) -> None:
        """Let the job go on that has waited for this one."""
        waiting = self.jobs.get(self._behind.pop(job.id, 0))
        if waiting is not None and waiting.state is jobtap.State.DEPEND:
            waiting.remove_dependency(f"{AFTER}-{job.id}")

    @jobtap.on("job.event.urgency")
    def moved(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Count the job under its new urgency."""
        self.active.update(job)

    @jobtap.on("job.create")
    def subscribe(self, job: jobtap.Job) -> None:
        """Hear of the events of the job."""
        job.subscribe()
