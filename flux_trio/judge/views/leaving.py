"""Which modules were asked to leave: they answer no more than that they are going."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.selector import noted, sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

SHUTDOWN: Final = "*.shutdown"


def _module(record: Record) -> str:
    if record.message is None:
        return str((record.data or {}).get("module"))
    is_first = getattr(record.message, "topic", "") in topics.FIRST_REQUESTS
    return record.party if is_first else record.peer


def _fold(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    topic = getattr(record.message, "topic", "")
    return record.n if topic and topic not in topics.FIRST_REQUESTS else None


SHUTTING_DOWN: Final = view(
    "shutting down",
    sent("request", SHUTDOWN, *topics.FIRST_REQUESTS),
    noted(Kind.MODULE),
    key=_module,
    fold=_fold,
)
"""By module: the record at which it was asked to leave, until it comes again."""


def when_leaving(record: Record, seen: Seen) -> str:
    """Return words for a text about an answer: whether its sender had been asked to leave."""
    return " after it was asked to leave" if seen.at(SHUTTING_DOWN, record.party) else ""
