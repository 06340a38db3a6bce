"""shortest: of the jobs that fit, the shortest starts first."""

from flux_trio.policies import Decisions, Grant, Job, State


class Shortest:
    def __init__(self, state: State) -> None:
        self.state = state
        self.looks_again = True

    def arrived(self, _job: Job) -> None:
        self.looks_again = True

    def left(self, _job: Job) -> None:
        pass

    def freed(self, _grant: Grant) -> None:
        self.looks_again = True

    def reshaped(self) -> None:
        self.looks_again = True

    def decide(self, now: float) -> Decisions:
        decisions = Decisions()
        if self.looks_again:
            for job in sorted(self.state.queue, key=lambda job: (job.duration, job.rank)):
                allocation = self.state.pool.find(job.shape)
                if allocation is not None:
                    decisions.started.append((job, self.state.start(job, allocation, now)))
        self.looks_again = False
        return decisions
