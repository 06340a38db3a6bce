"""queue-groups: some queues are for members of some groups.

conf = {"debug": ["ops", "staff"]}
"""

from flux_trio import jobtap


class QueueGroups(jobtap.Plugin):
    @jobtap.on("job.validate")
    async def validate(self, job: jobtap.Job) -> None:
        groups = self.conf.get(job.jobspec.queue)
        if groups is None or job.userid == self.owner:
            return
        user = await self.users(job.userid)
        if user.groups.isdisjoint(groups):
            queue, names = job.jobspec.queue, " and ".join(groups)
            raise jobtap.Reject(f"queue {queue} is for members of {names}")
