"""The job manager's side of RFC 27: the queue, what is sent, what the answers mean.

Requests go out in priority order, then submit time, then id, as far as the scheduler's mode lets
them. A job's stand with the scheduler is kept here and not in the job, because an
answer may come after the job is gone.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from sortedcontainers import SortedKeyList

from flux_trio.cores.job_manager.hooks.waiting import Proposal
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.job_manager.scheduler.grants import Grants
from flux_trio.cores.turns import Log
from flux_trio.formats import ResourceSet
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    end_of_stream,
    expect_payload,
    respond,
    respond_stream,
    topics,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import (
    ALLOC,
    ALLOC_ANSWERS,
    LINK,
    PRIORITY_MIN,
    AllocEvent,
    AllocState,
    AllocType,
    InvalidTransition,
    JobEvent,
    JobState,
    LinkEvent,
    LinkState,
    merge_annotations,
)

LIMIT_MAX = 2147483647

# A job in any other state has been canceled since it was asked for.
MAY_BE_GRANTED = JobState.PRIORITY | JobState.SCHED

Answer = TypeVar("Answer")


class Ready(msgspec.Struct, forbid_unknown_fields=True):
    """The job-manager.sched-ready request."""

    mode: Literal["unlimited", "limited"]
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] | None = None


class AllocAnswer(msgspec.Struct):
    """A sched.alloc response."""

    id: int
    type: Annotated[int, msgspec.Meta(ge=0, le=3)]
    annotations: dict[str, Any] | None = None
    note: str | None = None


class FreeAnswer(msgspec.Struct):
    """A sched.free response."""

    id: int


def rank_of(job: ActiveJob) -> tuple[int, float, int]:
    """The order of requests: priority, then submit time, then id."""
    return (-job.priority, job.t_submit, job.id)


def _sent_rank_of(job: ActiveJob) -> tuple[int, float, int]:
    """The same by what the scheduler knows."""
    return (-job.sent_priority, job.t_submit, job.id)


class SchedulerSide:
    """The conversation with whoever holds `sched`."""

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self._states: dict[int, AllocState] = {}  # without the IDLE, and the PENDING: those sent
        self._queue: SortedKeyList[ActiveJob] = SortedKeyList(key=rank_of)  # eligible, not sent
        self._queued: dict[int, tuple[int, float, int]] = {}  # id → the rank it is queued at
        self._sent: dict[int, ActiveJob] = {}  # asked of the scheduler, not answered
        self._grants = Grants(ledger, self._refuse)
        self._held: dict[int, AllocAnswer] = {}  # good grants of jobs whose hook is being asked
        self._reranked: dict[int, int] = {}  # id → new priority, for this turn's prioritize
        self.holds_prioritize = False  # many are being reranked: the scheduler hears of all at once
        self.link = LINK.initial
        self.sender = ""  # who said hello
        self.limit: int | None = None  # None: unlimited
        self.silence = Silence("scheduler")

    # --- what the job machine asks

    def state(self, jobid: int) -> AllocState:
        """Where a job stands with the scheduler."""
        state = self._states.get(jobid)
        if state is None:
            return AllocState.PENDING if jobid in self._sent else AllocState.IDLE
        return state

    def waiting(self) -> int:
        """Jobs eligible but not sent: the count of sched-ready (readings: sched-ready's count)."""
        return len(self._queue)

    def outstanding(self) -> int:
        """Requests sent and not answered."""
        return len(self._sent)

    def consider(self, job: ActiveJob) -> None:
        """A job in SCHED, new there or with another priority: queue it, or tell the scheduler."""
        if job.hook or job.waiting_for is not None or job.allocating is not None:
            return  # it is considered when that is settled
        state = self.state(job.id)
        if state == AllocState.PENDING:
            self._reconsider_sent(job)
        elif (grant := self._held.pop(job.id, None)) is not None:
            self._allocate(job, grant)
        elif state == AllocState.IDLE:
            self._unqueue(job)
            if job.priority > PRIORITY_MIN and self._queues.schedules(job.queue):
                self._queued[job.id] = rank_of(job)
                self._queue.add(job)

    def withdraw(self, job: ActiveJob) -> None:
        """The job has left SCHED without resources: no request of it may stay."""
        self._unqueue(job)
        state = self.state(job.id)
        if state == AllocState.ALLOCATED:  # granted, but no eventlog says so
            self._send_free(job.id)
        elif state == AllocState.PENDING:
            self._cancel(job.id)
        self._ledger.annotate(job, None)

    def jobspec_changed(self, job: ActiveJob) -> None:
        """A request that is out, or its grant, has the old jobspec: it is made again later."""
        state = self.state(job.id)
        if state == AllocState.PENDING:
            self._cancel(job.id)
        elif state == AllocState.ALLOCATED and not job.has_resources:
            self._send_free(job.id)
        self._drop_sched_annotations(job)  # they are about the request with the old jobspec

    def free(self, job: ActiveJob) -> bool:
        """Give back what `job` holds, now or after the next ready; whether it is still to do."""
        if not job.has_resources:
            return False
        if self.link == LinkState.READY and self.state(job.id) == AllocState.ALLOCATED:
            self._send_free(job.id)
        return True

    def end_turn(self) -> None:
        """Send what the turn made due: one prioritize, then requests as the mode allows."""
        self._grants.end_turn()
        if self.link != LinkState.READY:
            return
        if self._reranked and not self.holds_prioritize:
            pairs = [[jobid, priority] for jobid, priority in self._reranked.items()]
            self._reranked = {}
            self._ledger.send(Request(topics.SCHED_PRIORITIZE, {"jobs": pairs}, flags=NORESPONSE))
        while self._queue and (self.limit is None or len(self._sent) < self.limit):
            job = self._queue.pop(0)
            if job.state == JobState.SCHED:
                self._send_alloc(job)
            else:  # this turn took it back to PRIORITY: it is considered again with the new one
                del self._queued[job.id]
        if self._queue and self.limit is not None:
            self._make_room()

    def queues_changed(self) -> None:
        """Queues were started, stopped or configured anew: stopping cancels what is pending."""
        for job in self._sent_by_rank():
            if self.state(job.id) == AllocState.PENDING and not self._queues.schedules(job.queue):
                self._cancel(job.id)
        for job in self._ledger.jobs.values():
            if not self._queues.schedules(job.queue):
                self._unqueue(job)
            elif job.state == JobState.SCHED:
                self._ledger.dirty[job.id] = job

    # --- what the scheduler says

    def hello(self, request: Request) -> None:
        """job-manager.sched-hello: one response a job with resources, then ENODATA."""
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, "sched-hello needs the streaming flag")
        if request.payload:
            raise FluxError(Errno.EPROTO, "sched-hello takes no payload")
        if self.link != LinkState.DETACHED:
            self.lost("replaced by another hello", LinkEvent.LOST)
        self.link = LINK.step(self.link, LinkEvent.HELLO)
        self.silence.broken()
        self.sender = request.sender
        holders = [job for job in self._in_order() if job.has_resources and not job.bypassed]
        self._grants.begin(holders)
        for job in holders:
            self._step(job.id, AllocEvent.HELLO)
            facts = {
                "id": job.id,
                "priority": job.priority,
                "userid": job.userid,
                "t_submit": job.t_submit,
            }
            self._ledger.send(respond_stream(request, facts))
        self._ledger.send(end_of_stream(request))

    def resource_status(self, request: Request) -> None:
        """job-manager.resource-status: R of all that jobs hold together, null if nothing."""
        total = self._grants.total()
        payload = {"allocated": None if total is None else total.to_json()}
        self._ledger.answer_at_once(respond(request, payload))

    def ready(self, request: Request) -> None:
        """job-manager.sched-ready: the mode is set, requests may be sent."""
        payload = expect_payload(request, Ready)
        if (payload.mode == "limited") != (payload.limit is not None):
            raise FluxError(Errno.EPROTO, "sched-ready: limit goes with mode limited, and only it")
        if request.sender != self.sender or not LINK.allows(self.link, LinkEvent.READY):
            raise FluxError(Errno.EPROTO, "sched-ready: expected sched-hello first")
        self.link = LINK.step(self.link, LinkEvent.READY)
        self.limit = payload.limit
        self._ledger.send(respond(request, {"count": self.waiting()}))
        for job in self._in_order():
            if job.state == JobState.CLEANUP:  # frees that waited for a scheduler
                self._ledger.dirty[job.id] = job
            if job.has_resources and job.expiration is not None and not job.bypassed:
                self._tell_expiration(job.id, job.expiration)

    def _in_order(self) -> list[ActiveJob]:
        """Jobs that run or have run, the oldest first."""
        return [job for _, job in sorted(self._ledger.running.items())]

    def propose_expiration(self, job: ActiveJob, expiration: int, proposal: Proposal) -> bool:
        """Ask whether the resources of `job` may be its until `expiration`; the answer is to
        `proposal`. Returns False when nobody is asked, and so nobody objects.

        Nothing may be sent to a scheduler that is lost (27.impl.14, 27.finalization.4).
        """
        if self.link != LinkState.READY or job.bypassed:
            return False
        payload = {"id": job.id, "expiration": expiration}
        matchtag = self._ledger.calls.open(proposal)
        self._ledger.send(Request(topics.SCHED_EXPIRATION, payload, matchtag))
        return True

    def alloc_response(self, response: Response) -> None:
        """An answer to sched.alloc. One that breaks RFC 27 suspends scheduling."""
        self.silence.broken()
        try:
            answer = _expect_answer(response, AllocAnswer)
            self._answered(answer, AllocType(answer.type))
        except FluxError as error:
            self.lost(error.text, LinkEvent.SUSPEND)

    def free_response(self, response: Response) -> None:
        """An answer to sched.free: the resources are the scheduler's again."""
        self.silence.broken()
        try:
            answer = _expect_answer(response, FreeAnswer)
            self._take_step(answer.id, AllocEvent.FREED)
        except FluxError as error:
            self.lost(error.text, LinkEvent.SUSPEND)
            return
        job = self._ledger.jobs.get(answer.id)
        if job is not None and job.state == JobState.CLEANUP and not job.bypassed:
            if job.has_resources:
                self._ledger.log_now(job, JobEvent.FREE)
        elif job is not None and job.state == JobState.SCHED:
            self.consider(job)  # what it was granted was not what it asks for now

    def lost(self, reason: str, event: LinkEvent) -> None:
        """No scheduler from here on: what was asked of it is asked of the next one."""
        if self.link != LinkState.DETACHED:
            level = Level.INFO if event == LinkEvent.LOST else Level.ERR
            self._ledger.send(Log(level, f"scheduling suspended: {reason}"))
        self.link = LINK.step(self.link, event)
        self._ledger.unsend(topics.SCHED)
        self._reranked.clear()
        self.silence.broken()
        self.sender = ""
        judged = [self._ledger.jobs[jobid] for jobid in self._grants.drop()]
        asked = [*self._sent_by_rank(), *judged]
        for jobid in dict.fromkeys((*self._sent, *self._states)):
            self._step(jobid, AllocEvent.LOST)
            job = self._ledger.jobs.get(jobid)
            if job is None or not job.has_resources:  # granted, but no eventlog says so
                self._states.pop(jobid, None)
            if job is not None:
                self._ledger.dirty[jobid] = job
        self._sent.clear()
        self._held.clear()
        for job in asked:
            self._drop_sched_annotations(job)
            if job.state == JobState.SCHED:
                self.consider(job)

    # --- how

    def _answered(self, answer: AllocAnswer, kind: AllocType) -> None:
        job = self._ledger.jobs.get(answer.id)
        if answer.id not in self._sent and self._is_late(answer.id, kind):
            return
        self._take_step(answer.id, ALLOC_ANSWERS[kind])
        if kind != AllocType.ANNOTATE:
            self._retire_request(answer.id)
        if kind == AllocType.SUCCESS and (job is None or not job.state & MAY_BE_GRANTED):
            self._send_free(answer.id)  # it was canceled meanwhile: freed at once
        elif kind == AllocType.SUCCESS:
            self._grants.judge(answer.id, partial(self._granted, answer))
        elif job is not None and job.state == JobState.SCHED:
            self._not_granted(answer, kind, job)

    def _is_late(self, jobid: int, kind: AllocType) -> bool:
        """Whether an answer without a request may be ignored (readings: Late and stray answers)."""
        return self._ledger.was_used(jobid) and kind in (AllocType.ANNOTATE, AllocType.CANCEL)

    def _granted(self, answer: AllocAnswer, resources: ResourceSet) -> None:
        job = self._ledger.jobs[answer.id]
        if not job.state & MAY_BE_GRANTED:
            return  # it was canceled in this very turn, which frees it
        job.granted = resources
        if job.hook or job.state == JobState.PRIORITY:
            self._held[answer.id] = answer
        else:
            self._allocate(job, answer)

    def _allocate(self, job: ActiveJob, answer: AllocAnswer) -> None:
        if answer.annotations:
            job.annotations = merge_annotations(job.annotations or {}, answer.annotations)
        context = {"annotations": job.annotations} if job.annotations else {}
        self._ledger.log_now(job, JobEvent.ALLOC, context)

    def _refuse(self, text: str) -> None:
        self.lost(f"{topics.SCHED_ALLOC}: SUCCESS for {text}", LinkEvent.SUSPEND)

    def _not_granted(self, answer: AllocAnswer, kind: AllocType, job: ActiveJob) -> None:
        if kind == AllocType.ANNOTATE:
            if answer.annotations is None:
                raise FluxError(Errno.EPROTO, "sched.alloc: expected annotations in ANNOTATE")
            merged = merge_annotations(job.annotations or {}, answer.annotations)
            self._ledger.annotate(job, merged)
        elif kind == AllocType.CANCEL:
            self._drop_sched_annotations(job)
            self.consider(job)
        else:
            self._ledger.annotate(job, None)
            self._ledger.raise_exception(job, "alloc", 0, answer.note or "")

    def _reconsider_sent(self, job: ActiveJob) -> None:
        if job.priority == PRIORITY_MIN or job.jobspec_updates is not job.sent_updates:
            self._cancel(job.id)  # held, or to be asked for anew with another jobspec
        elif job.priority != job.sent_priority:
            job.sent_priority = job.priority
            self._reranked[job.id] = job.priority
            self._step(job.id, AllocEvent.PRIORITIZE)

    def _make_room(self) -> None:
        """A better job waits and the limit is reached: take back the lowest request.

        See readings: Limited mode and priority.
        """
        if rank_of(self._queue[0]) >= max(map(_sent_rank_of, self._sent.values())):
            return  # as nearly always: without sorting them
        for better, lowest in zip(self._queue, reversed(self._sent_by_rank()), strict=False):
            if rank_of(better) >= _sent_rank_of(lowest):
                return
            if self.state(lowest.id) == AllocState.PENDING:
                self._cancel(lowest.id)

    def _send_alloc(self, job: ActiveJob) -> None:
        del self._queued[job.id]
        job.sent_updates = job.jobspec_updates
        self._step(job.id, AllocEvent.ALLOC)
        job.sent_priority = job.priority
        self._sent[job.id] = job
        payload = {
            "id": job.id,
            "priority": job.priority,
            "userid": job.userid,
            "t_submit": job.t_submit,
            "jobspec": job.current_jobspec(),
        }
        self._request(topics.SCHED_ALLOC, payload, 0)

    def _send_free(self, jobid: int) -> None:
        self._step(jobid, AllocEvent.FREE)
        self._held.pop(jobid, None)
        self._grants.give_back(jobid)
        self._request(topics.SCHED_FREE, {"id": jobid}, 0)

    def _tell_expiration(self, jobid: int, expiration: float) -> None:
        """R in the kvs has the first one; this is in force, whatever the scheduler says."""

        def answered(response: Response) -> list[Any]:
            if response.errnum in (0, Errno.ENOSYS):
                return []
            error = FluxError(response.errnum, response.error_text)
            return [Log(Level.WARNING, f"job {jobid}: {topics.SCHED_EXPIRATION}: {error}")]

        payload = {"id": jobid, "expiration": math.ceil(expiration)}
        matchtag = self._ledger.calls.open(answered)
        self._ledger.send(Request(topics.SCHED_EXPIRATION, payload, matchtag))

    def _cancel(self, jobid: int) -> None:
        self._step(jobid, AllocEvent.CANCEL)
        self._reranked.pop(jobid, None)
        self._request(topics.SCHED_CANCEL, {"id": jobid}, NORESPONSE)

    def _request(self, topic: str, payload: dict[str, Any], flags: int) -> None:
        """Send what has to be answered, if only by an answer to sched.alloc."""
        self.silence.asked(self._ledger.now)
        self._ledger.send(Request(topic, payload, flags=flags))

    def _retire_request(self, jobid: int) -> None:
        self._sent.pop(jobid, None)

    def _sent_by_rank(self) -> list[ActiveJob]:
        """What was asked of the scheduler and is not answered, the best first."""
        return sorted(self._sent.values(), key=_sent_rank_of)

    def _unqueue(self, job: ActiveJob) -> None:
        rank = self._queued.pop(job.id, None)
        if rank is not None:
            del self._queue[self._queue.bisect_key_left(rank)]

    def _drop_sched_annotations(self, job: ActiveJob) -> None:
        if job.annotations is not None:
            merged = merge_annotations(job.annotations, {"sched": None})
            self._ledger.annotate(job, merged)

    def _take_step(self, jobid: int, event: AllocEvent) -> None:
        """A step of the scheduler's. Raises FluxError(EPROTO) that names the job."""
        try:
            self._step(jobid, event)
        except InvalidTransition as error:
            raise FluxError(Errno.EPROTO, f"job {jobid}: {error}") from None

    def _step(self, jobid: int, event: AllocEvent) -> None:
        after = ALLOC.step(self.state(jobid), event)
        if after in (AllocState.IDLE, AllocState.PENDING):
            self._states.pop(jobid, None)
        else:
            self._states[jobid] = after


def _expect_answer(response: Response, shape: type[Answer]) -> Answer:
    """The payload; raises FluxError for a conventional error, a fatality whatever its errnum."""
    if response.errnum:
        error = FluxError(response.errnum, response.error_text)
        raise FluxError(response.errnum, f"{response.topic}: {error}")
    return expect_payload(response, shape)
