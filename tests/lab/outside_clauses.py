"""Which clauses a cell of `outside` is about, and which cells are excused, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("outside.txt")

ALLOC_LOST: Final = ("27.alloc.12", "27.alloccancel.1", "27.cancel.5", "27.deny.1")
ANOTHER_JOB: Final = ("27.background.1", "27.alloc.11", "27.success.1", "27.success.8")
START_FORM: Final = ("32.impl.3", "32.start.3", "32.start.12", "32.start.13")

_R: Final = "ops.0.2"
_E: Final = f"{_R}.execution"

OF_FIELD: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("resource.acquire", "group"): ("28.acquire.1",),
    ("sched-ready", "mode"): ("27.ready.4", "27.ready.5"),
    ("kvs.commit", "ops"): ("27.success.1",),
    ("kvs.commit", "ops.0.0"): ("27.success.1",),
    ("kvs.commit", "ops.0.1"): ("27.success.1", "16.jobs.1"),
    ("kvs.commit", _R): ("27.success.1", "20.overview.1", "20.format.1"),
    ("kvs.commit", f"{_R}.version"): ("20.version.1", "20.format.2"),
    ("kvs.commit", _E): ("20.execution.1", "20.format.3", "20.format.1"),
    ("kvs.commit", f"{_E}.R_lite"): ("20.rlite.1", "25.resources.7"),
    ("kvs.commit", f"{_E}.R_lite.0.rank"): ("20.rlite.2", "25.resources.7"),
    ("kvs.commit", f"{_E}.R_lite.0.children"): ("20.rlite.3", "25.resources.7"),
    ("kvs.commit", f"{_E}.R_lite.0.children.core"): ("20.rlite.4", "25.resources.7"),
    ("kvs.commit", f"{_E}.nodelist"): ("20.nodelist.1", "20.nodelist.3"),
    ("kvs.commit", f"{_E}.nodelist.0"): ("20.nodelist.1", "20.nodelist.2", "20.nodelist.3"),
    ("kvs.commit", f"{_E}.nslots"): ("20.nslots.1", "20.nslots.3", "20.nslots.4"),
    ("kvs.commit", f"{_E}.starttime"): ("20.starttime.1", "20.starttime.3", "14.attributes.2"),
    ("kvs.commit", f"{_E}.expiration"): ("20.expiration.1", "20.expiration.4", "14.attributes.2"),
    ("SUCCESS", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("SUCCESS", "type"): ("27.alloc.10", "27.alloc.11"),
    ("DENY", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("DENY", "type"): ("27.alloc.10", "27.alloc.11", "27.alloccancel.1"),
    ("DENY", "note"): ("27.deny.2",),
    ("CANCEL", "id"): ("27.alloc.9", "27.impl.3", *ANOTHER_JOB),
    ("CANCEL", "type"): ("27.alloc.10", "27.alloc.11"),
    ("free", "id"): ("27.free.7", "27.impl.4", "27.background.1"),
    ("raise", "id"): ("28.shrink.4",),
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
    OF_FIELD[_answer, "data"] = ("32.start.12", "32.start.15", "32.start.18")

OF_WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "resource.acquire": ("28.acquire.1", "28.acquire.2", "6.request.1", "27.ready.1"),
    "sched-hello": ("27.hello.1", "27.hello.2", "27.hello.3", "27.ready.1"),
    "sched-ready": ("27.ready.1", "27.ready.3"),
    "kvs.commit": ("27.success.1", "27.alloc.12"),
    "SUCCESS": (*ALLOC_LOST, *ANOTHER_JOB, "27.alloc.9", "27.alloc.10", "27.impl.6"),
    "DENY": (*ALLOC_LOST, *ANOTHER_JOB, "27.alloc.9", "27.alloc.10", "27.impl.6"),
    "CANCEL": (*ALLOC_LOST, *ANOTHER_JOB, "27.alloc.9", "27.alloc.10", "27.impl.6"),
    "free": ("27.free.6", "27.free.7", "27.impl.7", "27.background.1"),
    "expiration": ("27.expiration.5", "27.expiration.9"),
    "raise": ("28.shrink.4",),
    "release of a node": ("28.release.1", "28.release.2", "28.release.10"),
    "exec-hello": ("32.hello.1", "32.hello.3"),
    "start": (*START_FORM, "32.start.14", "32.start.16", "32.start.17", "32.start.35", "32.impl.5"),
    "finish": (*START_FORM, "32.start.14", "32.start.16", "32.start.35", "32.impl.5"),
    "release": (*START_FORM, "32.start.14", "32.start.16", "32.start.36", "32.impl.5")
    + ("32.start.20", "32.start.21", "32.start.37"),
    "exception": (*START_FORM, "32.start.14", "32.start.16", "32.criteria.3", "32.impl.5")
    + ("32.start.35",),
}
"""By message: the clauses that say that it comes, once, and of which kind it is."""

EXCUSED: Final[dict[str, str]] = {}
"""By cell: why nothing is named."""


def own_clauses(message: str, field: str, operator: str) -> set[str]:
    """Return the clauses that a cell is about."""
    del operator
    return set(OF_FIELD.get((message, field), ()) if field else OF_WHOLE.get(message, ()))


def table_lines() -> Iterator[tuple[str, set[str]]]:
    """Yield each cell of the table with what is named in it."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        name, _, named = line.partition(" -> ")
        yield name, set(named.split(", "))
