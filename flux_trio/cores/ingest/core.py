"""Ingest: it stores a submission as a job, and answers when the job is durable.

One submission, in order (`feasibility.check` in the current edition only):

    user   job-ingest.submit       waits until job-manager.getinfo has told the last id
    asks   feasibility.check       → an error refuses the job
    asks   job-manager.submit-room → refusals; only if the user has met a limit before
    asks   kvs: a commit           → the job is durable: jobspec, submit event, index
    asks   job-manager.submit      → the jobs that it refuses, and why
    user                           ← {id}, or the error

The submissions of one turn are one batch: one commit with the jobspecs and submit events, then one
job-manager.submit, then the answers. The job manager removes a job that it refuses. If it ends
before it answers, the next one may have read the jobs back and may run them: the batch is kept and
submitted again. Left out: signatures (RFC 15); the broker guarantees the userid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Never, TypeAlias, assert_never

import msgspec

from flux_trio.config import Config
from flux_trio.cores.ingest.feasibility import Feasibility, FeasibilityAsked
from flux_trio.cores.ingest.submissions import New, Submissions
from flux_trio.cores.job_index import refusal_ops, submit_op
from flux_trio.cores.kvs_calls import commit_ops
from flux_trio.cores.methods import Methods, configuration_in
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.pages import page_size
from flux_trio.cores.sharing import Backlog
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import (
    ClockStepped,
    CommonAction,
    CommonInput,
    Core,
    Exit,
    Log,
    TimerFired,
)
from flux_trio.editions import submission
from flux_trio.formats import (
    EVENTLOG,
    GENERATORS_MAX,
    FluidGenerator,
    format_event,
    job_key,
    timestamp_of,
)
from flux_trio.formats.meanings import JobId, KvsOp
from flux_trio.messages import (
    Errno,
    Event,
    Flag,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    tells_return_of,
    topics,
    unanswered,
)
from flux_trio.protocols import submit_event

# Jobs in one batch: it bounds a commit, and the time that the first job waits for the last.
BATCH_JOBS_MAX = 1024

# Before a reload, ingest may have stored jobs that the job manager does not know yet. The time in
# their ids is later than that in the last id it knows, by at most the time of a commit.
UNCONFIRMED_MS_MAX = 60_000

AGAIN_S: Final = 1.0  # before a batch is submitted again to a job manager whose inbox is full

UNDECIDED: Final = (Errno.ENOSYS, Errno.EAGAIN)
"""Errors of the broker: the job manager has ended, or its inbox is full; it has not answered."""


class _Batch(msgspec.Struct):
    """The submissions of one turn."""

    requests: dict[JobId, Request] = msgspec.field(default_factory=dict)
    jobs: list[submission.NewJob] = msgspec.field(default_factory=list)
    ops: list[KvsOp] = msgspec.field(default_factory=list)


class LastIdRead(msgspec.Struct, frozen=True):
    """Answers job-manager.getinfo: the last id that was given out before this start."""


class RoomAsked(msgspec.Struct, frozen=True):
    """Answers job-manager.submit-room, for submissions of a user who has met a limit."""

    userid: int
    requests: list[Request]


class BatchStored(msgspec.Struct, frozen=True):
    """Answers the commit of a batch."""

    batch: _Batch


class BatchDecided(msgspec.Struct, frozen=True):
    """Answers job-manager.submit for a batch, which is stored."""

    batch: _Batch


IngestCall: TypeAlias = LastIdRead | RoomAsked | FeasibilityAsked | BatchStored | BatchDecided
IngestTimer: TypeAlias = Literal["again"]
IngestInput: TypeAlias = CommonInput[IngestTimer]
IngestAction: TypeAlias = CommonAction[IngestTimer]


class IngestCore(CorePart, Core[IngestTimer, Never, Never]):
    """The batches that are under way, and the ids.

    The job manager refuses a job beyond a limit of its user, when the job is already stored. From
    then on, ingest stores jobs of that user only after the job manager has said that there is room.
    """

    _full: set[int]
    _unchecked: dict[int, list[Request]]
    _ids: FluidGenerator | None
    _refusal: str
    _refusal_errnum: int
    _undecided: list[_Batch]
    _backlog: Backlog[Request]
    _batch: _Batch

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        self._outbox = Outbox[IngestCall, IngestAction, IngestTimer](config.edition_value)
        self._full = set()  # users who have met a limit; removed when there is room again
        self._unchecked = {}  # submissions of this turn, by user in `_full`
        self._ids = None  # None until the job manager has told the last id
        self._refusal = ""  # set while there is no job manager, or its inbox is full
        self._refusal_errnum = 0
        self._undecided = []  # stored batches that wait for a job manager
        self._backlog = Backlog()  # requests that wait for `_ids`
        self._batch = _Batch()
        self._submissions = Submissions(config)
        self._feasibility = Feasibility(self._submissions, self._outbox)
        self._methods = Methods(
            for_owner={topics.config_reload_of(topics.JOB_INGEST): self._configure},
            for_all={topics.INGEST_SUBMIT: self._submit},
            stats=(topics.stats_of(topics.JOB_INGEST), self._stats),
            farewells={topics.JOB_INGEST: self._disconnect},
            forget=self._outbox.forget,
        )

    def start(self, now: float) -> list[IngestAction]:
        """Ask for the last job id so far; submissions wait for it."""
        self._outbox.now = now
        self._ask_last_id()
        return self._outbox.pop_actions()

    def turn(self, now: float, inputs: Sequence[IngestInput]) -> list[IngestAction]:
        """Check submissions, and take the batches one step further."""
        self._outbox.now = now
        requests: list[Request] = []
        for message in inputs:
            # isinstance of a Struct costs several times as much
            if type(message) is Response:
                self._handle_response(now, message)
            elif type(message) is Request and self._ids is not None:
                requests.append(message)
            elif type(message) is Request:
                self._outbox.send(self._put_off(message))
            else:
                self._handle_rare(message)
        if self._ids is not None:
            for request in [*self._backlog.remove_all(), *requests]:
                self._outbox.send(self._methods.call(request))
            self._feasibility.end_turn()
            self._check_room()
            self._store()
        return self._outbox.pop_actions()

    def _handle_rare(self, message: Event | TimerFired[IngestTimer] | ClockStepped) -> None:
        match message:
            case Event():
                self._event(message)
            case TimerFired(key):
                self._outbox.fired(key)
                self._go_on()
            case ClockStepped(by):
                self._outbox.clock_stepped(by)
            case _:
                assert_never(message)

    def _put_off(self, request: Request) -> Response | None:
        """Keep a request until the last id is known; refuse it if that cannot be known now."""
        if self._refusal:
            return self._methods.call(request)
        return self._backlog.put(request, self._outbox.forget)

    def _ask_last_id(self) -> None:
        self._outbox.ask(topics.JOB_GETINFO, None, LastIdRead())

    def _event(self, event: Event) -> None:
        if tells_return_of(topics.JOB_MANAGER, event):
            self._go_on()

    def _go_on(self) -> None:
        """Ask again: the job manager is back, or its inbox may have room."""
        if not self._refusal:  # the timer fired in the turn in which the job manager came back
            return
        self._refusal = ""
        self._outbox.clear_timer("again")
        if self._ids is None:
            self._ask_last_id()
        undecided, self._undecided = self._undecided, []
        for batch in undecided:
            self._hand_over(batch)

    def _refuse_until_it_is_back(self, response: Response) -> None:
        self._refusal, self._refusal_errnum = response.error_text, response.errnum
        if response.errnum == Errno.EAGAIN:
            self._outbox.set_timer("again", self._outbox.now + AGAIN_S)

    def _stats(self) -> submission.Stats:
        # batches that the kvs stores or the job manager decides on
        return submission.Stats(len(self._outbox.calls) + len(self._undecided))

    def _disconnect(self, request: Request) -> None:
        """Drop the answers to a submitter that is gone; its jobs stay (6.disconnect.2)."""
        self._feasibility.forget(request.sender)
        batches = [self._batch, *self._undecided]
        for call in self._outbox.calls:
            match call:
                case BatchStored(batch) | BatchDecided(batch):
                    batches.append(batch)
                case RoomAsked(_, requests):
                    requests[:] = [unanswered(each, request.sender) for each in requests]
        for batch in batches:
            for jobid, each in batch.requests.items():
                batch.requests[jobid] = unanswered(each, request.sender)
        for unchecked in self._unchecked.values():
            unchecked[:] = [unanswered(each, request.sender) for each in unchecked]

    def _submit(self, request: Request) -> None:
        if self._refusal:
            raise FluxError(self._refusal_errnum, self._refusal)
        new = self._submissions.read(request)
        if not self._feasibility.ask(request, new):
            self._take(request, new)

    def _take(self, request: Request, new: New) -> None:
        """Take a submission that can run, as far as is known."""
        if request.userid in self._full:
            self._unchecked.setdefault(request.userid, []).append(request)
        else:
            self._add_to_batch(request, new)

    def _configure(self, request: Request) -> None:
        """job-ingest.config-reload: new jobs get the defaults of another configuration."""
        self._submissions.config = configuration_in(request)
        self._feasibility.configured()
        self._outbox.send(respond(request))

    def _check_room(self) -> None:
        """Ask about submissions of users who have met a limit, before they are stored."""
        unchecked, self._unchecked = self._unchecked, {}
        for userid, requests in unchecked.items():
            demands = [self._submissions.demand(request) for request in requests]
            payload = submission.ROOM_WANTED.write(submission.RoomWanted(userid, demands))
            call = RoomAsked(userid, requests)
            self._outbox.ask(topics.JOB_SUBMIT_ROOM, payload, call)

    def _checked(self, check: RoomAsked, response: Response) -> None:
        """Accept the submissions that there is room for; refuse the others."""
        if response.errnum:
            text = f"cannot submit the job: {response.error_text}"
            for request in check.requests:
                self._outbox.send(respond_error(request, response.errnum, text))
            return
        refusals = submission.ROOM.read(response).refusals
        if not any(refusals):
            self._full.discard(check.userid)
        for request, refusal in zip(check.requests, refusals, strict=True):
            if refusal is None:
                self._add_to_batch(request, self._submissions.read(request))
            else:
                self._outbox.send(respond_error(request, Errno.EINVAL, refusal))

    def _add_to_batch(self, request: Request, new: New) -> None:
        """Put a job into the batch of this turn."""
        assert self._ids is not None  # submissions wait for it
        now = self._outbox.now
        jobid = self._ids.next(int(now * 1000))
        event = submit_event(now, request.userid, new.urgency, new.flags)
        # the keys of a new job are absent, and an append is cheaper than a put
        self._batch.ops.append(["append", job_key(jobid, "jobspec"), new.text.decode()])
        self._batch.ops.append(["append", job_key(jobid, EVENTLOG), format_event(event)])
        self._batch.ops.append(submit_op(jobid))
        self._batch.requests[jobid] = request
        self._batch.jobs.append(
            submission.NewJob(jobid, request.userid, new.urgency, now, new.flags, new.jobspec)
        )
        if len(self._batch.jobs) >= page_size(BATCH_JOBS_MAX):
            self._store()

    def _store(self) -> None:
        if self._batch.jobs:
            batch, self._batch = self._batch, _Batch()
            # while the disk is full, a submit is refused at once
            self._outbox.ask_kvs(commit_ops(batch.ops, wait=False), BatchStored(batch))

    def _handle_response(self, now: float, response: Response) -> None:
        call = self._outbox.calls.match(response)
        match call:  # the most frequent ones first
            case BatchStored(batch):
                if response.errnum:
                    text = f"cannot store the job: {response.error_text}"
                    self._fail(batch, response.errnum, text)
                else:
                    self._hand_over(batch)
            case BatchDecided(batch):
                self._decided(batch, response)
            case LastIdRead():
                self._number_from(now, response)
            case RoomAsked():
                self._checked(call, response)
            case FeasibilityAsked():
                self._feasibility.answered(call, response)
                for request, new in self._feasibility.pop_decided():
                    self._take(request, new)
            case None:
                text = f"{response.topic}: an answer to nothing that was asked"
                self._outbox.send(Log(Level.WARNING, text))
            case _:
                assert_never(call)

    def _number_from(self, now: float, response: Response) -> None:
        if response.errnum in UNDECIDED:
            self._refuse_until_it_is_back(response)
            for request in self._backlog.remove_all():
                self._outbox.send(respond_error(request, response.errnum, self._refusal))
            return
        if response.errnum:
            self._outbox.send(Exit(f"{response.topic}: {response.error_text}"))
            return
        last = submission.INFO.read(response).max_jobid
        first_ms = timestamp_of(last) + UNCONFIRMED_MS_MAX
        # the module before may have stored jobs with ids that follow the same `last`
        generator_id = _nbefore(response) % GENERATORS_MAX
        self._ids = FluidGenerator(generator_id, start_ms=int(now * 1000) - first_ms)
        self._ids.advance_past(last)

    def _hand_over(self, batch: _Batch) -> None:
        """Submit the jobs of a stored batch to the job manager."""
        payload = submission.NEW_JOBS.write(submission.NewJobs(batch.jobs))
        self._outbox.ask(topics.JOB_SUBMIT, payload, BatchDecided(batch))

    def _decided(self, batch: _Batch, response: Response) -> None:
        """Answer the submissions of a batch: the job manager has accepted or refused each job."""
        if response.errnum in UNDECIDED:
            self._undecided.append(batch)
            self._refuse_until_it_is_back(response)
            return
        if response.errnum:
            text = f"cannot submit the job: {response.error_text}"
            self._fail(batch, response.errnum, text)
            self._remove(list(batch.requests))
            return
        refusals = submission.REFUSALS.read(response)
        self._full.update(refusals.full or ())
        refused = dict(refusals.errors)
        for jobid, request in batch.requests.items():
            if jobid in refused:
                self._outbox.send(respond_error(request, Errno.EINVAL, refused[jobid]))
            else:
                self._outbox.send(
                    respond(request, submission.SUBMITTED.write(submission.Submitted(jobid)))
                )

    def _fail(self, batch: _Batch, errnum: int, text: str) -> None:
        for request in batch.requests.values():
            self._outbox.send(respond_error(request, errnum, text))

    def _remove(self, jobids: list[int]) -> None:
        if jobids:
            ops = [op for jobid in jobids for op in refusal_ops(jobid)]
            request = self._outbox.request_kvs(commit_ops(ops), flags=int(Flag.NORESPONSE))
            self._outbox.send(request)


def _nbefore(response: Response) -> int:
    """Return how many modules of this name the broker had before: the second hop of the routes."""
    return int(response.routes[1]) if len(response.routes) > 1 else 0
