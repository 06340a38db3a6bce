"""Mistakes from outside a job manager: its messages, what is named in which cell, and excuses.

`python -m tests.lab.outside_manager` plays all cells and writes what is named.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import trio

from flux_trio.editions import CLASSIC
from flux_trio.instance import Instance
from flux_trio.lab.exercise import MANAGER_ACTS, MANAGER_KIT, Driven
from flux_trio.lab.exercise.stage import ONCE
from flux_trio.messages import topics
from tests.lab import outside_clauses
from tests.lab.outside import Cell, Message, cells_of
from tests.lab.played_outside import LyingProcess, Played, acts_of, outcome_of, write_lines
from tests.lab.test_exercise_manager import DEADLINE_S, program
from tests.lab.test_exercise_mistakes import changed, exercised
from tests.support.refusals import take_refused

TABLE: Final = Path(__file__).with_name("outside_manager.txt")

ONE: Final = ("one job",)
MANY: Final = ("one job", "three times as many jobs as fit")
AGAIN: Final = ("the scheduler is loaded again while jobs run and wait",)
FAILS: Final = ("a request for resources is answered with an error",)
_HELD: Final = {"id": "id", "priority": "number", "userid": "number", "t_submit": "number"}
_OPS: Final = {"ops": "list", "ops.0.0": "text", "ops.0.1": "key", "ops.0.2": "text"}

MESSAGES: Final = (
    Message("alloc", topics.SCHED_ALLOC, False, _HELD | {"jobspec": "object"}, MANY),
    Message("free", topics.SCHED_FREE, False, {"id": "id"}, MANY),
    Message("cancel", topics.SCHED_CANCEL, False, {"id": "id"}, ("waiting jobs are canceled",)),
    Message(
        "prioritize",
        topics.SCHED_PRIORITIZE,
        False,
        {"jobs": "list", "jobs.0": "list", "jobs.0.0": "id", "jobs.0.1": "number"},
        ("priorities of waiting jobs change",),
    ),
    Message(
        "expiration",
        topics.SCHED_EXPIRATION,
        False,
        {"id": "id", "expiration": "number"},
        ("jobs that run get other time limits",),
    ),
    Message("hello", topics.SCHED_HELLO, True, _HELD, AGAIN),
    Message("ready", topics.SCHED_READY, True, {"count": "number"}, (*ONE, *FAILS)),
    Message(
        "start",
        ".start",
        False,
        {"id": "id", "userid": "number", "jobspec": "object", "reattach": "truth"},
        MANY,
    ),
    Message("exec-hello", topics.EXEC_HELLO, True, {}, ONE),
    Message("kvs.commit", topics.KVS_COMMIT, False, _OPS, ONE),
)
CELLS: Final = {each.name: each for each in cells_of(MESSAGES)}


OF_FIELD: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("alloc", "id"): ("27.alloc.2", "27.ready.6", "27.alloc.1", "27.impl.4", "27.impl.8"),
    ("alloc", "priority"): ("27.alloc.3",),
    ("alloc", "userid"): ("27.alloc.4",),
    ("alloc", "jobspec"): ("27.alloc.5", "33.defaults.9", "25.top.2"),
    ("free", "id"): ("27.free.2", "27.impl.6", "27.free.1"),
    ("cancel", "id"): ("27.cancel.2", "27.exceptions.2"),
    ("prioritize", "jobs"): ("27.prioritize.2", "27.prioritize.1"),
    ("prioritize", "jobs.0"): ("27.prioritize.3", "27.prioritize.1"),
    ("prioritize", "jobs.0.0"): ("27.prioritize.4", "27.prioritize.3", "27.prioritize.1"),
    ("prioritize", "jobs.0.1"): ("27.prioritize.5", "27.prioritize.3", "27.prioritize.1"),
    ("expiration", "id"): ("27.expiration.2", "27.expiration.1"),
    ("expiration", "expiration"): ("27.expiration.3", "27.expiration.1"),
    ("hello", "id"): ("27.hello.7", "27.hello.4", "27.hello.5"),
    ("hello", "priority"): ("27.hello.8", "27.criteria.6"),
    ("hello", "userid"): ("27.hello.9",),
    ("hello", "t_submit"): ("27.hello.10", "27.hello.11", "27.criteria.6"),
    ("ready", "count"): ("27.ready.12",),
    ("start", "id"): ("32.start.5", "32.start.1", "32.impl.2"),
    ("start", "userid"): ("32.start.6",),
    ("start", "jobspec"): ("32.start.7",),
    ("start", "reattach"): ("32.start.8", "32.start.9"),
}
"""By message and field: the clauses that say what stands there."""
_STORES: Final = ("21.criteria.7", "21.events.3", "21.states.1", "21.criteria.6", "27.success.6")
OF_WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "alloc": ("27.ready.6", "27.alloc.1", "27.alloc.2", "27.alloc.3"),
    "free": ("27.free.1", "27.free.2"),
    "cancel": ("27.cancel.1", "27.exceptions.2"),
    "prioritize": ("27.prioritize.1",),
    "expiration": ("27.expiration.1",),
    "hello": ("27.hello.4", "27.hello.5", "27.hello.6", "27.hello.7"),
    "ready": ("27.ready.12", "27.ready.13", ONCE),
    "start": ("32.start.1", "32.start.4", "32.start.5"),
    "exec-hello": ("32.hello.7", "32.hello.5", "32.start.2"),
}
"""By message: the clauses that say that it comes, once, and of which kind it is."""


_NO_READY: Final = "our scheduler never serves: exercise says so, and ends with 1"
_MORE_KEYS: Final = "a key that nobody knows breaks nothing"
_NOT_STORED: Final = "nothing is stored, and no job goes on: exercise says so, and ends with 1"
_NO_KEY_OF_AN_RFC: Final = "no RFC has the key in this request"
_TEXTS: Final = ("absent", "null", "wrong type", "empty")
EXCUSED: Final[dict[str, str]] = {
    **{
        f"alloc | t_submit | {each}": _NO_KEY_OF_AN_RFC
        for each in (*_TEXTS[:3], "stale", "off by one", "negative", "huge")
    },
    **{f"ready | whole | {each}": _NO_READY for each in ("lost", "late", "to another peer")},
    **{f"ready | whole | {each}": _MORE_KEYS for each in ("about nobody", "of an unknown type")},
    **{
        f"kvs.commit | {each}": _NOT_STORED
        for each in (
            *(f"whole | {each}" for each in ("lost", "no object", "late", "to another peer")),
            *(f"ops | {each}" for each in _TEXTS),
            "ops.0.2 | wrong type",
        )
    },
    "hello | whole | of an unknown type": _MORE_KEYS,
    "exec-hello | whole | late": "it may come after what is said next",
    "start | jobspec | empty": "an empty jobspec object is acceptable (RFC 32, Start Request)",
    "prioritize | whole | late": "it may come after what is said next",
    "prioritize | jobs | one twice": "what is told twice is told",
    "start | whole | not streaming": "answers belong to a start by the job's id, whatever its flag",
}
"""By cell: why no clause is named."""


def is_own(name: str, named: set[str]) -> bool:
    """Return whether one of the clauses is about the message, or the field, of a cell."""
    if name.startswith("kvs.commit | "):
        return not named.isdisjoint(_STORES)
    return outside_clauses.is_own(name, named, OF_WHOLE, OF_FIELD)


def played(cell: Cell) -> Played:
    """Play the acts that have the message of a cell."""
    acts = acts_of(cell, MANAGER_ACTS)
    lie = cell.lie()

    def lying(module: object, nursery: trio.Nursery, instance: Instance) -> Driven:
        return LyingProcess(cell, lie, module, nursery, instance)

    module = changed(program(CLASSIC), "", "")
    try:
        return outcome_of(
            lie, lambda: exercised(MANAGER_KIT, module, acts, deadline_s=DEADLINE_S, program=lying)
        )
    finally:
        take_refused()  # the judge's tables refuse what a wrong job manager does


if __name__ == "__main__":
    write_lines(CELLS.values(), played, sys.argv[1:])
