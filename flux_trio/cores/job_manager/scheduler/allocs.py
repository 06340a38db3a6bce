"""RFC 27 requests: the alloc state of each job, and the order in which requests are sent.

`Allocs` has the alloc state of each job, which only the steps of the table change. Beside it stand
the rank of a job that waits, and the priority by which the scheduler knows a request that was sent.
An alloc state outlives its job, because an answer may come after the job is gone.

Requests are sent in the order of priority, then submit time, then id, as many as the scheduler's
mode allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from sortedcontainers import SortedList

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.state import Part
from flux_trio.editions.rfc27 import Alloc, Cancel, Free, Prioritize
from flux_trio.formats import Event, ResourceSet
from flux_trio.formats.meanings import JobId, Stamp
from flux_trio.messages import Errno, FluxError, Payload, Request, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import (
    AllocEvent,
    Allocs,
    AllocState,
    InvalidTransition,
    JobEvent,
    JobState,
)

Rank: TypeAlias = tuple[int, Stamp, JobId]
"""The place of a job in the order, the best first: minus the priority, submit time, job id."""

# Looked up once: all jobs pass here.
_CANCEL: Final = AllocEvent.CANCEL
_PRIORITIZE: Final = AllocEvent.PRIORITIZE
_CANCELING: Final = AllocState.CANCELING

_OUT: Final = frozenset({AllocState.PENDING, AllocState.CANCELING})


def _rank(priority: int, t_submit: Stamp, jobid: JobId) -> Rank:
    return (-priority, t_submit, jobid)


def rank_of(job: ActiveJob) -> Rank:
    """Return the rank of `job` now; the scheduler may know an older one."""
    return _rank(job.priority, job.t_submit, job.id)


class Ranked:
    """Eligible jobs without a request at the scheduler, by rank."""

    __slots__ = ("_order", "_ranks")

    def __init__(self) -> None:
        self.__setstate__([])

    def __getstate__(self) -> list[Rank]:
        return list(self._order)

    def __setstate__(self, ranks: list[Rank]) -> None:
        self._order: SortedList[Rank] = SortedList(ranks)
        self._ranks: dict[int, Rank] = {rank[-1]: rank for rank in ranks}  # by job id

    def __len__(self) -> int:
        return len(self._ranks)  # that of a sorted list is slow

    def put(self, job: ActiveJob) -> None:
        """Add `job`, or move it to the place of its rank."""
        rank, known = rank_of(job), self._ranks.get(job.id)
        if rank == known:
            return  # often: jobs are looked at again after each loss of the scheduler
        if known is not None:
            self._order.remove(known)
        self._ranks[job.id] = rank
        self._order.add(rank)

    def discard(self, jobid: int) -> None:
        """Remove the job, if it is here."""
        rank = self._ranks.pop(jobid, None)
        if rank is not None:
            self._order.remove(rank)

    def pop_best(self) -> int:
        """Remove the job with the best rank; return its id."""
        jobid: int = self._order.pop(0)[-1]
        del self._ranks[jobid]
        return jobid

    def __contains__(self, jobid: int) -> bool:
        return jobid in self._ranks

    def place(self, jobid: int) -> int:
        """Return the place of a job that is here, from 1."""
        ahead: int = self._order.bisect_left(self._ranks[jobid])
        return ahead + 1

    def best(self, count: int) -> list[Rank]:
        """Return the `count` best ranks."""
        return list(self._order[:count])


class Requests(Part):
    """Steps the alloc state of each job, and sends the request that goes with the step."""

    allocs: Allocs
    queued: Ranked
    sent: dict[JobId, int]  # of requests at the scheduler: the priority that it knows
    answered: set[JobId]  # active jobs whose last request was canceled and has its final answer
    over: dict[JobId, Stamp]  # of `sent` requests whose job is over: its submit time
    reranked: dict[JobId, int]  # new priorities, for the next sched.prioritize
    holds_prioritize: bool  # set while many jobs are reranked, for one sched.prioritize in the end

    def __init__(self, ledger: Ledger, silence: Silence) -> None:
        self._ledger = ledger
        self._edition = ledger.edition
        self._silence = silence
        self.allocs = Allocs()
        self.queued = Ranked()
        self.sent = {}
        self.answered = set()
        self.over = {}
        self._lowest: Rank | None = None  # derived: of `sent`; None if it is not known
        self.reranked = {}
        self.holds_prioritize = False
        ledger.listen(JobEvent.CLEAN, self._is_over)

    def sent_by_rank(self) -> list[int]:
        """Return the jobs with a request at the scheduler, the best first."""
        return [rank[-1] for rank in sorted(self._sent_ranks())]

    def step(self, jobid: int, event: AllocEvent) -> None:
        """Step the alloc state of a job. On InvalidTransition it is unchanged."""
        if self.allocs.step(jobid, event) not in _OUT:
            self.sent.pop(jobid, None)
            self.over.pop(jobid, None)
            if self._lowest is not None and self._lowest[-1] == jobid:
                self._lowest = None

    def advance(self, jobid: int, event: AllocEvent) -> None:
        """Take a step that the scheduler makes. Raises FluxError(EPROTO) that names the job."""
        was_canceled = self.allocs.of(jobid) is _CANCELING
        try:
            self.step(jobid, event)
        except InvalidTransition as error:
            raise FluxError(Errno.EPROTO, str(error)) from None
        if was_canceled and jobid not in self.sent and jobid in self._ledger.jobs:
            self.answered.add(jobid)

    def may_say_more(self, jobid: int) -> bool:
        """Return whether the scheduler may answer a request again that had its final answer.

        It may have answered the cancel, too; and what it says of a job that is over is late
        (readings: Late and stray answers).
        """
        if jobid in self.sent:
            return False
        return (
            jobid in self.answered if jobid in self._ledger.jobs else self._ledger.was_used(jobid)
        )

    # --- about one job

    def cancel(self, jobid: int) -> None:
        """Cancel the request at the scheduler."""
        self.step(jobid, _CANCEL)
        self.reranked.pop(jobid, None)
        self._send(topics.SCHED_CANCEL, self._edition.cancel.write(Cancel(jobid)), NORESPONSE)

    def free(self, jobid: int, granted: ResourceSet | None, *, final: bool = True) -> None:
        """Give back what the scheduler has granted, or a part; None if its R is not known."""
        self.step(jobid, AllocEvent.FREE if final else AllocEvent.FREE_PART)
        payload = self._edition.free.write(Free(jobid, granted, final))
        if self._edition.free_answer is None:
            self._ledger.send(Request(topics.SCHED_FREE, payload, flags=NORESPONSE))
        else:
            self._send(topics.SCHED_FREE, payload, 0)

    def rerank(self, job: ActiveJob) -> None:
        """Tell the scheduler a changed priority of a job with a request."""
        priority = job.priority
        if priority != self.sent[job.id]:
            self.step(job.id, _PRIORITIZE)
            self.sent[job.id] = priority
            self.reranked[job.id] = priority
            self._lowest = None

    # --- the end of a turn

    def end_turn(self, limit: int | None) -> None:
        """Send one sched.prioritize, then requests, at most `limit`; None means no limit."""
        if self.reranked and not self.holds_prioritize:
            payload = self._edition.prioritize.write(Prioritize(list(self.reranked.items())))
            self.reranked = {}
            self._ledger.send(Request(topics.SCHED_PRIORITIZE, payload, flags=NORESPONSE))
        while self.queued and (limit is None or len(self.sent) < limit):
            job = self._ledger.jobs[self.queued.pop_best()]
            if job.state == JobState.SCHED:
                self._send_alloc(job)
            # otherwise this turn took the job back to PRIORITY: it is queued again later
        if self.queued and limit is not None:
            self._make_room()

    def _send_alloc(self, job: ActiveJob) -> None:
        job.sent_updates = job.jobspec_updates
        self.step(job.id, AllocEvent.ALLOC)
        self.answered.discard(job.id)
        self.sent[job.id] = job.priority
        if self._lowest is not None:
            self._lowest = max(self._lowest, rank_of(job))
        jobspec = job.current_jobspec()
        asked = Alloc(job.id, job.priority, job.userid, jobspec, job.t_submit)
        self._send(topics.SCHED_ALLOC, self._edition.alloc.write(asked), 0)

    def _make_room(self) -> None:
        """Cancel the lowest request if the limit is reached and a better job waits.

        See readings: Limited mode and priority.
        """
        (best,) = self.queued.best(1)
        if self._lowest is None:
            self._lowest = max(self._sent_ranks())
        if best >= self._lowest:
            return  # the usual case: no need to sort them
        lowest_first = sorted(self._sent_ranks(), reverse=True)
        for better, lowest in zip(self.queued.best(len(lowest_first)), lowest_first, strict=False):
            if better >= lowest:
                return
            if self.allocs.of(lowest[-1]) == AllocState.PENDING:
                self.cancel(lowest[-1])

    def _sent_ranks(self) -> Iterator[Rank]:
        """Yield the ranks that the scheduler knows."""
        jobs = self._ledger.jobs
        for jobid, priority in self.sent.items():
            job = jobs.get(jobid)
            yield _rank(priority, self.over[jobid] if job is None else job.t_submit, jobid)

    def _is_over(self, job: ActiveJob, _event: Event) -> None:
        self.answered.discard(job.id)
        if job.id in self.sent:
            self.over[job.id] = job.t_submit

    def _send(self, topic: str, payload: Payload, flags: int) -> None:
        """Send a request that is answered, if only by an answer to sched.alloc."""
        self._silence.asked(self._ledger.now)
        self._ledger.send(Request(topic, payload, flags=flags))
