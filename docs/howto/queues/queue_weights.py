"""queue-weights: jobs of some queues come before others.

conf = {"strict": 100}
"""

from flux_trio import jobtap


class QueueWeights(jobtap.Plugin):
    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        return job.urgency + self.conf.get(job.jobspec.queue, 0)
