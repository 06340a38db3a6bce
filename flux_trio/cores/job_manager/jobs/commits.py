"""Commits of events, and the messages that wait for them.

All events of a turn are in one commit at its end. A message that may reveal an event is sent when
the commit of its turn, and every commit before it, is durable: `send` and `ask_when_durable`. A
message that reveals no event is sent in its turn: `answer_at_once` and `ask`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from flux_trio.cores.job_index import ended_ops
from flux_trio.cores.job_manager.calls import (
    Answering,
    EventsStored,
    JobManagerAction,
    JobManagerCall,
    JobManagerOutbox,
)
from flux_trio.cores.kvs_calls import Ask, commit_ops
from flux_trio.cores.outbox import without_responses
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Exit, NoteAll
from flux_trio.editions.journal import Ended
from flux_trio.formats import EVENTLOG, Event, format_eventlog, job_key
from flux_trio.formats.meanings import JobId, JobNote, KvsOp, Matchtag
from flux_trio.messages import Errno, FluxError, Payload, Request, Response, service_of, unanswered

# Ops in one commit; a turn with more (a cancel of all jobs) makes several commits, in order. What
# belongs to one job stays together, so that no job is both active and finished after a kill.
COMMIT_OPS_MAX = 20_000

WAITING_BYTES_MAX: Final = 32 << 20
"""Bytes of events that may wait for the kvs; beyond it, requests that would log more are refused.
The kvs holds twice as much (`HELD_BYTES_MAX`), which leaves room for events without a request."""


class Uncommitted(msgspec.Struct, frozen=True):
    """A commit that is under way: its size, and the messages that wait for it."""

    nbytes: int
    messages: list[JobManagerAction] = msgspec.field(default_factory=list)


class Commits(Part):
    """The turn's events and messages, and the messages of earlier turns that wait for commits."""

    messages: list[JobManagerAction]  # of this turn
    questions: list[JobManagerAction]  # requests of this turn that reveal no event
    notes: list[tuple[str, JobNote]]  # of this turn, for the trace
    is_noted: bool  # the trace has a reader: events are noted
    logged: dict[JobId, list[Event]]  # lines of this turn, by job
    over: list[Ended]  # jobs that became inactive in this turn
    frees: bool  # an exception of this turn ends a job: the commit leads to more room
    ops: list[list[KvsOp]]  # those of this turn that are not events, by who stores them
    uncommitted: deque[Uncommitted]  # the oldest first
    waiting_bytes: int  # bytes of events in `uncommitted`
    gone: dict[str, Matchtag]  # peers that left in this turn: the last matchtag before that

    def __init__(self, outbox: JobManagerOutbox) -> None:
        self.outbox = outbox
        self.messages = []
        self.questions = []
        self.notes = []
        self.is_noted = True
        self.logged = {}
        self.over = []
        self.frees = False
        self.ops = []
        self.uncommitted = deque()
        self.waiting_bytes = 0
        self.gone = {}

    @property
    def now(self) -> float:
        """Return the time of this turn, seconds since the Unix epoch."""
        return self.outbox.now

    @property
    def commits(self) -> int:
        """Return how many commits are under way."""
        return len(self.uncommitted)

    def send(self, message: JobManagerAction | None) -> None:
        """Send `message` when all events so far are durable; None stands for no message."""
        if message is not None:
            self.messages.append(message)

    def ask_when_durable(self, topic: str, payload: Payload, call: JobManagerCall) -> None:
        """Send a request when all events so far are durable."""
        self.messages.append(Request(topic, payload, self.outbox.calls.open(call)))

    def ask_kvs_when_durable(self, ask: Ask, call: JobManagerCall) -> None:
        """Send a request to the kvs when all events so far are durable."""
        self.messages.append(self.outbox.request_kvs(ask, self.outbox.calls.open(call)))

    def answer_at_once(self, response: Response | None) -> None:
        """Send a response that reveals no event, such as the state of a queue, in this turn."""
        if response is not None:
            self.questions.append(response)

    def ask(self, topic: str, payload: Payload, call: JobManagerCall) -> None:
        """Send a request that reveals no uncommitted event, right after the turn's commit.

        In this order one round of the kvs takes both.
        """
        self.questions.append(Request(topic, payload, self.outbox.calls.open(call)))

    def ask_kvs(self, ask: Ask, call: JobManagerCall) -> None:
        """Send a request to the kvs; as `ask`."""
        self.questions.append(self.outbox.request_kvs(ask, self.outbox.calls.open(call)))

    def check_room(self) -> None:
        """Refuse a request that would log an event while too many bytes of events wait.

        Mostly the disk is full then. Raises FluxError(ENOSPC). Events of existing jobs that no
        request asks for are always logged: they are few for each job.
        """
        if self.waiting_bytes > WAITING_BYTES_MAX:
            text = f"{self.waiting_bytes} bytes of events wait to be stored; see queue status"
            raise FluxError(Errno.ENOSPC, text)

    def store(self, ops: Iterable[list[str]]) -> None:
        """Put `ops` into one commit of this turn, whose messages wait for it."""
        self.ops.append(list(ops))

    def set_noted(self, is_noted: bool | None) -> None:
        """Note events in the trace from now on, or no longer; None leaves it as it is."""
        if is_noted is not None:
            self.is_noted = is_noted

    # --- peers that leave

    def unsend(self, service: str) -> None:
        """Drop unsent requests without a matchtag to `service`, which is gone.

        A request is unsent while it waits for a commit or for the end of the turn. If it stayed,
        the next service would get it before its hello. Requests with a matchtag stay, since a part
        waits for the answer; `close_calls` drops those.
        """
        for waiting in self._unsent():
            waiting[:] = [each for each in waiting if not _is_by_job_id(each, service)]

    def close_calls(
        self, kinds: tuple[type[JobManagerCall], ...], *, is_gone: bool
    ) -> list[JobManagerCall]:
        """Close calls of these kinds, to a service that is lost; return them, the oldest first.

        A call whose request is unsent is closed, and the request is dropped. If the service
        `is_gone`, all these calls are closed: its successor may have got the other requests, before
        its hello.
        """
        calls = self.outbox.calls
        open_ = [matchtag for matchtag, call in calls.items() if isinstance(call, kinds)]
        dropped: set[int] = set()
        for waiting in self._unsent() if open_ else ():
            tags = {each.matchtag for each in waiting if isinstance(each, Request)}
            dropped |= tags.intersection(open_)
            waiting[:] = [
                each
                for each in waiting
                if not (isinstance(each, Request) and each.matchtag in dropped)
            ]
        closed = [calls.close(each) for each in open_ if is_gone or each in dropped]
        return [call for call in closed if call is not None]

    def _unsent(self) -> list[list[JobManagerAction]]:
        """Return the lists of messages that wait to be sent."""
        waiting = [commit.messages for commit in self.uncommitted]
        return [*waiting, self.messages, self.outbox.actions]

    def forget(self, sender: str) -> None:
        """Drop the answers to a peer that is gone (6.disconnect.2).

        An answer waits for a commit or for the turn's end. `leave_gone` searches the messages of
        earlier turns once a turn, for all peers that left in it. It also searches the open calls
        that would lead to an answer.
        """
        self.outbox.forget(sender)
        self.messages = without_responses(self.messages, {sender})
        self.questions = without_responses(self.questions, {sender})
        if self.uncommitted or len(self.outbox.calls):
            self.gone[sender] = self.outbox.calls.last

    def leave_gone(self) -> None:
        """Drop answers to peers that left in this turn, from earlier turns and from open calls."""
        if not self.gone:
            return
        gone, self.gone = self.gone, {}
        for commit in self.uncommitted:
            commit.messages[:] = without_responses(commit.messages, gone)
        calls = self.outbox.calls
        left = {sender: calls.opened_since(last) for sender, last in gone.items()}

        def change(call: JobManagerCall, opened_since: int) -> JobManagerCall:
            if not isinstance(call, Answering) or call.request.sender not in left:
                return call
            sender = call.request.sender
            if opened_since < left[sender]:
                return call  # a later peer with the same name sent the request
            return msgspec.structs.replace(call, request=unanswered(call.request, sender))

        calls.change(change)

    # --- the end of a turn, and of a commit

    def end_turn(self) -> None:
        """Commit the turn's events; without events, send its messages if no commit is under way."""
        self.leave_gone()
        send_all = self.outbox.send_all
        if self.notes:
            send_all([NoteAll(self.notes)])
            self.notes = []
        if self.logged or self.over or self.ops:
            self._commit_all()
        if self.messages:
            messages, self.messages = self.messages, []
            if self.uncommitted:
                self.uncommitted[-1].messages.extend(messages)
            else:
                send_all(messages)
        if self.questions:
            questions, self.questions = self.questions, []
            send_all(questions)

    def _commit_all(self) -> None:
        """Store what this turn has of each job in one commit, whole, whatever is killed then."""
        commit: list[list[str]] = []
        for unit in self._pop_units():
            if commit and len(commit) + len(unit) > page_size(COMMIT_OPS_MAX):
                self._commit(commit)
                commit = []
            commit += unit
        self._commit(commit)
        self.frees = False

    def _pop_units(self) -> list[list[list[str]]]:
        """Return the ops of this turn, those in one list that must not be torn apart."""
        by_job: dict[int, list[list[str]]] = {}
        texts: dict[tuple[int, ...], str] = {}  # often many jobs have the same events
        for jobid, events in self.logged.items():
            same = tuple(map(id, events))
            if (text := texts.get(same)) is None:
                text = texts[same] = format_eventlog(events)
            by_job[jobid] = [["append", job_key(jobid, EVENTLOG), text]]
        for job in self.over:
            by_job.setdefault(job.id, []).extend(ended_ops(job))
        units = [*by_job.values(), *self.ops]
        self.logged, self.over, self.ops = {}, [], []
        return units

    def _commit(self, ops: list[list[str]]) -> None:
        nbytes = sum([len(op[-1]) for op in ops])  # JSON, so nearly all characters are ASCII
        self.uncommitted.append(Uncommitted(nbytes))
        self.waiting_bytes += nbytes
        self.outbox.ask_kvs(commit_ops(ops, frees=self.frees), EventsStored())

    def stored(self, response: Response) -> None:
        """Send the messages that waited for the oldest commit, which is answered."""
        if response.errnum:
            # no message has revealed these events, so nothing is lost by stopping
            self.outbox.send(Exit(f"cannot store events: {response.error_text}"))
            return
        self.leave_gone()
        done = self.uncommitted.popleft()
        self.waiting_bytes -= done.nbytes
        self.outbox.send_all(done.messages)


def _is_by_job_id(message: JobManagerAction, service: str) -> bool:
    if not isinstance(message, Request) or message.matchtag:
        return False
    return service_of(message.topic) == service
