"""What a kvs.commit stores: its operations, and the events that it writes to eventlogs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from flux_trio.judge.engine.selector import once, sent
from flux_trio.judge.engine.view import Live, Seen, Trait
from flux_trio.judge.views.kvs import commit_ops
from flux_trio.messages import topics
from flux_trio.trace import Record
from flux_trio.trace.kvs import job_with


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One operation of a kvs.commit on an eventlog or a key of a job."""

    how: str
    key: str
    text: str


@once
def stored(record: Record) -> list[Stored]:
    """Return the puts and appends of a kvs.commit request."""
    return [
        Stored(how, key, text)
        for how, key, text in commit_ops(record)
        if isinstance(how, str) and isinstance(key, str) and isinstance(text, str)
    ]


def stored_jobspecs(record: Record) -> list[tuple[int, str]]:
    """Return the jobspecs that a kvs.commit stores, as JSON text, each after its job."""
    jobs = [(job_with(op.key, "jobspec"), op.text) for op in stored(record)]
    return [(job, text) for job, text in jobs if job is not None]


# --- eventlogs

EVENTLOG: Final = "eventlog"


class Entry(msgspec.Struct, gc=False):
    """An event of the form that RFC 18 requires; other keys are ignored."""

    timestamp: Annotated[float, msgspec.Meta(gt=0)]
    name: str
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The lines that one kvs.commit appends to one eventlog."""

    op: Stored
    log: int | str
    """The job id of the eventlog; for an eventlog that is no job's, its key in the KVS."""
    names: tuple[str, ...]
    """The names of the events, from the lines that are JSON objects."""
    is_regular: bool
    """Whether there is at least one line, every line is terminated, and each one is an `Entry`."""

    @property
    def lines(self) -> list[Any]:
        """The JSON values of its lines; None for a line that is not JSON."""
        return _lines_of(self.op.text)


@once
def appended(record: Record) -> list[Appended]:
    """Return what a commit writes to each eventlog, of a job or another."""
    return [_appended(op) for op in stored(record) if op.key.endswith(EVENTLOG) and _is_log(op)]


def _is_log(op: Stored) -> bool:
    return op.key == EVENTLOG or op.key.endswith(f".{EVENTLOG}")


def _appended(op: Stored) -> Appended:
    job = job_with(op.key, EVENTLOG)
    log = op.key if job is None else job
    entries = entries_of(op.text)
    if entries:
        return Appended(op, log, tuple([each.name for each in entries]), True)
    lines = [line for line in _lines_of(op.text) if isinstance(line, dict)]
    return Appended(op, log, tuple([str(line.get("name")) for line in lines]), False)


NOT_JSON: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The exceptions for texts that are not JSON: also for bytes that are not UTF-8, and for values
that are nested too deeply for msgspec."""

_entries: Final = msgspec.json.Decoder(Entry)


def entries_of(text: str) -> list[Entry] | None:
    """Return the events of a text if each line is surely one object, and an Entry; else None."""
    nlines = text.count("\n")
    if text[:1] != "{" or text[-2:] != "}\n" or text.count("}\n{") != nlines - 1:
        return None
    try:
        entries = _entries.decode_lines(text)
    except NOT_JSON:
        return None
    return entries if len(entries) == nlines else None


def _lines_of(text: str) -> list[Any]:
    return [decoded(line) for line in text.split("\n") if line]


@once
def stored_events(record: Record) -> dict[int, tuple[str, ...]]:
    """Return the names of the events that a kvs.commit stores, by job."""
    found: dict[int, tuple[str, ...]] = {}
    for each in appended(record):
        if type(each.log) is int:
            found[each.log] = found[each.log] + each.names if each.log in found else each.names
    return found


class Storing(Live, frozen=True, gc=False):
    """The eventlogs that one kvs.commit writes to."""

    is_regular: bool
    """Whether everything that it writes to eventlogs is regular (`Appended.is_regular`)."""
    has_put: bool
    """Whether it replaces an eventlog, or creates one by a put instead of an append."""
    has_submit: bool
    """Whether it writes a submit event."""


def _storing(record: Record, _seen: Seen) -> Storing | None:
    found = appended(record)
    if not found:
        return None
    is_regular, has_put, has_submit = True, False, False
    for each in found:
        is_regular = is_regular and each.is_regular
        has_put = has_put or each.op.how == "put"
        has_submit = has_submit or "submit" in each.names
    return Storing(is_regular, has_put, has_submit)


STORING: Final = Trait("storing", tuple(sent("request", *topics.COMMITS)), _storing)


# --- JSON

NULL: Final = "null"


def encoded(value: Any) -> str:
    """Return a value as JSON text, which is hashable; null if it is not JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except (*NOT_JSON, ValueError, TypeError):
        return NULL


def decoded(text: str) -> Any:
    """Return the JSON value of a text, or None if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return None
