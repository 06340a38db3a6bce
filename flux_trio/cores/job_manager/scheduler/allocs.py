"""RFC 27 requests: where each job stands with the scheduler, and which requests go out.

`Allocs` is the one value by job: only the steps of the table change it, a job that waits stands at
its beginning. What else is kept is keyed by it: the rank of a job that waits, the rank by which the
scheduler knows a request that is out. A standing outlives its job, because an answer may come after
the job is gone.

Requests go out in priority order, then submit time, then id, as far as the scheduler's mode lets
them.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from sortedcontainers import SortedList

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.state import Part
from flux_trio.editions.rfc27 import Alloc, Cancel, Free, Prioritize
from flux_trio.formats import ResourceSet
from flux_trio.formats.meanings import JobId, Stamp
from flux_trio.messages import Errno, FluxError, Payload, Request, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import (
    ALLOC,
    AllocEvent,
    AllocState,
    InvalidTransition,
    JobState,
    Standings,
)

Rank: TypeAlias = tuple[int, Stamp, JobId]
"""The order of requests, the best first: minus the priority, submit time, job id."""

_OUT: Final = frozenset({AllocState.PENDING, AllocState.CANCELING})


def rank_of(job: ActiveJob) -> Rank:
    """The rank of `job` now; the scheduler may not have heard of it."""
    return (-job.priority, job.t_submit, job.id)


class Allocs(Standings[AllocState, AllocEvent]):
    """Where each job stands with the scheduler."""

    table = ALLOC


class Ranked:
    """Jobs that are eligible and for which no request is out, by rank."""

    __slots__ = ("_order", "_ranks")

    def __init__(self) -> None:
        self.__setstate__([])

    def __getstate__(self) -> list[Rank]:
        return list(self._order)

    def __setstate__(self, ranks: list[Rank]) -> None:
        self._order: SortedList[Rank] = SortedList(ranks)
        self._ranks: dict[int, Rank] = {rank[-1]: rank for rank in ranks}  # by job id

    def __len__(self) -> int:
        return len(self._order)

    def add(self, job: ActiveJob) -> None:
        """Put `job`, which is not among them, in its place."""
        rank = self._ranks[job.id] = rank_of(job)
        self._order.add(rank)

    def discard(self, jobid: int) -> None:
        """Take the job out, if it is among them."""
        rank = self._ranks.pop(jobid, None)
        if rank is not None:
            self._order.remove(rank)

    def pop_best(self) -> int:
        """Take out the job of the best rank; its id."""
        jobid: int = self._order.pop(0)[-1]
        del self._ranks[jobid]
        return jobid

    def best(self, count: int) -> list[Rank]:
        """The `count` best ranks."""
        return list(self._order[:count])


class Requests(Part):
    """Steps each job's standing, and sends the request that goes with the step."""

    allocs: Allocs
    queued: Ranked
    sent: dict[JobId, Rank]  # of requests that are out: the ranks that the scheduler knows
    reranked: dict[JobId, int]  # new priority, for the next prioritize
    holds_prioritize: bool  # many are being reranked: the scheduler hears of all at once

    def __init__(self, ledger: Ledger, silence: Silence) -> None:
        self._ledger = ledger
        self._edition = ledger.edition
        self._silence = silence
        self.allocs = Allocs()
        self.queued = Ranked()
        self.sent = {}
        self.reranked = {}
        self.holds_prioritize = False

    def state(self, jobid: int) -> AllocState:
        """Where a job stands with the scheduler."""
        return self.allocs.of(jobid)

    def sent_by_rank(self) -> list[int]:
        """The jobs whose requests are out, the best first."""
        return [rank[-1] for rank in sorted(self.sent.values())]

    def step(self, jobid: int, event: AllocEvent) -> None:
        """Change the standing of a job. Raises InvalidTransition, and then it is unchanged."""
        if self.allocs.step(jobid, event) not in _OUT:
            self.sent.pop(jobid, None)

    def take_step(self, jobid: int, event: AllocEvent) -> None:
        """A step that the scheduler makes. Raises FluxError(EPROTO) that names the job."""
        try:
            self.step(jobid, event)
        except InvalidTransition as error:
            raise FluxError(Errno.EPROTO, str(error)) from None

    # --- about one job

    def cancel(self, jobid: int) -> None:
        """Take back the request that is out."""
        self.step(jobid, AllocEvent.CANCEL)
        self.reranked.pop(jobid, None)
        self._send(topics.SCHED_CANCEL, self._edition.cancel.write(Cancel(jobid)), NORESPONSE)

    def free(self, jobid: int, granted: ResourceSet | None) -> None:
        """Give back what the scheduler has granted; None if its R is not known."""
        self.step(jobid, AllocEvent.FREE)
        payload = self._edition.free.write(Free(jobid, granted))
        if self._edition.free_answer is None:
            self._ledger.send(Request(topics.SCHED_FREE, payload, flags=NORESPONSE))
        else:
            self._send(topics.SCHED_FREE, payload, 0)

    def rerank(self, job: ActiveJob) -> None:
        """Tell the scheduler the priority of a job whose request is out, if it is another."""
        rank = rank_of(job)
        if rank != self.sent[job.id]:
            self.step(job.id, AllocEvent.PRIORITIZE)
            self.sent[job.id] = rank
            self.reranked[job.id] = job.priority

    # --- what a turn made due

    def end_turn(self, limit: int | None) -> None:
        """Send one prioritize, then requests up to `limit`, None for any number."""
        if self.reranked and not self.holds_prioritize:
            payload = self._edition.prioritize.write(Prioritize(list(self.reranked.items())))
            self.reranked = {}
            self._ledger.send(Request(topics.SCHED_PRIORITIZE, payload, flags=NORESPONSE))
        while self.queued and (limit is None or len(self.sent) < limit):
            job = self._ledger.jobs[self.queued.pop_best()]
            if job.state == JobState.SCHED:
                self._send_alloc(job)
            # else this turn took it back to PRIORITY: it is considered again with the new one
        if self.queued and limit is not None:
            self._make_room()

    def _send_alloc(self, job: ActiveJob) -> None:
        job.sent_updates = job.jobspec_updates
        self.step(job.id, AllocEvent.ALLOC)
        self.sent[job.id] = rank_of(job)
        jobspec = job.current_jobspec()
        asked = Alloc(job.id, job.priority, job.userid, jobspec, job.t_submit)
        self._send(topics.SCHED_ALLOC, self._edition.alloc.write(asked), 0)

    def _make_room(self) -> None:
        """A better job waits and the limit is reached: take back the lowest request.

        See readings: Limited mode and priority.
        """
        (best,) = self.queued.best(1)
        if best >= max(self.sent.values()):
            return  # as nearly always: without sorting them
        lowest_first = sorted(self.sent.values(), reverse=True)
        for better, lowest in zip(self.queued.best(len(lowest_first)), lowest_first, strict=False):
            if better >= lowest:
                return
            if self.state(lowest[-1]) == AllocState.PENDING:
                self.cancel(lowest[-1])

    def _send(self, topic: str, payload: Payload, flags: int) -> None:
        """Send a request that has to be answered, if only by an answer to sched.alloc."""
        self._silence.asked(self._ledger.now)
        self._ledger.send(Request(topic, payload, flags=flags))
