"""The scheduler's decisions: RFC 27 from its side, with RFC 28 in `acquisition`. Pure.

It acquires resources, learns from hello what is allocated (`greeting`), says ready, and then
answers sched.alloc as its policy decides, once R is durable (`granting`). A request canceled in
between is answered CANCEL and its R is removed.

Of its own it counts for `sched.stats-get` {"policy", "pending", "granting", "allocated", "nodes":
{"all", "up"}}, counts all but the first. Left out: resource groups other than `default`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from flux_trio.config import SchedConfig
from flux_trio.cores.methods import Methods
from flux_trio.cores.sched.acquisition import Acquisition
from flux_trio.cores.sched.annotations import ANNOTATE_DELAY_S, Annotator
from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.granting import Granting, Grantings
from flux_trio.cores.sched.greeting import Greeting
from flux_trio.cores.sched.requests import (
    AllocRequest,
    ExpirationRequest,
    JobRequest,
    PrioritizeRequest,
    Shapes,
    jobid_in,
)
from flux_trio.cores.sched.reranking import Reranking
from flux_trio.cores.turns import ClockStepped, Note, SetTimer, TimerFired
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import Idset
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Request,
    Response,
    expect_payload,
    respond,
    tells_return_of,
    topics,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.policies import Schedule, Shape
from flux_trio.protocols import AllocEvent, AllocState, AllocType, InvalidTransition
from flux_trio.trace import Kind

ANNOTATE_TIMER: Final = "annotate"
RERANK_TIMER: Final = "rerank"


class SchedCore:
    """The whole state of the scheduler.

    `config` names the policy and the mode, `queues` the policy of each named queue.
    """

    def __init__(
        self,
        config: SchedConfig,
        edition: Edition = CLASSIC,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._edition = edition
        self._context = Context()
        self._schedule = Schedule(config.policy, queues)
        self._shapes = Shapes()
        self._annotator = Annotator(self._schedule.state.pool)
        self._annotating = False  # the timer is set
        self._acquisition = Acquisition(
            self._context, self._schedule, self._grown, self._shrinking, self._take_back
        )
        self._greeting: Greeting | None = None  # from the first grow on
        self._said_hello = False  # in this turn
        self._ready = False  # sched-ready is answered: requests may come
        # The route to who sends them, its name first.
        self._manager: tuple[str, ...] = (topics.JOB_MANAGER,)
        self._granting = Grantings(self._context, self._schedule, self._succeed)
        self._reranking = Reranking(self._schedule, self._granting)
        self._busy = False  # somebody waits or holds something
        self._shrunk = 0  # ranks whose holders were not told of it, as a bit set
        self._methods = Methods(
            for_owner={
                topics.SCHED_ALLOC: self._alloc,
                topics.SCHED_FREE: self._free,
                topics.SCHED_EXPIRATION: self._expiration,
                topics.SCHED_CANCEL: partial(self._silently, self._cancel),
                topics.SCHED_PRIORITIZE: partial(self._silently, self._prioritize),
            },
            for_all={topics.disconnect_of(topics.SCHED): self._disconnect},
            stats=(topics.stats_of(topics.SCHED), self._stats),
        )

    def start(self, now: float) -> list[Any]:
        """Acquire resources; the rest follows from the answer."""
        self._context.now = now
        self._acquisition.start(self._edition)
        return self._context.take_actions()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """Take what came, then let the policy decide once."""
        self._context.now = now
        for item in inputs:
            match item:
                case Request():
                    self._context.do(self._methods.call(item))
                case Response():
                    self._context.answered(item)
                case Event():
                    self._event(item)
                case TimerFired(key):
                    self._timer(key)
                case ClockStepped(by):
                    self._schedule.clock_stepped(by)
        self._said_hello = False
        if not self._reranking.step():
            self._context.do(SetTimer(RERANK_TIMER, now))
        elif self._ready:
            self._decide()
        self._granting.commit()
        self._note_rest()
        return self._context.take_actions()

    def _timer(self, key: object) -> None:
        if key == ANNOTATE_TIMER:
            self._annotating = False
            for jobid, keys in self._annotator.changes():
                self._context.step(jobid, AllocEvent.ANNOTATE)
                self._answer(jobid, AllocType.ANNOTATE, annotations={"sched": keys})

    # Resources and job manager come and go

    def _grown(self) -> None:
        if self._greeting is None:
            self._greet()

    def _greet(self) -> None:
        self._greeting = Greeting(self._context, self._schedule, self._config, self._greeted)
        self._greeting.say_hello()
        self._said_hello = True

    def _greeted(self) -> None:
        self._ready = True
        self._busy = len(self._schedule.state.grants) > 0
        self._shrunk_or_ready()

    def _event(self, event: Event) -> None:
        waits = self._greeting is not None and self._greeting.waits
        if waits and tells_return_of(topics.JOB_MANAGER, event):
            self._greet()

    def _shrinking(self, ranks: int) -> None:
        """28.shrink; before hello has told who holds what, nobody can say what is free."""
        self._take_back(ranks)
        self._schedule.shrink(ranks)
        self._shrunk |= ranks
        if self._ready:
            self._shrunk_or_ready()

    def _take_back(self, ranks: int) -> None:
        """28.shrink.3, 28.offline.3: jobs that were granted any of `ranks` but not told, wait."""
        for one in self._granting:
            if one.grant.allocation.ranks & ranks:
                self._schedule.submit(self._granting.revoke(one))

    def _shrunk_or_ready(self) -> None:
        """Release what is free, tell who holds the rest, judge requests anew."""
        ranks, self._shrunk = self._shrunk, 0
        self._acquisition.release(self._schedule.take_left())
        for jobid in self._schedule.holders(ranks):
            note = f"its nodes of rank {Idset.from_bits(ranks)} were removed from the instance"
            payload = {"id": jobid, "type": "shrink", "severity": 0, "note": note}
            self._context.do(Request(topics.JOB_RAISE, payload, flags=NORESPONSE))
        self._judge_queue()

    def _judge_queue(self) -> None:
        """Deny what can never be had (28.shrink.7)."""
        notes: dict[Shape, str | None] = {}
        for job in list(self._schedule.state.queue):
            if job.shape not in notes:
                notes[job.shape] = self._schedule.shortfall(job.shape)
            note = notes[job.shape]
            if note is not None:
                self._schedule.withdraw(job.id)
                self._deny(job.id, note)

    def _disconnect(self, request: Request) -> None:
        """A peer is gone; if it is the job manager, all jobs are told anew by the next one."""
        if request.sender != self._manager[0]:
            return
        self._ready = False
        self._granting.forget_all()
        self._annotator.forget_all()
        self._reranking.forget_all()
        self._context.forget_jobs()
        self._schedule.forget_jobs()
        if self._greeting is None:
            return  # hello follows the first grow
        if self._said_hello:
            return  # a slow scheduler hears of two ends in one turn: one hello is enough
        self._greeting.abandon()
        self._greet()

    # Requests (RFC 27)

    def _alloc(self, request: Request) -> None:
        self._manager = request.routes
        try:
            asked = expect_payload(request, AllocRequest)
        except FluxError as error:  # an error response could not name the job (27.impl.10)
            self._refuse(jobid_in(request), error.text)
            return
        try:
            self._context.step(asked.id, AllocEvent.ALLOC)
        except InvalidTransition as error:
            self._context.log_error(f"job {asked.id}: {error}")
            return
        self._reranking.forget(asked.id)
        try:
            job = self._shapes.job(asked)
        except ValueError as error:  # FormatError is one
            self._deny(asked.id, f"invalid jobspec: {error}")
            return
        # Before the first grow nothing can be said of what there is (28.grow.7).
        shortfall = self._schedule.shortfall(job.shape) if self._ready else None
        if shortfall is not None:
            self._deny(asked.id, shortfall)
        else:
            self._schedule.submit(job)
            self._busy = True

    def _refuse(self, jobid: int, note: str) -> None:
        if self._context.stand(jobid) is AllocState.IDLE:
            self._context.step(jobid, AllocEvent.ALLOC)
            self._deny(jobid, note)
        else:
            self._context.log_error(f"job {jobid}: {note}")

    def _free(self, request: Request) -> None:
        jobid = expect_payload(request, JobRequest).id
        try:
            self._context.step(jobid, AllocEvent.FREE)
        except InvalidTransition as error:
            # 27.impl.11: even then the answer is no error, which could not name the job.
            self._context.log_error(f"job {jobid}: {error}")
        else:
            self._context.step(jobid, AllocEvent.FREED)
            self._acquisition.release(self._schedule.free(jobid) or 0)
        if self._edition.free_is_acknowledged:
            self._context.do(respond(request, {"id": jobid}))

    def _cancel(self, request: Request) -> None:
        jobid = expect_payload(request, JobRequest).id
        if self._context.step(jobid, AllocEvent.CANCEL) is not AllocState.CANCELING:
            return  # nothing pending: ignored (27.cancel.6)
        if (one := self._granting.get(jobid)) is not None:
            self._granting.revoke(one)
        else:
            self._schedule.withdraw(jobid)
        self._annotator.forget(jobid)
        self._context.step(jobid, AllocEvent.CANCELED)
        self._answer(jobid, AllocType.CANCEL)

    def _prioritize(self, request: Request) -> None:
        self._reranking.add(expect_payload(request, PrioritizeRequest).jobs)

    def _expiration(self, request: Request) -> None:
        asked = expect_payload(request, ExpirationRequest)
        if asked.expiration < 0 or not math.isfinite(asked.expiration):
            raise FluxError(Errno.EINVAL, f"invalid expiration {asked.expiration}")
        if self._context.stand(asked.id) is not AllocState.ALLOCATED:
            raise FluxError(Errno.ENOENT, f"job {asked.id} has no allocation")
        horizon = self._schedule.state.horizon
        # Whole seconds may be rounded up (readings: sched.expiration).
        if asked.expiration > horizon + 1:
            text = f"expiration {asked.expiration} is beyond that of the instance, {horizon}"
            raise FluxError(Errno.EINVAL, text)
        self._schedule.extend(asked.id, min(asked.expiration or math.inf, horizon))
        self._context.do(respond(request))

    def _silently(self, method: Callable[[Request], None], request: Request) -> None:
        """Call a method that never answers, not even with an error (27.cancel.4)."""
        try:
            method(request)
        except (FluxError, InvalidTransition) as error:
            self._context.log_error(str(error))

    def _stats(self) -> dict[str, Any]:
        state = self._schedule.state
        return {
            "policy": self._config.policy,
            "pending": len(state.queue),
            "granting": len(self._granting),
            "allocated": len(state.grants) - len(self._granting),
            "nodes": {"all": state.pool.ranks.bit_count(), "up": state.pool.up.bit_count()},
        }

    # Answers

    def _decide(self) -> None:
        now = self._context.now
        if now >= self._schedule.state.horizon:
            return  # the instance is at its end: nothing could run
        decisions = self._schedule.decide(now)
        for job, grant in decisions.started:
            self._granting.grant(job, grant, self._annotator.forget(job.id))
        if self._annotator.look(decisions.waiting) and not self._annotating:
            self._annotating = True
            self._context.do(SetTimer(ANNOTATE_TIMER, now + ANNOTATE_DELAY_S))

    def _succeed(self, one: Granting) -> None:
        self._context.step(one.job.id, AllocEvent.SUCCESS)
        self._answer(one.job.id, AllocType.SUCCESS, annotations={"sched": one.annotations})

    def _deny(self, jobid: int, note: str) -> None:
        self._annotator.forget(jobid)
        self._context.step(jobid, AllocEvent.DENY)
        self._answer(jobid, AllocType.DENY, note=note)

    def _answer(self, jobid: int, kind: AllocType, **more: Any) -> None:
        """A sched.alloc response: matchtag and errnum are 0, the id says whose (RFC 27)."""
        payload = {"id": jobid, "type": int(kind), **more}
        self._context.do(Response(topics.SCHED_ALLOC, payload, routes=self._manager))

    def _note_rest(self) -> None:
        """Tell the trace when nobody waits for or holds anything any more."""
        state = self._schedule.state
        if self._ready and self._busy and not state.queue and not state.grants:
            self._busy = False
            data = {"service": topics.SCHED, "allocated": [], "pending": 0}
            self._context.do(Note(Kind.STATE, data))
