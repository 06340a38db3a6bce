"""Violations of RFC 18, and of RFC 16 where it speaks of eventlogs."""

from __future__ import annotations

import msgspec

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import Trace, edit_payload, find
from tests.support.planted import Change, Planted

PLANTED = Planted()


def first(trace: Trace) -> Record:
    """The commit of ingest that stores the first job: its jobspec, its submit event, its place in
    the index.
    """
    return find(trace, topics.KVS_COMMIT, "request", party="job-ingest")


def second(trace: Trace) -> Record:
    """The job manager's first commit."""
    return find(trace, topics.KVS_COMMIT, "request", party="job-manager")


def written(trace: Trace, commit: Record, how: str, text: str) -> Trace:
    """The commit writes another text to the eventlog; the trace ends as it is sent."""
    at, key, _ = of_eventlog(commit)
    ops = list(commit.message.payload["ops"])
    ops[at] = [how, key, text]
    return edit_payload(trace, commit, ops=ops)[: commit.n]


def of_eventlog(commit: Record) -> tuple[int, str, str]:
    """The operation that writes to an eventlog: its place, the key, the text."""
    ops = commit.message.payload["ops"]
    return next((at, op[1], op[2]) for at, op in enumerate(ops) if op[1].endswith(".eventlog"))


def text_of(commit: Record) -> str:
    """What it writes to the eventlog."""
    return of_eventlog(commit)[2]


def line(**changed: object) -> Change:
    """The event of the first commit with other keys."""

    def change(trace: Trace) -> Trace:
        event = {**msgspec.json.decode(text_of(first(trace))), **changed}
        kept = {key: value for key, value in event.items() if value != "removed"}
        text = msgspec.json.encode(kept).decode() + "\n"
        return written(trace, first(trace), "append", text)

    change.__name__ = f"event with {changed}"
    return change


def plant(clause: str, **changed: object) -> None:
    """`clause` is broken by an event with these keys."""
    PLANTED.violation(clause, "everyday", cut=True)(line(**changed))


plant("18.format.6", timestamp="removed")
plant("18.format.6", timestamp=0)
plant("18.format.6", timestamp="1552593348.0")
plant("18.format.7", name="removed")
plant("18.format.7", name=None)
plant("18.format.8", context=[1])
plant("16.schema.3", context={"urgency": 16, "flags": 0, "version": 1})


@PLANTED.violation("18.format.1", "everyday", cut=True)
def an_event_without_a_newline(trace: Trace) -> Trace:
    commit = first(trace)
    return written(trace, commit, "append", text_of(commit).rstrip("\n"))


@PLANTED.violation("18.format.2", "everyday", cut=True)
def an_event_over_two_lines(trace: Trace) -> Trace:
    commit = second(trace)
    return written(trace, commit, "append", text_of(commit).replace(',"name"', ',\n"name"', 1))


@PLANTED.violation("18.format.3", "everyday", cut=True)
def an_append_of_no_event(trace: Trace) -> Trace:
    return written(trace, second(trace), "append", "\n")


@PLANTED.violation("18.format.4", "everyday", cut=True)
def an_eventlog_is_rewritten(trace: Trace) -> Trace:
    commit = second(trace)
    return written(trace, commit, "put", text_of(commit))


@PLANTED.violation("18.format.4", "everyday", cut=True)
def an_eventlog_is_created_empty(trace: Trace) -> Trace:
    return written(trace, first(trace), "put", "")


@PLANTED.violation("16.schema.3", "everyday", cut=True)
def ingest_validates_too(trace: Trace) -> Trace:
    commit = first(trace)
    validate = '{"timestamp":1.0,"name":"validate"}\n'
    return written(trace, commit, "append", text_of(commit) + validate)
