"""Which clauses a cell of `outside` is about, and which cells are excused, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from flux_trio.lab.exercise import UNHARMED
from flux_trio.lab.exercise.stage import ONCE
from tests.lab.planted import DOUBLE

TABLE: Final = Path(__file__).with_name("outside.txt")

ALLOC_LOST: Final = ("27.alloc.12", "27.alloccancel.1", "27.cancel.5", "27.deny.1")
ANOTHER_JOB: Final = ("27.background.1", "27.alloc.11", "27.success.1", "27.success.8")
OF_DATA: Final = ("32.start.20", "32.start.25", "32.start.31")  # of the first key in it
START_FORM: Final = ("32.impl.3", "32.start.3", "32.start.12", "32.start.13")

PLACES: Final = ("20.nodelist.3", "25.resources.7", "14.vertex.1", "22.idset.1", DOUBLE)

_R: Final = "ops.0.2"
_E: Final = f"{_R}.execution"

OF_FIELD: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("resource.acquire", "group"): ("28.acquire.1",),
    ("sched-ready", "mode"): ("27.ready.4", "27.ready.5"),
    ("kvs.commit", "ops"): ("27.success.1",),
    ("kvs.commit", "ops.0.0"): ("27.success.1",),
    ("kvs.commit", "ops.0.1"): ("27.success.1", "16.jobs.1"),
    ("kvs.commit", _R): ("20.format.1", "27.success.1"),
    ("kvs.commit", f"{_R}.version"): ("20.format.2",),
    ("kvs.commit", _E): ("20.format.3",),
    ("kvs.commit", f"{_E}.R_lite"): ("20.format.4", "20.format.10", *PLACES),
    ("kvs.commit", f"{_E}.R_lite.0.rank"): ("20.format.6", *PLACES),
    ("kvs.commit", f"{_E}.R_lite.0.children"): ("20.format.7", *PLACES),
    ("kvs.commit", f"{_E}.R_lite.0.children.core"): ("20.format.8", *PLACES),
    ("kvs.commit", f"{_E}.nodelist"): ("20.nodelist.1", "20.nodelist.3"),
    ("kvs.commit", f"{_E}.nodelist.0"): ("20.nodelist.1", "20.nodelist.2", "20.nodelist.3"),
    ("kvs.commit", f"{_E}.nslots"): ("20.nslots.1", "20.nslots.3", "20.nslots.4"),
    ("kvs.commit", f"{_E}.starttime"): ("20.starttime.1", "20.starttime.3", "14.attributes.2"),
    ("kvs.commit", f"{_E}.expiration"): ("20.expiration.1", "20.expiration.4", "14.attributes.2"),
    ("SUCCESS", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("SUCCESS", "type"): ("27.alloc.10", "27.alloc.11", "27.annotate.2"),
    ("DENY", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("DENY", "type"): ("27.alloc.10", "27.alloc.11", "27.alloccancel.1"),
    ("DENY", "note"): ("27.deny.2",),
    ("CANCEL", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("CANCEL", "type"): ("27.alloc.10", "27.alloc.11"),
    ("free", "id"): ("27.free.7", "27.impl.4", "27.background.1"),
    ("raise", "id"): ("28.shrink.4", UNHARMED),
    ("raise", "severity"): ("28.shrink.4",),
    ("raise", "type"): ("28.shrink.4",),
    ("raise", "note"): ("28.shrink.4",),
    ("release of a node", "group"): ("28.release.2", "28.release.5"),
    ("release of a node", "targets"): ("28.release.1", "28.release.3", "28.release.7"),
    ("exec-hello", "service"): ("32.hello.1", "32.hello.3", "32.hello.4"),
    ("finish", "data.status"): ("32.start.31", "32.start.32"),
    ("release", "data.ranks"): ("32.start.20", "32.start.21"),
    ("release", "data.final"): ("32.start.21",),
    ("exception", "data.severity"): ("32.start.25",),
    ("exception", "data.type"): ("32.start.26", "32.criteria.3"),
    ("exception", "data.note"): ("32.start.27",),
}
"""By message and field: the clauses that say what stands there."""
for _answer in ("start", "finish", "release", "exception"):
    OF_FIELD[_answer, "id"] = (*START_FORM, "32.start.37")
    OF_FIELD[_answer, "type"] = ("32.start.14", "32.start.16")
    OF_FIELD[_answer, "data"] = ("32.start.12", "32.start.15", "32.start.18", *OF_DATA)

_OF_ALLOC: Final = ("27.alloc.9", "27.alloc.10", "27.impl.10", *ALLOC_LOST, *ANOTHER_JOB)
_OF_START: Final = (*START_FORM, "32.start.14", "32.start.16", "32.start.37", "32.impl.5")

OF_WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "resource.acquire": ("28.acquire.1", "6.request.4"),
    "sched-hello": ("27.hello.1", "27.hello.2", "27.hello.3"),
    "sched-ready": ("27.ready.1", "27.ready.3"),
    "kvs.commit": ("27.success.1", "27.alloc.12"),
    "SUCCESS": _OF_ALLOC,
    "DENY": (*_OF_ALLOC, "27.deny.6"),
    "CANCEL": _OF_ALLOC,
    "free": ("27.free.6", "27.free.7", "27.impl.11", "27.background.1"),
    "expiration": ("27.expiration.5", "27.expiration.9", ONCE),
    "raise": ("28.shrink.4",),
    "release of a node": ("28.release.1", "28.release.2", "28.release.10"),
    "exec-hello": ("32.hello.1", "32.hello.3"),
    "start": (*_OF_START, "32.start.17", "32.start.35"),
    "finish": (*_OF_START, "32.start.35"),
    "release": (*_OF_START, "32.start.20", "32.start.21", "32.start.36"),
    "exception": (*_OF_START, "32.criteria.3", "32.start.35"),
}
"""By message: the clauses that say that it comes, once, and of which kind it is."""

_TEXTS: Final = ("absent", "null", "wrong type", "empty")
_NO_START: Final = "it does not begin to serve: exercise says so, and ends with 1"
_IN_ANY_ORDER: Final = "an answer may come after what is said next"
_MORE_KEYS: Final = "a key that nobody knows breaks nothing"
EXCUSED: Final[dict[str, str]] = {
    "resource.acquire | whole | lost": _NO_START,
    "resource.acquire | whole | late": _NO_START,
    "resource.acquire | whole | to another peer": _NO_START,
    "sched-hello | whole | lost": _NO_START,
    "sched-hello | whole | late": _NO_START,
    "sched-hello | whole | to another peer": _NO_START,
    "sched-ready | whole | to another peer": _NO_START,
    "exec-hello | whole | lost": _NO_START,
    "exec-hello | whole | late": _NO_START,
    "exec-hello | whole | to another peer": _NO_START,
    "DENY | whole | late": _IN_ANY_ORDER,
    "CANCEL | whole | late": _IN_ANY_ORDER,
    "free | whole | late": _IN_ANY_ORDER,
    "free | whole | of an unknown type": _MORE_KEYS,
    "DENY | note | absent": "a note may be left out",
    "DENY | note | empty": "a note may be empty",
    "exception | data.note | absent": "a note may be left out",
    "exception | data.note | empty": "a note may be empty",
    "kvs.commit | ops | one twice": "what is stored twice is stored",
    "expiration | whole | late": _IN_ANY_ORDER,
    "resource.acquire | group | empty": _NO_START,
    f"kvs.commit | {_E}.starttime | absent": "a set without starttime is valid from any time on",
    f"kvs.commit | {_E}.starttime | off by one": "times may be rounded to seconds",
    "exception | whole | twice": "a job may have several exceptions",
    "expiration | whole | an error": "a new expiration may be refused",
    "raise | note | absent": "a note may be left out",
    "raise | note | empty": "a note may be empty",
    "release of a node | whole | late": _IN_ANY_ORDER,
    **dict.fromkeys(
        (
            *("kvs.commit | whole | no object", "kvs.commit | whole | to another peer"),
            *(f"kvs.commit | ops | {each}" for each in ("absent", "null", "wrong type")),
            *(f"kvs.commit | ops.0.0 | {each}" for each in _TEXTS),
            *(f"kvs.commit | ops.0.1 | {each}" for each in _TEXTS),
        ),
        "the kvs refuses it, and the program ends: exercise says so, and ends with 1",
    ),
}
"""By cell: why no clause is named."""


def is_own(
    name: str,
    named: set[str],
    of_whole: Mapping[str, Sequence[str]] = OF_WHOLE,
    of_field: Mapping[tuple[str, str], Sequence[str]] = OF_FIELD,
) -> bool:
    """Return whether one of the clauses is about the message, or the field, of a cell."""
    message, field, _ = name.split(" | ")
    own = of_whole.get(message, ()) if field == "whole" else of_field.get((message, field), ())
    return not named.isdisjoint(own)


def table_lines(table: Path = TABLE) -> Iterator[tuple[str, set[str]]]:
    """Yield each cell of the table with what is named in it."""
    for line in table.read_text(encoding="utf-8").splitlines():
        name, _, named = line.partition(" -> ")
        yield name, set(named.split(", "))
