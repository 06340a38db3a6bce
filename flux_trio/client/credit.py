"""The client's side of credit: limits how many responses of a stream are on their way.

The total credit of all streams of a connection is bounded. So the responses that wait for a client
that stands still fit into the instance's own queue, and a pause of a reader never drops a stream. A
response of a stream with credit has at most about 90 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Responses on their way, of all streams of a connection together. Later streams get one each.
CREDIT_TOTAL: Final = 128
CREDIT_STREAM_MAX: Final = 64  # of one stream: enough to keep the line full


class CreditPool:
    """The credit shared by the streams of one connection."""

    def __init__(self) -> None:
        self._out = 0

    @contextmanager
    def taken(self, wanted: bool) -> Iterator[int]:
        """Yield the credit of a new stream during the block; 0 if none is `wanted`.

        The credit is half of the remaining credit, but at least one response.
        """
        left = (CREDIT_TOTAL - self._out) // 2
        credit = max(1, min(CREDIT_STREAM_MAX, left)) if wanted else 0
        self._out += credit
        try:
            yield credit
        finally:
            self._out -= credit


class Granter:
    """Grants new credit for the responses that the reader took, half of the credit at a time."""

    def __init__(self, credit: int, grant: Callable[[int], None]) -> None:
        self._step = max(1, credit // 2)
        self._grant = grant
        self._taken = 0

    def count_taken(self) -> None:
        """Count one response that the reader has taken."""
        self._taken += 1
        if self._taken == self._step:
            self._taken = 0
            self._grant(self._step)
