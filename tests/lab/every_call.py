"""A plugin that asks for all that a plugin may ask for, of each job: for worlds with faults.

It holds jobs in DEPEND, and runs a prolog and an epilog; each ends when its own event is told.
"""

from __future__ import annotations

from flux_trio import jobtap

State = jobtap.State
HELD = "every-call=1"
TASK = "every-call"


class EveryCall(jobtap.Plugin):
    """With urgency 1 a job is refused; otherwise the priority is ten times the urgency."""

    name = "every-call"
    running = jobtap.counter(State.RUN)
    active = jobtap.counter(State.DEPEND, State.PRIORITY, State.SCHED, State.RUN, State.CLEANUP)

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if job.urgency == 1:
            raise jobtap.Reject("urgency 1 is not for users")

    @jobtap.on("job.state.depend")
    def depend(self, job: jobtap.Job) -> None:
        job.subscribe()
        if not job.event_posted("dependency-add"):
            job.add_dependency(HELD)
            job.update({"attributes.system.every-call": 1})
        elif HELD in job.dependencies:  # an earlier life of the plugin has held it
            job.remove_dependency(HELD)

    @jobtap.on("job.event.dependency-add")
    def held(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        now = self.jobs.get(job.id)
        if now is not None and now.state is State.DEPEND and HELD in now.dependencies:
            now.remove_dependency(HELD)

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        return job.urgency * 10

    @jobtap.on("job.state.run")
    def run(self, job: jobtap.Job) -> None:
        job.subscribe()
        job.annotate({"every-call": {"run": True}})
        if not job.event_posted("prolog-start"):
            job.prolog_start(TASK)

    @jobtap.on("job.event.prolog-start")
    def prolog(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        job.prolog_finish(TASK)

    @jobtap.on("job.event.start")
    def started(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        job.raise_exception("every-call", 3, "it has started")
        for other in self.jobs.active():
            if other.state is State.SCHED:
                other.annotate({"every-call": {"behind": job.id}})

    @jobtap.on("job.state.cleanup")
    def cleanup(self, job: jobtap.Job) -> None:
        job.subscribe()
        if not job.event_posted("epilog-start"):
            job.epilog_start(TASK)

    @jobtap.on("job.event.epilog-start")
    def epilog(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        job.epilog_finish(TASK)
