"""Traits of messages that the rules of several RFCs share (`Trait`)."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.selector import LOOKUP_TOPICS, errnum, payload, received, sent
from flux_trio.judge.engine.view import Mark, Seen, Trait, Value
from flux_trio.judge.views.kvs import written_names
from flux_trio.messages import topics
from flux_trio.trace import Record

# --- the type of a response


_START: Final = "<exec>.start"
_TYPES: Final = frozenset((0, 1, 2, 3, "start", "release", "exception", "finish"))
"""The types of responses to sched.alloc and <exec>.start."""


def _type_of(record: Record, _seen: Seen) -> Value:
    found = None if errnum(record) else payload(record).get("type")
    return found if type(found) in (int, str) and found in _TYPES else None


TYPE: Final = Trait(
    "type",
    (
        *sent("response", topics.SCHED_ALLOC, _START),
        *received("response", topics.SCHED_ALLOC, _START),
    ),
    _type_of,
)


UNREADABLE: Final = Mark(TYPE, lambda found: found is None)
"""The selectors of responses without a known type, such as errors."""


def says(type_: int | str) -> Mark:
    """Return the selectors of successful responses of this type."""
    return Mark(TYPE, lambda found: found == type_)


# --- messages with an R

_WITH_JOB: Final = (
    *sent("response", topics.SCHED_ALLOC),
    *sent("request", _START, topics.SCHED_FREE),
    *received("request", topics.SCHED_FREE),
)


def _has_r(record: Record, _seen: Seen) -> Value:
    return "R" in payload(record)


CARRYING: Final = Trait("carries R", _WITH_JOB, _has_r)
CARRIES_R: Final = Mark(CARRYING, bool)
"""The selectors of messages about a job that have its R, as in the current edition."""


# --- the keys of a commit


def _written(record: Record, _seen: Seen) -> Value:
    """Return the last parts of the keys, and whether a key is removed."""
    found = written_names(record)
    return tuple([name for name in _WRITTEN if name in found])


_UNLINK: Final = "unlink"
_WRITTEN: Final = ("R", "eventlog", "jobspec", _UNLINK)
WRITES: Final = Trait("writes", tuple(sent("request", *topics.COMMITS)), _written)


def _writing(name: str) -> Mark:
    return Mark(WRITES, lambda found: name in found)


WITH_R: Final = _writing("R")
WITH_EVENTS: Final = _writing("eventlog")
WITH_JOBSPEC: Final = _writing("jobspec")
WITH_UNLINK: Final = _writing(_UNLINK)
"""These four mark commits that write or remove an R, events, or a jobspec, and commits that remove
any key."""


# --- lookups of the scheduler


LOOKUP: Final = Trait(
    "lookup",
    tuple(received("response", *LOOKUP_TOPICS)),
    lambda record, seen: record.party == seen.facts.scheduler and not errnum(record),
)
BY_SCHEDULER: Final = Mark(LOOKUP, bool)
"""The selectors of responses to the scheduler's lookups in the KVS."""
