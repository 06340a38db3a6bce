"""Rows: the records of a trace as the viewer draws them, one by one as they come.

A row has what its page cannot find out by itself: the words of a record, the jobs that it is about,
the state that a job is in after it, and what led to it. Where the arrows go is the page's part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from flux_trio.formats import Event, FormatError, format_fluid, job_directory_of, parse_fluid
from flux_trio.messages import Control, Errno, Message, Request, Response, service_of, topics
from flux_trio.protocols import JobState
from flux_trio.protocols.job import JOB, Step, step_of
from flux_trio.trace import Kind, Record
from flux_trio.trace.kvs import below_of, with_texts
from flux_trio.views.arrows import content, sender_of
from flux_trio.views.story import sentence

TEXT_CHARS_MAX: Final = 200
BODY_CHARS_MAX: Final = 16_384
JOBS_MAX: Final = 100  # jobs that one message may be about
CALLS_MAX: Final = 65_536
"""Requests whose answers are awaited; the oldest are forgotten."""
ENDED_MAX: Final = 65_536
"""Inactive jobs that are known to be inactive; the oldest are forgotten."""
PARTIES_MAX: Final = 65_536
"""Parties whose last receipts are known; those with the oldest receipts are forgotten."""

K = TypeVar("K")
V = TypeVar("V")

_encoder = msgspec.json.Encoder(order="sorted")
_KINDS: Final = frozenset(Kind) - {Kind.TURN}  # turns are for replay


class Row(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A record. `n`, `t`, `kind`, `party`, `peer` and `ref` are those of the record."""

    n: int
    t: float
    kind: str
    party: str
    peer: str = ""
    ref: int = 0
    text: str = ""
    """What happened, in a line; a receipt has none if the send is in an earlier row."""
    body: str = ""
    """The message or the data as JSON, at most BODY_CHARS_MAX characters; as with `text`."""
    cut: int = 0
    """Characters of the body that are left out."""
    jobs: tuple[str, ...] = ()
    """The jobs that it is about (RFC 19, F58)."""
    state: str = ""
    """The state that the job enters with this event."""
    bad: str = ""
    """Why it is marked as wrong: error, lost, crashed, fault or exception."""
    gone: bool = False
    """Whether the module `peer` is not loaded from here on."""
    request: int = 0
    """Of a response: the place of the request's send."""
    last: bool = False
    """Of a response: no other one follows."""
    after: int = 0
    """Of a send, an event or a summary: the last receipt of its party."""
    clauses: Any = ()
    """The clauses that judged it: ids; in a page the place of their list."""


class Rows:
    """Makes rows; keeps what later rows refer to. Records before the place `first` have no rows.

    `begun` has the states of the jobs that are active when the first row is made.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._is_begun = False
        self._is_ending = False
        self.begun: dict[str, str] = {}
        self._states: dict[int, JobState] = {}  # of active jobs
        self._ended: dict[int, None] = {}
        self._calls: dict[tuple[str, str, object], tuple[int, tuple[str, ...]]] = {}
        self._received: dict[str, int] = {}

    def add(self, record: Record, clauses: Iterable[str] = ()) -> Row | None:
        """Return the row of the next record; None if it has none, as records of unknown kinds."""
        if record.kind not in _KINDS:
            return None
        if record.kind == Kind.INSTANCE:
            self._is_ending = True  # what waits then is answered by errors, as it should be
        if record.n >= self._first and not self._is_begun:
            self._begin(record.n)
        is_new = record.kind not in (Kind.RECV, Kind.DROP) or not self._first <= record.ref
        body = _body(record) if is_new else ""
        row = Row(
            n=record.n,
            t=record.t,
            kind=record.kind,
            party=record.party,
            peer=_other_end(record),
            ref=record.ref,
            text=_text(record) if is_new or record.kind == Kind.DROP else "",
            body=body[:BODY_CHARS_MAX],
            cut=max(len(body) - BODY_CHARS_MAX, 0),
            bad="" if self._is_ending else _why_bad(record),
            gone=record.kind == Kind.MODULE and (record.data or {}).get("what") != "started",
            clauses=tuple(sorted(clauses)),
        )
        self._link(record, row)
        return row if self._is_begun else None

    def _begin(self, n: int) -> None:
        """The next record has the first row."""
        self._is_begun, self._first = True, n
        self.begun = {
            format_fluid(jobid, "f58"): state.name or ""
            for jobid, state in self._states.items()
            if state is not JobState.NEW
        }

    def _link(self, record: Record, row: Row) -> None:
        """Find the jobs of a row, and the rows that led to it."""
        if record.kind == Kind.EVENT:
            row.jobs = _spelled(_numbers([(record.data or {}).get("id")]))
            row.state = self._state_after(record) if row.jobs else ""
        elif record.message is not None:
            row.jobs = self._jobs_of(record.message, record, row)
        if record.kind == Kind.RECV:
            _keep(self._received, record.party, record.n, PARTIES_MAX)
        else:
            row.after = self._received.get(record.party, 0)

    def _jobs_of(self, message: Message, record: Record, row: Row) -> tuple[str, ...]:
        """Return the jobs of a message; a call and its answers are about the same jobs."""
        found = _spelled(_jobids(getattr(message, "payload", None)))
        if not isinstance(message, (Request, Response)):
            return found
        client = message.routes[0] if message.routes else record.party
        key = (client, message.topic, message.matchtag or found)
        place, jobs = self._calls.get(key, (0, ()))
        jobs = found or jobs
        if isinstance(message, Request):
            if record.kind == Kind.SEND:
                _keep(self._calls, key, (record.n, jobs), CALLS_MAX)
        else:
            row.request, row.last = place, message.ends_rpc
            if record.kind == Kind.RECV and message.matchtag and message.ends_rpc:
                self._calls.pop(key, None)
        return jobs

    def _state_after(self, record: Record) -> str:
        """Return the name of the state that a job enters with an event; "" if it stays."""
        data = record.data or {}
        jobid, context = data["id"], data.get("context")
        event = Event(record.t, str(data.get("name")), context if isinstance(context, dict) else {})
        before = self._states.get(jobid, JobState.NEW)
        if jobid in self._ended:
            before = JobState.INACTIVE
        after = _state_after(before, step_of(event))
        if after is JobState.INACTIVE:
            self._states.pop(jobid, None)
            _keep(self._ended, jobid, None, ENDED_MAX)
        else:
            self._states[jobid] = after
        return "" if after is before else (after.name or "")


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Set the latest of at most `most` values; the oldest is forgotten."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def _state_after(before: JobState, step: Step) -> JobState:
    """Return the state after an event; an event that RFC 21 does not allow changes nothing.

    If the trace begins in the middle of the job's life, it is the state that the event leads to
    from every state that it changes.
    """
    after = JOB.rows[before].get(step)
    if after is None and before is JobState.NEW:
        changed = {after for state, each, after in JOB if each is step and after is not state}
        after = changed.pop() if len(changed) == 1 else None
    return before if after is None else after


def _other_end(record: Record) -> str:
    """Return the other end of a message, or the module that a record is about; "" if unknown."""
    if record.kind == Kind.MODULE:
        return str((record.data or {}).get("module", ""))
    return sender_of(record) if record.kind == Kind.RECV else record.peer


_NEEDED: Final[dict[str, dict[str, Any]]] = {
    Kind.DROP: {},
    Kind.MODULE: {"module": str, "what": str},
    Kind.CLOCK: {"by": int | float},
    Kind.FAULT: {"type": str},
}
"""Kinds of records that are told as a sentence, with the data that it takes and their types."""


def _text(record: Record) -> str:
    """Return what happened; the lane tells whose doing it is."""
    needed, data = _NEEDED.get(record.kind), record.data or {}
    is_told = needed is not None and all(
        isinstance(data.get(key), type_) for key, type_ in needed.items()
    )
    text = sentence(record) if is_told else content(record)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX - 3]}..."


def _body(record: Record) -> str:
    message = record.message
    if message is None:
        return "" if record.data is None else _encoder.encode(record.data).decode()
    if not isinstance(message, Control) and service_of(message.topic) in topics.KVS_SERVICES:
        message = msgspec.structs.replace(message, payload=with_texts(message.payload))
    return _encoder.encode(message).decode()


def _why_bad(record: Record) -> str:
    data, message = record.data or {}, record.message
    match record.kind:
        case Kind.DROP:
            return "lost"
        case Kind.FAULT | Kind.CLOCK:
            return "fault"
        case Kind.MODULE:
            return "crashed" if data.get("what") in ("crashed", "returned") else ""
        case Kind.HOOK:
            return "error" if data.get("error") else ""
        case Kind.EVENT:
            return "exception" if data.get("name") == "exception" else ""
    return "error" if isinstance(message, Response) and not _is_expected(message) else ""


def _is_expected(response: Response) -> bool:
    """Return whether an answer is none of an error.

    A stream ends, also since its reader has left it, or a key is not there yet.
    """
    is_read = service_of(response.topic) in topics.KVS_SERVICES
    return response.errnum in (0, Errno.ENODATA, Errno.ECANCELED) or (
        is_read and response.errnum == Errno.ENOENT
    )


def _spelled(jobids: Iterable[int]) -> tuple[str, ...]:
    found = []
    for jobid in jobids:
        try:
            found.append(format_fluid(jobid, "f58"))
        except FormatError:
            continue
    return tuple(dict.fromkeys(found))[:JOBS_MAX]


def _jobids(payload: Any) -> Iterator[int]:
    """Yield the ids in a payload: its own, those of its jobs and events, and those in kvs keys."""
    if not isinstance(payload, dict):
        return
    yield from _numbers([payload.get("id")])
    for name in ("ids", "jobs", "events"):
        held = payload.get(name)
        for each in held if isinstance(held, list) else ():
            yield from _numbers([each.get("id") if isinstance(each, dict) else _first_of(each)])
    below = below_of(payload.get("namespace"))
    yield from _in_keys([payload.get("key")], below)
    for name in ("keys", "ops"):
        held = payload.get(name)
        yield from _in_keys(held if isinstance(held, list) else (), below)


def _numbers(values: Iterable[Any]) -> Iterator[int]:
    yield from (each for each in values if type(each) is int)


def _first_of(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and value else value


def _in_keys(keys: Iterable[Any], below: str) -> Iterator[int]:
    """Yield the jobs of kvs keys, which are `below` a key, and of operations."""
    for each in keys:
        key = each
        if isinstance(each, list | tuple) and len(each) > 1:
            key = each[1]
        elif isinstance(each, dict):
            key = each.get("key")
        directory = job_directory_of(below + key) if isinstance(key, str) else None
        if directory is not None:
            yield parse_fluid(directory)
