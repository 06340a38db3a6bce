"""The job manager's side of RFC 27: when it requests resources, and what answers mean.

The scheduler says hello and is told of every job that holds resources; from its ready on:

    a job comes into SCHED       sched.alloc       → ANNOTATE, SUCCESS, DENY or CANCEL, by job id
    its priority changes         sched.prioritize
    it leaves SCHED or is held, its jobspec
    changes, its queue stops     sched.cancel      → CANCEL answers its sched.alloc
    SUCCESS                      R is looked up and checked (`grants`), then the event alloc
    its duration changes         sched.expiration  → nothing, or an error: the update is refused
    CLEANUP, processes are gone  sched.free        → the event free; `housekeeping` comes before

Each message waits until what it tells of is durable. A disconnect, an error response or an answer
that RFC 27 does not allow ends the conversation: the requests are void, and the next scheduler gets
them after its ready.

`allocs` has the alloc states and sends the requests; `grants` checks grants.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

from msgspec import UNSET

from flux_trio.cores.histogram import LONG_S, Durations
from flux_trio.cores.job_manager.calls import ExpirationSent, SignOfLife
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.queues.silence import SignsOfLife, Silence
from flux_trio.cores.job_manager.scheduler.allocs import Requests
from flux_trio.cores.job_manager.scheduler.grants import Grants
from flux_trio.cores.job_manager.scheduler.housekeeping import Housekeeping
from flux_trio.cores.job_manager.waiting import LifetimeProposed, Proposal, UpdateProposed
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import Codec, flux, rfc21, rfc27
from flux_trio.editions.rfc27 import AllocAnswer, AllocType, Expiration, HeldJob, Waiting
from flux_trio.formats import ResourceSet
from flux_trio.formats.meanings import JobId
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    end_of_stream,
    respond,
    respond_stream,
    topics,
)
from flux_trio.protocols import (
    ALLOC_ANSWERS,
    BLOCKED,
    PRIORITY_MIN,
    AllocEvent,
    AllocState,
    InvalidTransition,
    JobEvent,
    JobState,
    Link,
    LinkEvent,
    LinkState,
)

# a job in any other state was canceled after its request
MAY_BE_GRANTED: Final = JobState.PRIORITY | JobState.SCHED

# Looked up once: all jobs pass here.
_ALLOCATED: Final = AllocState.ALLOCATED
_IDLE: Final = AllocState.IDLE
_PENDING: Final = AllocState.PENDING
_HELLO: Final = AllocEvent.HELLO
_LOST: Final = AllocEvent.LOST
_LOST_HELD: Final = AllocEvent.LOST_HELD
_SUCCESS: Final = AllocType.SUCCESS
_DENY: Final = AllocType.DENY
_SCHED: Final = JobState.SCHED
_CLEANUP: Final = JobState.CLEANUP

_QUESTIONS: Final = (UpdateProposed, LifetimeProposed, ExpirationSent, SignOfLife)
"""Calls to the scheduler that end with the conversation."""

HELLO_FIRST: Final = "sched-ready: expected sched-hello first"

Answer = TypeVar("Answer")


class SchedulerSide(Part):
    """The conversation with the service that holds `sched`."""

    granted_annotations: dict[JobId, dict[str, Any]]  # of jobs with a hook under way
    _link: Link
    sender: str  # the peer that said hello
    suspended: str  # what was wrong with the scheduler, until another one is ready
    limit: int | None  # None: no limit
    outdated: list[JobId]  # jobs that may have got resources for an older jobspec
    unasked: list[Proposal]  # new expirations that a lost scheduler was not asked about

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self.silence = Silence("scheduler", may_wait=True)
        self.signs_of_life = SignsOfLife(ledger, self.silence)
        self.requests = Requests(ledger, self.silence)
        self.grants = Grants(ledger, self)
        self.housekeeping = Housekeeping(ledger, queues, self)
        self.granted_annotations = {}
        self.latency = Durations(LONG_S)  # of allocations, from submit to alloc
        self._link = Link()
        self.sender = ""
        self.suspended = ""
        self.limit = None
        self.outdated = []
        self.unasked = []

    @property
    def link(self) -> LinkState:
        """Return where the scheduler stands with this service."""
        return self._link.state

    # --- for statistics

    def waiting(self) -> int:
        """Return the number of eligible jobs without a request (readings: sched-ready's count)."""
        return len(self.requests.queued)

    def outstanding(self) -> int:
        """Return the number of requests that are not answered."""
        return len(self.requests.sent)

    # --- events of jobs

    def resumed(self, job: ActiveJob) -> None:
        """Take up a job that was read back: its resources are in the answers to the next hello."""
        if _holds(job):
            self.requests.step(job.id, AllocEvent.RESUME)

    def consider(self, job: ActiveJob) -> None:
        """Queue a job that is in SCHED, or tell the scheduler of its new priority."""
        if job.hook in BLOCKED or job.allocating is not None:
            return  # it is considered when its grant is settled
        state = self.requests.allocs.of(job.id)
        if state is _PENDING:
            self._reconsider_sent(job)
        elif (annotations := self.granted_annotations.pop(job.id, None)) is not None:
            self._allocate(job, annotations)
        elif state is _IDLE:
            if job.priority > PRIORITY_MIN and self._queues.schedules(job.queue):
                self.requests.queued.put(job)
            else:
                self.requests.queued.discard(job.id)

    def unqueue(self, job: ActiveJob) -> None:
        """Remove a job that is back in PRIORITY from the queue, until its priority is known."""
        self.requests.queued.discard(job.id)

    def _reconsider_sent(self, job: ActiveJob) -> None:
        if job.priority == PRIORITY_MIN or job.jobspec_updates is not job.sent_updates:
            self.requests.cancel(job.id)  # held, or requested again with another jobspec
        else:
            self.requests.rerank(job)

    def withdraw(self, job: ActiveJob) -> None:
        """Cancel the request, or free the grant, of a job that leaves SCHED without resources."""
        self.requests.queued.discard(job.id)
        state = self.requests.allocs.of(job.id)
        if job.id in self.housekeeping.owed:
            pass  # it has ended: what it held is freed later
        elif state is _ALLOCATED:  # granted, but alloc is not logged
            self._free(job.id)
        elif state is _PENDING:
            self.requests.cancel(job.id)
        self._ledger.annotate(job, None)

    def jobspec_changed(self, job: ActiveJob) -> None:
        """Cancel the request, or free the grant, that was made for the old jobspec."""
        state = self.requests.allocs.of(job.id)
        if state == AllocState.PENDING:
            self.requests.cancel(job.id)
        elif state == AllocState.ALLOCATED and not job.has_resources:
            self._free(job.id)
        self._drop_sched_annotations(job)  # they belong to the request with the old jobspec

    def free(self, job: ActiveJob) -> None:
        """Free the resources of `job`, now or after the next ready; housekeeping comes before."""
        if self.housekeeping.keeps(job):
            return
        if self.link == LinkState.READY and self.requests.allocs.of(job.id) == AllocState.ALLOCATED:
            self._free(job.id)

    def _free(self, jobid: int, granted: ResourceSet | None = None) -> None:
        """Free what was `granted` just now, or what the job holds."""
        if granted is None and (job := self._ledger.jobs.get(jobid)) is not None:
            granted = self.grants.held_by(jobid) or job.granted
        self.requests.free(jobid, granted)
        self.granted_annotations.pop(jobid, None)
        self.grants.give_back(jobid)
        if self._ledger.edition.free_answer is None:
            self._freed(jobid)

    def end_turn(self) -> None:
        """Send the requests of the turn."""
        self.grants.end_turn()
        if self.link == LinkState.READY:
            self.requests.end_turn(self.limit)
        self.signs_of_life.end_turn()

    def queues_changed(self) -> None:
        """Cancel the requests of stopped queues: queues were started, stopped or configured."""
        jobs = self._ledger.jobs
        for jobid in self.requests.sent_by_rank():
            is_pending = self.requests.allocs.of(jobid) == AllocState.PENDING
            if is_pending and not self._queues.schedules(jobs[jobid].queue):
                self.requests.cancel(jobid)
        for job in jobs.values():
            if not self._queues.schedules(job.queue):
                self.requests.queued.discard(job.id)
            elif job.state == JobState.SCHED:
                self._ledger.dirty[job.id] = job

    # --- the scheduler comes and goes

    def hello(self, request: Request) -> None:
        """job-manager.sched-hello: a response for each job with resources, then ENODATA."""
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, "sched-hello needs the streaming flag")
        hello = self._ledger.edition.sched_hello.read(request)
        if self.link != LinkState.DETACHED:
            self._end_conversation("replaced by another hello", Level.INFO, is_gone=True)
        self._link.step(LinkEvent.HELLO, request.sender)
        self.silence.broken()
        self.sender = request.sender
        alloc_state = self.requests.allocs.of
        holders = [job for job in self._in_order() if alloc_state(job.id) is AllocState.HELD]
        kept = self.housekeeping.told(hello.partial_ok)
        self.grants.begin([*((job.id, job.granted) for job in holders), *self.housekeeping.held()])
        for job in holders:
            self.requests.step(job.id, _HELLO)
            held = HeldJob(job.id, job.priority, job.userid, job.t_submit)
            self._ledger.send(respond_stream(request, self._ledger.edition.held_job.write(held)))
        for held in kept:
            self.requests.step(held.id, _HELLO)
            self._ledger.send(respond_stream(request, self._ledger.edition.held_job.write(held)))
        self._ledger.send(end_of_stream(request))

    def ready(self, request: Request) -> None:
        """job-manager.sched-ready: the mode is set, requests may be sent.

        A limit without mode limited has no effect (readings: The limit of ready).
        """
        payload = self._ledger.edition.sched_ready.read(request)
        is_limited = payload.mode == "limited"
        if is_limited and payload.limit is None:
            raise FluxError(Errno.EPROTO, "sched-ready: expected limit with mode limited, got none")
        if self.sender not in ("", request.sender):  # another scheduler has said hello
            raise FluxError(Errno.EPROTO, f"{HELLO_FIRST}, got that of another scheduler")
        try:
            self._link.step(LinkEvent.READY, request.sender)
        except InvalidTransition as error:
            raise FluxError(
                Errno.EPROTO, f"{HELLO_FIRST}, got it in state {error.state.name}"
            ) from None
        self.suspended = ""
        self.limit = payload.limit if is_limited else None
        waiting = self._ledger.edition.waiting.write(Waiting(self.waiting()))
        self._ledger.send(respond(request, waiting))
        for job in self._in_order():
            if job.state is _CLEANUP:  # it waits for a scheduler that frees its resources
                self._ledger.dirty[job.id] = job
            job.propose_anew()
            if _holds(job) and job.expiration is not None:
                self._send_expiration(job.id, job.expiration)
            if job.state is JobState.RUN and job.jobspec_updates:
                self.outdated.append(job.id)  # an earlier job manager may not have got to it
        self.housekeeping.release()

    def lost(self, reason: str, event: LinkEvent) -> None:
        """Detach the scheduler, which is gone or has failed; the next one gets its requests."""
        was_attached = self.link != LinkState.DETACHED
        self._link.step(event, self.sender)
        if was_attached:
            level = Level.INFO if event == LinkEvent.LOST else Level.ERR
            self._end_conversation(reason, level, is_gone=event == LinkEvent.LOST)

    def _end_conversation(self, reason: str, level: Level, *, is_gone: bool) -> None:
        """Step the alloc state of every job by the loss; the table has the next state."""
        self._ledger.send(Log(level, f"scheduling suspended: {reason}"))
        self.suspended = "" if is_gone else reason
        self._ledger.unsend(topics.SCHED)
        for call in self._ledger.close_calls(_QUESTIONS, is_gone=is_gone):
            if isinstance(call, Proposal):
                self.unasked.append(call)  # `ready` tells the next scheduler
        self.requests.reranked.clear()
        self.requests.answered.clear()
        self.silence.broken()
        self.sender = ""
        self.granted_annotations.clear()
        asked = [*self.requests.sent_by_rank(), *self.grants.drop()]
        jobs = self._ledger.jobs
        for jobid in self.requests.allocs:
            job = jobs.get(jobid)
            is_held = jobid in self.housekeeping.owed or (job is not None and _holds(job))
            self.requests.step(jobid, _LOST_HELD if is_held else _LOST)
            if job is not None and not is_held:  # one that holds resources waits for ready
                self._ledger.dirty[jobid] = job
        for jobid in asked:
            if (job := jobs.get(jobid)) is not None:
                self._drop_sched_annotations(job)
                if job.state == JobState.SCHED:
                    self.consider(job)

    def _in_order(self) -> list[ActiveJob]:
        """Return the jobs that run or have run, the oldest first."""
        return [job for _, job in sorted(self._ledger.running.items())]

    # --- answers of the scheduler

    def alloc_response(self, response: Response) -> None:
        """Take an answer to sched.alloc. An answer that violates RFC 27 suspends scheduling."""
        if self.link == LinkState.DETACHED:
            return  # what this or an earlier job manager had asked is void
        self.silence.broken()
        try:
            answer = _expect_answer(response, self._ledger.edition.alloc_answer)
            self._answered(answer, answer.type)
        except FluxError as error:
            self._violated(response, error)

    def free_response(self, response: Response) -> None:
        """Take an answer to sched.free: the scheduler has the resources again."""
        if self.link == LinkState.DETACHED:
            return  # what this or an earlier job manager had asked is void
        self.silence.broken()
        try:
            answer = _expect_answer(response, self._ledger.edition.free_answer)
            self._freed(answer.id)
        except FluxError as error:
            self._violated(response, error)

    def free_part(self, jobid: int, part: ResourceSet, *, final: bool) -> None:
        """Free a part of what a job held when it ended, in an edition that frees in parts."""
        self.requests.free(jobid, part, final=final)
        rest = self.grants.held_by(jobid)
        self.grants.give_back(jobid)
        if final:
            self.requests.advance(jobid, AllocEvent.FREED)
        elif rest is not None:
            self.grants.allocated.hold(jobid, rest.difference(part))

    def resume(self, jobid: int) -> None:
        """Take up what housekeeping holds: the next hello tells of it."""
        self.requests.step(jobid, AllocEvent.RESUME)

    def let_go(self, jobid: int) -> None:
        """Forget what no scheduler can be told of any more."""
        for event in (AllocEvent.HELLO, AllocEvent.FREE, AllocEvent.FREED):
            self.requests.step(jobid, event)

    def _violated(self, response: Response, error: FluxError) -> None:
        """Suspend scheduling: `response` is an error, or violates RFC 27 as `error` says."""
        self.lost(error.text, LinkEvent.SUSPEND)
        if response.errnum == Errno.ENOSYS:  # the broker's answer: the scheduler is gone
            self.suspended = ""

    def _freed(self, jobid: int) -> None:
        """Take resources as freed by the scheduler. Raises FluxError if no free was sent."""
        self.requests.advance(jobid, AllocEvent.FREED)
        job = self._ledger.jobs.get(jobid)
        if job is not None and job.state == JobState.CLEANUP and not job.bypassed:
            if job.has_resources:
                self._ledger.log_now(job, JobEvent.FREE)
        elif job is not None and job.state == JobState.SCHED:
            self.consider(job)  # it was granted resources for an older request

    def _answered(self, answer: AllocAnswer, kind: AllocType) -> None:
        job = self._ledger.jobs.get(answer.id)
        denies = kind is _DENY and self.requests.allocs.of(answer.id) is _PENDING
        try:
            self.requests.advance(answer.id, ALLOC_ANSWERS[kind])
        except FluxError:
            if kind is not _SUCCESS and self.requests.may_say_more(answer.id):
                return
            raise
        if kind is _SUCCESS and (job is None or not job.state & MAY_BE_GRANTED):
            self._free(answer.id, answer.R)  # it was canceled meanwhile
        elif kind is _SUCCESS:
            self.grants.judge(answer.id, answer.annotations or {}, answer.R)
        elif job is not None and (job.state is _SCHED or denies):
            self._not_granted(answer, kind, job)  # DENY also in PRIORITY, but not after a cancel

    def _not_granted(self, answer: AllocAnswer, kind: AllocType, job: ActiveJob) -> None:
        if kind == AllocType.ANNOTATE:
            if answer.annotations is None:
                raise FluxError(Errno.EPROTO, "sched.alloc: expected annotations in ANNOTATE")
            merged = self._ledger.merged_annotations(job, answer.annotations)
            self._ledger.annotate(job, merged)
        elif kind == AllocType.CANCEL:
            self._drop_sched_annotations(job)
            self.consider(job)
        else:
            self._ledger.annotate(job, None)
            self._ledger.raise_exception(job, "alloc", 0, answer.note or "")

    def _drop_sched_annotations(self, job: ActiveJob) -> None:
        if job.annotations is not None:
            self._ledger.merge_annotations(job, rfc27.NO_SCHED)

    # --- checked grants

    def accepted(self, jobid: int, annotations: dict[str, Any], resources: ResourceSet) -> None:
        """Give the job its resources, when its hook is answered: the grant is valid.

        A job that has no priority any more may wait for one for ever, so it gives them back.
        """
        job = self._ledger.jobs[jobid]
        if not job.state & MAY_BE_GRANTED:
            return  # it was canceled in this turn, which frees the grant
        job.granted = resources
        if job.is_asked:
            self.granted_annotations[jobid] = annotations
        elif job.state == JobState.PRIORITY:
            self._free(jobid)
        else:
            self._allocate(job, annotations)

    def refused(self, text: str) -> None:
        """Suspend scheduling: the grant is invalid."""
        self.lost(f"{topics.SCHED_ALLOC}: SUCCESS for {text}", LinkEvent.SUSPEND)

    def _allocate(self, job: ActiveJob, annotations: dict[str, Any]) -> None:
        if annotations:
            job.annotations = self._ledger.merged_annotations(job, annotations)
        self.latency.add(self._ledger.now - job.t_submit)
        if job.jobspec_updates is not job.sent_updates:  # SUCCESS has crossed the cancel
            self.outdated.append(job.id)
        context = rfc21.Alloc(job.annotations or UNSET)
        self._ledger.log_now(job, JobEvent.ALLOC, rfc21.write(context))

    # --- resources of jobs

    def resource_status(self, request: Request) -> None:
        """job-manager.resource-status: R of all that jobs hold together, null if nothing."""
        total = self.grants.allocated.total()
        held = flux.HeldResources(None if total is None else total.to_json())
        self._ledger.answer_at_once(respond(request, flux.HELD_RESOURCES.write(held)))

    def propose_expiration(self, job: ActiveJob, expiration: int, proposal: Proposal) -> bool:
        """Ask whether `job` may hold its resources until `expiration`; `proposal` gets the answer.

        Returns False if there is no scheduler to ask, so that the change is accepted: no message
        may be sent to a scheduler that is lost (27.impl.14, 27.finalization.4).
        """
        if self.link != LinkState.READY or job.bypassed:
            return False
        self.requests.step(job.id, AllocEvent.EXPIRATION)
        payload = self._ledger.edition.expiration.write(Expiration(job.id, expiration))
        self._ledger.ask_when_durable(topics.SCHED_EXPIRATION, payload, proposal)
        return True

    def _send_expiration(self, jobid: int, expiration: float) -> None:
        """Tell the scheduler the expiration that is in force; R in the kvs has the first one."""
        self.requests.step(jobid, AllocEvent.EXPIRATION)
        asked = Expiration(jobid, math.ceil(expiration))
        payload = self._ledger.edition.expiration.write(asked)
        self._ledger.ask_when_durable(topics.SCHED_EXPIRATION, payload, ExpirationSent(jobid))

    def expiration_answered(self, jobid: int, response: Response) -> None:
        """Take the answer to `_send_expiration`; ENOSYS: the scheduler ignores expirations."""
        if response.errnum not in (0, Errno.ENOSYS):
            error = FluxError(response.errnum, response.error_text)
            text = f"job {jobid}: {topics.SCHED_EXPIRATION}: {error}"
            self._ledger.outbox.send(Log(Level.WARNING, text))


def _holds(job: ActiveJob) -> bool:
    """Return whether `job` holds resources that the scheduler must know of."""
    return job.has_resources and not job.bypassed


def _expect_answer(response: Response, codec: Codec[Answer] | None) -> Answer:
    """Return the payload. Raises FluxError for an error response, which is fatal here."""
    if response.errnum:
        error = FluxError(response.errnum, response.error_text)
        raise FluxError(response.errnum, f"{response.topic}: {error}")
    if codec is None:
        raise FluxError(Errno.EPROTO, f"{response.topic}: expected no response")
    return codec.read(response)
