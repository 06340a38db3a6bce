"""short-first: the shorter a job, the sooner; nothing over a day."""

from flux_trio import jobtap

DAY = 86400


class ShortFirst(jobtap.Plugin):
    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if not 0 < job.jobspec.duration <= DAY:
            raise jobtap.Reject("say how long the job takes, at most a day: -t TIME")

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        return DAY - int(job.jobspec.duration)
