"""The scheduler's side of RFC 27, with RFC 28. Pure.

What it asks, and what it is asked, in order:

    asks   resource.acquire         → grow with R, then every change (`acquisition`)
    asks   job-manager.sched-hello  → the jobs that hold resources; R of each is read (`greeting`)
    asks   job-manager.sched-ready  → requests may come; the policy decides once a turn
    asked  sched.alloc              → DENY if it can never be met; ANNOTATE while it waits;
                                      R is committed (`granting`); SUCCESS when it is durable
    asked  sched.cancel             CANCEL answers the sched.alloc; an R without SUCCESS is removed
    asked  sched.prioritize         the queue is sorted again (`reranking`)
    asked  sched.expiration         → nothing, or an error
    asked  sched.free               → the job's id, or nothing, as the edition has it (`freeing`)

When the job manager has gone, all jobs are forgotten, and hello is said to the next one. An error
response to acquire, hello or ready ends the scheduler. Left out: resource groups other than
`default`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Never, assert_never

from flux_trio.config import SchedConfig
from flux_trio.cores.methods import Methods
from flux_trio.cores.sched.acquisition import Acquisition
from flux_trio.cores.sched.annotations import ANNOTATE_DELAY_S, NO_OUTLOOK, Annotator, difference
from flux_trio.cores.sched.context import (
    Acquired,
    Context,
    ExceptionRaised,
    GrantsStored,
    HelloSaid,
    HoldersRead,
    ReadyHeard,
    Released,
    SchedAction,
    SchedInput,
    SchedTimer,
)
from flux_trio.cores.sched.freeing import give_back
from flux_trio.cores.sched.granting import Granting, Grantings
from flux_trio.cores.sched.greeting import Greeter
from flux_trio.cores.sched.queue_position import explain
from flux_trio.cores.sched.requests import Shapes
from flux_trio.cores.sched.reranking import Reranking
from flux_trio.cores.sched.status import Status
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, Core, Log, Note, TimerFired
from flux_trio.editions import CLASSIC, Edition, explain_requests, flux
from flux_trio.editions.codec import jobid_in
from flux_trio.editions.rfc27 import AllocAnswer, AllocType, FreeAnswer, SchedAnnotations
from flux_trio.editions.rfc28 import (
    Change,
    Expires,
    Grown,
    Offline,
    Online,
    PropertiesChanged,
    Shrunk,
)
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    tells_return_of,
    topics,
)
from flux_trio.policies import Schedule, Shape
from flux_trio.protocols import AllocEvent, AllocState, InvalidTransition
from flux_trio.trace import Kind

# Looked up once: a request may come for each of many jobs.
_CANCEL: Final = AllocEvent.CANCEL
_CANCELED: Final = AllocEvent.CANCELED
_CANCELING: Final = AllocState.CANCELING
_CANCEL_ANSWER: Final = AllocType.CANCEL


class SchedCore(CorePart, Core[SchedTimer, Never, Never]):
    """The whole state of the scheduler.

    `config` names the policy and the mode, `queues` the policy of each named queue, `parents` the
    parent of each virtual one.
    """

    _manager: tuple[str, ...]
    _is_busy: bool

    def __init__(
        self,
        config: SchedConfig,
        edition: Edition = CLASSIC,
        queues: Mapping[str, str] | None = None,
        parents: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._queues = dict(queues or {})
        self._edition = edition
        self._context = Context(Schedule(config.policy, queues), edition)
        self._shapes = Shapes(
            dict(parents or {})
        )  # derived from requests: parsed again if it is empty
        self._annotator = Annotator(self._context)
        self._acquisition = Acquisition(self._context)
        self._greeter = Greeter(self._context, config)
        self._manager = (topics.JOB_MANAGER,)  # the route to the job manager; its name comes first
        self._granting = Grantings(self._context)
        self._reranking = Reranking(self._context, self._granting)
        self._is_busy = False  # a job waits or holds something
        self._status = Status(self._context)
        answers_free = edition.free_answer is not None
        freeing = self._when_ready if answers_free else self._silently
        has_feasibility = edition.feasibility is not None
        self._methods = Methods(
            for_owner={
                topics.SCHED_ALLOC: partial(self._when_ready, self._alloc),
                topics.SCHED_FREE: partial(freeing, self._free),
                topics.SCHED_EXPIRATION: self._expiration,
                topics.SCHED_EXPLAIN: self._explain,
                topics.SCHED_CANCEL: partial(self._silently, self._cancel),
                topics.SCHED_PRIORITIZE: partial(self._silently, self._prioritize),
            },
            for_all={
                topics.SCHED_RESOURCES: self._status.tell,
                **({topics.FEASIBILITY_CHECK: self._status.check} if has_feasibility else {}),
            },
            stats=(topics.stats_of(topics.SCHED), self._stats),
            farewells={
                topics.SCHED: self._disconnect,
                **({topics.FEASIBILITY: self._status.disconnect} if has_feasibility else {}),
            },
            forget=self._context.forget,
        )

    @property
    def holders(self) -> set[int]:
        """The jobs that hold resources."""
        return {grant.id for grant in self._context.schedule.state.grants}

    @property
    def requested(self) -> set[int]:
        """The jobs whose requests are open: they wait, or their R is not durable yet."""
        waiting = {job.id for job in self._context.schedule.state.queue}
        return waiting | {one.job.id for one in self._granting}

    @property
    def estimates(self) -> dict[int, float]:
        """The estimates of the start of jobs that the job manager was told, by job id."""
        return self._annotator.estimates

    @property
    def schedule(self) -> Schedule:
        """The jobs that wait, the resources and the grants; only this core may change it."""
        return self._context.schedule

    def start(self, now: float) -> list[SchedAction]:
        """Acquire resources."""
        self._context.now = now
        self._acquisition.start()
        return self._context.pop_actions()

    def turn(self, now: float, inputs: Sequence[SchedInput]) -> list[SchedAction]:
        """Take the inputs, then let the policy decide once."""
        self._context.now = now
        for item in inputs:
            match item:
                case Request():
                    self._context.send(self._methods.call(item))
                case Response():
                    self._answered(item)
                case Event():
                    self._event(item)
                case TimerFired(key):
                    self._context.fired(key)
                    self._fired(key)
                case ClockStepped(by):
                    self._context.clock_stepped(by)
                    self._context.schedule.clock_stepped(by)
                case _:
                    assert_never(item)
        self._greeter.said_in_this_turn = False
        if not self._reranking.step():
            self._context.set_timer("rerank", now)
        elif self._greeter.is_ready:
            self._decide()
        self._granting.commit()
        self._note_rest()
        return self._context.pop_actions()

    def _answered(self, response: Response) -> None:
        call = self._context.calls.match(response)
        match call:
            case GrantsStored():  # the most frequent one
                for one in self._granting.stored(call, response):
                    self._succeed(one)
            case Acquired():
                for change in self._acquisition.changes_in(response):
                    self._resources_changed(change)
            case Released():
                self._acquisition.released(response)
            case HelloSaid():
                self._greeter.hello_answered(call, response)
            case HoldersRead():
                self._greeter.holders_read(call, response)
            case ReadyHeard():
                if self._greeter.ready_heard(call, response):
                    self._is_busy = len(self._context.schedule.state.grants) > 0
                    self._lose(self._context.schedule.leaving)
            case ExceptionRaised():
                self._context.raise_answered(call, response)
            case None:
                pass  # no open call has this matchtag
            case _:
                assert_never(call)

    def _fired(self, key: SchedTimer) -> None:
        match key:
            case "annotate":
                for jobid, changes in self._annotator.changes():
                    self._context.allocs.step(jobid, AllocEvent.ANNOTATE)
                    self._answer(jobid, AllocType.ANNOTATE, changes)
            case "rerank":
                pass  # each turn ranks some jobs
            case "raise":
                self._context.raise_again()
            case _:
                assert_never(key)

    # Resources and the job manager come and go

    def _resources_changed(self, change: Change) -> None:
        match change:
            case Grown():  # `Acquisition` has passed it to the schedule
                self._status.check_early()
                if not self._greeter.has_begun:
                    self._greeter.say_hello()
            case Expires(expiration):
                self._context.schedule.expire(expiration)
            case Online(targets):
                self._context.schedule.online(targets.bits)
            case Offline(targets):
                self._revoke(targets.bits)
                self._context.schedule.offline(targets.bits)
            case Shrunk(targets):
                self._shrink(targets.bits)
            case PropertiesChanged(added, removed):
                self._context.schedule.change_properties(added, removed)
            case _:
                assert_never(change)

    def _event(self, event: Event) -> None:
        if self._greeter.waits and tells_return_of(topics.JOB_MANAGER, event):
            self._greeter.say_hello()

    def _shrink(self, ranks: int) -> None:
        """Lose `ranks` (28.shrink). Before hello lists the holders, no rank is known as free."""
        self._revoke(ranks)
        self._context.schedule.shrink(ranks)
        if self._greeter.is_ready:
            self._lose(ranks)

    def _revoke(self, ranks: int) -> None:
        """Revoke grants of `ranks` before SUCCESS; the jobs wait (28.shrink.3, 28.offline.3)."""
        for one in self._granting:
            if one.grant.allocation.ranks & ranks:
                self._context.schedule.submit(self._granting.revoke(one))
                self._annotator.waits_again(one.job.id, one.outdated)

    def _lose(self, ranks: int) -> None:
        """Release free ranks, raise exceptions of jobs on the others, check requests again.

        After hello, `ranks` are all shrunk ranks: an earlier job manager may have ended before it
        took up an exception. A second exception does a job no harm.
        """
        self._acquisition.release(self._context.schedule.pop_left())
        holders = self._context.schedule.holders(ranks) if self._edition.shrink_ends_jobs else ()
        for jobid in holders:
            note = f"its nodes of rank {Idset.from_bits(ranks)} were removed from the instance"
            self._context.raise_exception(jobid, "shrink", note)
        self._judge_queue()

    def _judge_queue(self) -> None:
        """Deny requests that can never be granted (28.shrink.7)."""
        notes: dict[Shape, str | None] = {}
        for job in list(self._context.schedule.state.queue):
            if job.shape not in notes:
                notes[job.shape] = self._context.schedule.shortfall(job.shape)
            note = notes[job.shape]
            if note is not None:
                self._context.schedule.withdraw(job.id)
                self._deny(job.id, note)

    def _disconnect(self, request: Request) -> None:
        """Forget the jobs of a job manager that is gone; the next one reports them again."""
        if request.sender != self._manager[0]:
            return
        self._granting.forget_all()
        self._annotator.forget_all()
        self._reranking.forget_all()
        self._context.forget_refused()
        for jobid in self._context.allocs:
            self._context.allocs.step(jobid, AllocEvent.LOST)
        self._context.schedule.forget_jobs()
        if self._greeter.has_begun and not self._greeter.said_in_this_turn:
            # A hello of this turn is sent when the turn ends. A job manager that has left cannot
            # have got it, so the hello is not lost, and LOST does not occur.
            self._greeter.lost()
            self._greeter.say_hello()

    # Requests (RFC 27)

    def _alloc(self, request: Request) -> None:
        self._manager = request.routes
        try:
            asked = self._edition.alloc.read(request)
        except FluxError as error:  # an error response cannot name the job (27.impl.10)
            self._refuse(jobid_in(request), error.text)
            return
        try:
            self._context.allocs.step(asked.id, AllocEvent.ALLOC)
        except InvalidTransition as error:
            self._context.log_error(str(error))
            return
        self._reranking.forget(asked.id)
        try:
            job = self._shapes.job(asked)
        except ValueError as error:  # FormatError is one
            self._deny(asked.id, f"invalid jobspec: {error}")
            return
        shortfall = self._context.schedule.shortfall(job.shape)
        if shortfall is not None:
            self._deny(asked.id, shortfall)
        else:
            self._context.schedule.submit(job)
            self._is_busy = True

    def _refuse(self, jobid: int, note: str) -> None:
        if self._context.allocs.of(jobid) is AllocState.IDLE:
            self._context.allocs.step(jobid, AllocEvent.ALLOC)
            self._deny(jobid, note)
        else:
            self._context.log_error(f"job {jobid}: {note}")

    def _free(self, request: Request) -> None:
        freed = self._edition.free.read(request)
        jobid = freed.id
        try:
            self._context.allocs.step(
                jobid, AllocEvent.FREE if freed.final else AllocEvent.FREE_PART
            )
        except InvalidTransition as error:
            # 27.impl.11: the answer is not an error, which cannot name the job
            self._context.log_error(str(error))
        else:
            self._acquisition.release(give_back(self._context, freed))
            if freed.final:
                self._context.allocs.step(jobid, AllocEvent.FREED)
        if (answer := self._edition.free_answer) is not None:
            self._context.send(respond(request, answer.write(FreeAnswer(jobid))))

    def _cancel(self, request: Request) -> None:
        jobid = self._edition.cancel.read(request).id
        if self._context.allocs.step(jobid, _CANCEL) is not _CANCELING:
            return  # no pending request: ignored (27.cancel.6)
        if (one := self._granting.get(jobid)) is not None:
            self._granting.revoke(one)
        else:
            self._context.schedule.withdraw(jobid)
        self._annotator.forget(jobid)
        self._context.allocs.step(jobid, _CANCELED)
        self._answer(jobid, _CANCEL_ANSWER)

    def _prioritize(self, request: Request) -> None:
        self._reranking.add(self._edition.prioritize.read(request).jobs)

    def _expiration(self, request: Request) -> None:
        asked = self._edition.expiration.read(request)
        if asked.expiration < 0 or not math.isfinite(asked.expiration):
            raise FluxError(Errno.EINVAL, f"invalid expiration {asked.expiration}")
        try:
            self._context.allocs.step(asked.id, AllocEvent.EXPIRATION)
        except InvalidTransition:
            raise FluxError(Errno.ENOENT, f"job {asked.id} has no allocation") from None
        horizon = self._context.schedule.state.horizon
        # the seconds may be rounded up (readings: sched.expiration)
        if asked.expiration > horizon + 1:
            text = f"expiration {asked.expiration} is beyond that of the instance, {horizon}"
            raise FluxError(Errno.EINVAL, text)
        self._context.schedule.extend(asked.id, min(asked.expiration or math.inf, horizon))
        self._context.send(respond(request))

    def _when_ready(self, method: Callable[[Request], None], request: Request) -> None:
        """Call a method unless the request was meant for an earlier scheduler.

        The job manager sends no request before it has answered sched-ready. One that comes earlier
        was sent before the job manager knew that the earlier scheduler had gone; the job manager
        sends it again after sched-ready. The resources are known by then (28.grow.7).
        """
        if self._greeter.is_ready:
            method(request)
        else:
            text = (
                f"ignored {request.topic} of job {jobid_in(request)}: sched-ready is not answered"
            )
            self._context.send(Log(Level.INFO, text))

    def _silently(self, method: Callable[[Request], None], request: Request) -> None:
        """Call a method whose request gets no answer, and no error either (27.cancel.4)."""
        try:
            self._when_ready(method, request)
        except (FluxError, InvalidTransition) as error:
            self._context.log_error(str(error))

    def _explain(self, request: Request) -> None:
        jobid = explain_requests.EXPLAIN.read(request).id
        schedule, now = self._context.schedule, self._context.now
        queue = schedule.state.queue.get(jobid)
        policy = self._queues.get(queue.queue if queue else "", self._config.policy)
        place = explain(schedule, policy, jobid, self._annotator.start_of(jobid), now)
        self._context.send(respond(request, explain_requests.PLACE.write(place)))

    def _stats(self) -> flux.SchedStats:
        state = self._context.schedule.state
        pool = state.pool
        return flux.SchedStats(
            policy=self._config.policy,
            pending=len(state.queue),
            granting=len(self._granting),
            allocated=len(state.grants) - len(self._granting),
            nodes=flux.SchedNodes(all=pool.ranks.bit_count(), up=pool.up.bit_count()),
        )

    # Answers

    def _decide(self) -> None:
        now = self._context.now
        if now >= self._context.schedule.state.horizon:
            return  # the instance ends: no job can run
        decisions = self._context.schedule.decide(now)
        for job, grant in decisions.started:
            self._granting.grant(job, grant, self._annotator.forget(job.id))
        is_new = self._annotator.look(decisions.waiting)
        if is_new and "annotate" not in self._context.timers:
            self._context.set_timer("annotate", now + ANNOTATE_DELAY_S)

    def _succeed(self, one: Granting) -> None:
        self._context.allocs.step(one.job.id, AllocEvent.SUCCESS)
        annotations = difference(one.outdated, NO_OUTLOOK, one.resources.summary())
        self._answer(one.job.id, AllocType.SUCCESS, annotations, resources=one.resources)

    def _deny(self, jobid: int, note: str) -> None:
        self._annotator.forget(jobid)
        self._context.allocs.step(jobid, AllocEvent.DENY)
        self._answer(jobid, AllocType.DENY, note=note)

    def _answer(
        self,
        jobid: int,
        kind: AllocType,
        sched: SchedAnnotations | None = None,
        note: str | None = None,
        resources: ResourceSet | None = None,
    ) -> None:
        """Send a sched.alloc response: matchtag and errnum are 0, the id names the job (RFC 27)."""
        annotations = None if sched is None else self._edition.annotations(sched)
        answer = AllocAnswer(jobid, kind, annotations, note, resources)
        payload = self._edition.alloc_answer.write(answer)
        self._context.send(Response(topics.SCHED_ALLOC, payload, routes=self._manager))

    def _note_rest(self) -> None:
        """Tell the trace when the last job that waited or held resources has gone."""
        state = self._context.schedule.state
        if self._greeter.is_ready and self._is_busy and not state.queue and not state.grants:
            self._is_busy = False
            self._context.send(
                Note(Kind.STATE, {"service": topics.SCHED, "allocated": [], "pending": 0})
            )
