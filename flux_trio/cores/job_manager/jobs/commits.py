"""What waits for the kvs: lines of eventlogs, and the messages that tell of these events.

All events of a turn go in one commit at its end. A message that may reveal an event is sent once
the commit of its turn, and every commit before it, is durable: `send` and `ask_when_durable`. A
message that reveals none is sent in its turn: `answer_at_once` and `ask`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import ended_ops
from flux_trio.cores.job_manager.calls import (
    EventsStored,
    JobManagerAction,
    JobManagerCall,
    JobManagerOutbox,
)
from flux_trio.cores.kvs_calls import commit_ops
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Exit, NoteAll
from flux_trio.editions.journal import Ended
from flux_trio.formats import Event, format_eventlog, job_key
from flux_trio.formats.meanings import JobId, JobNote, KvsOp
from flux_trio.messages import Errno, FluxError, Payload, Request, Response, service_of

# Jobs in one commit; a turn with more (everybody's jobs are canceled) makes several, in order.
COMMIT_OPS_MAX = 20_000

WAITING_BYTES_MAX: Final = 32 << 20
"""Bytes of events that may wait for the kvs before requests that would log more are refused. The
kvs holds twice as much (`HELD_BYTES_MAX`): the rest is for events that no request asks for."""


class Uncommitted(msgspec.Struct, frozen=True):
    """A commit that is under way: its size, and the messages that wait for it."""

    nbytes: int
    messages: list[JobManagerAction] = msgspec.field(default_factory=list)


class Commits(Part):
    """The turn's events and messages, and what earlier turns have left to wait for a commit."""

    messages: list[JobManagerAction]  # of this turn
    questions: list[JobManagerAction]  # of this turn, that reveal no event
    notes: list[tuple[str, JobNote]]  # of this turn, for the trace
    logged: dict[JobId, list[Event]]  # what this turn adds to its eventlog
    over: list[Ended]  # jobs that became inactive in this turn
    ops: list[KvsOp]  # what this turn stores beside eventlogs
    uncommitted: deque[Uncommitted]  # the oldest first
    waiting_bytes: int  # of events in them
    gone: set[str]  # peers that went in this turn

    def __init__(self, outbox: JobManagerOutbox) -> None:
        self.outbox = outbox
        self.messages = []
        self.questions = []
        self.notes = []
        self.logged = {}
        self.over = []
        self.ops = []
        self.uncommitted = deque()
        self.waiting_bytes = 0
        self.gone = set()

    @property
    def now(self) -> float:
        """The time of this turn, seconds since the Unix epoch."""
        return self.outbox.now

    @property
    def commits(self) -> int:
        """How many are under way."""
        return len(self.uncommitted)

    def send(self, message: JobManagerAction | None) -> None:
        """Send `message` once everything logged so far is durable; None is nothing to send."""
        if message is not None:
            self.messages.append(message)

    def ask_when_durable(self, topic: str, payload: Payload, call: JobManagerCall) -> None:
        """Send a request once everything logged so far is durable."""
        self.messages.append(Request(topic, payload, self.outbox.calls.open(call)))

    def answer_at_once(self, response: Response | None) -> None:
        """Send a response that reveals no event, such as the state of a queue, in this turn."""
        if response is not None:
            self.questions.append(response)

    def ask(self, topic: str, payload: Payload, call: JobManagerCall) -> None:
        """Send a request that reveals no event in this turn, right after the turn's commit.

        In this order one round of the kvs has both.
        """
        self.questions.append(Request(topic, payload, self.outbox.calls.open(call)))

    def check_room(self) -> None:
        """Refuse a request that would log an event while too many bytes of events wait.

        The kvs takes them late, mostly because its disk is full. Raises FluxError(ENOSPC). What
        must be logged for existing jobs is logged in any case: it is a few events for each.
        """
        if self.waiting_bytes > WAITING_BYTES_MAX:
            text = f"{self.waiting_bytes} bytes of events wait to be stored; see queue status"
            raise FluxError(Errno.ENOSPC, text)

    def store(self, ops: Iterable[list[str]]) -> None:
        """Put `ops` into this turn's commit; the messages of this turn wait for it."""
        self.ops += ops

    def add_event(self, jobid: int, event: Event) -> None:
        """Put an event of the job into this turn's commit."""
        events = self.logged.get(jobid)
        if events is None:
            self.logged[jobid] = [event]
        else:
            events.append(event)

    def note_all(self, kind: str, notes: Sequence[dict[str, Any]]) -> None:
        """Put records into the trace, in their place among this turn's."""
        self.notes.extend(zip(repeat(kind), notes))

    # --- peers that go

    def unsend(self, service: str) -> None:
        """Drop requests by job id to `service`, whose holder is gone, that wait for a commit.

        They would come to the next holder before it has said hello. Requests with a matchtag stay,
        since somebody waits for an answer.
        """
        for waiting in (*(commit.messages for commit in self.uncommitted), self.messages):
            waiting[:] = [each for each in waiting if not _is_by_job_id(each, service)]

    def forget(self, sender: str) -> None:
        """Drop answers to a peer that is gone and that wait for a commit (6.disconnect.2).

        What earlier turns have left is looked at once a turn, however many peers go in it.
        """
        self.messages = _without_answers(self.messages, {sender})
        if self.uncommitted:
            self.gone.add(sender)

    def _leave_gone(self) -> None:
        """Take out the answers of earlier turns to peers that have gone in this one."""
        gone, self.gone = self.gone, set()
        if gone:
            for commit in self.uncommitted:
                commit.messages[:] = _without_answers(commit.messages, gone)

    # --- the end of a turn, and of a commit

    def end_turn(self) -> None:
        """Commit the turn's events; without any, send its messages when no commit is under way."""
        self._leave_gone()
        send_all = self.outbox.send_all
        if self.notes:
            send_all([NoteAll(self.notes)])
            self.notes = []
        ops = [
            ["append", job_key(jobid, "eventlog"), format_eventlog(events)]
            for jobid, events in self.logged.items()
        ]
        ops += ended_ops(self.over)
        ops += self.ops
        self.logged, self.over, self.ops = {}, [], []
        for start in range(0, len(ops), COMMIT_OPS_MAX):
            self._commit(ops[start : start + COMMIT_OPS_MAX])
        messages, self.messages = self.messages, []
        if self.uncommitted:
            self.uncommitted[-1].messages.extend(messages)
        else:
            send_all(messages)
        questions, self.questions = self.questions, []
        send_all(questions)

    def _commit(self, ops: list[list[str]]) -> None:
        nbytes = sum([len(op[-1]) for op in ops])  # JSON: few characters are not ASCII
        self.uncommitted.append(Uncommitted(nbytes))
        self.waiting_bytes += nbytes
        self.outbox.ask(*commit_ops(ops), EventsStored())

    def stored(self, response: Response) -> None:
        """The oldest commit is answered: the messages that waited for it go out."""
        if response.errnum:
            # nothing of this turn has been told to anyone: stopping here loses nothing
            self.outbox.send(Exit(f"cannot store events: {response.error_text}"))
            return
        self._leave_gone()
        done = self.uncommitted.popleft()
        self.waiting_bytes -= done.nbytes
        self.outbox.send_all(done.messages)


def _without_answers(messages: list[JobManagerAction], gone: set[str]) -> list[JobManagerAction]:
    """`messages` without responses to the peers that are gone."""
    return [
        each
        for each in messages
        if not (isinstance(each, Response) and each.routes and each.routes[0] in gone)
    ]


def _is_by_job_id(message: JobManagerAction, service: str) -> bool:
    if not isinstance(message, Request) or message.matchtag:
        return False
    return service_of(message.topic) == service
