"""Keeps what instances trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flux_trio.instance import more_sinks
from flux_trio.trace import Record


@contextmanager
def recorded() -> Iterator[list[Record]]:
    """All records of the instances that are opened in the block."""
    records: list[Record] = []
    token = more_sinks.set((*more_sinks.get(), lambda: records.append))
    try:
        yield records
    finally:
        more_sinks.reset(token)
