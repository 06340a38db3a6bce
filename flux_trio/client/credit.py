"""The client's side of credit: how many responses of a stream may be on their way to its reader.

The credit of all streams of a connection together is bounded, so that what waits for a client that
stands still stays below the instance's own bound, and no stream is ever dropped for its reader's
pause. A response of a stream with credit has at most about 90 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Responses on their way, of all streams of a connection together. Each further stream gets one.
CREDIT_TOTAL: Final = 128
CREDIT_STREAM_MAX: Final = 64  # of one stream: enough to keep the line full


class CreditPool:
    """What the streams of one connection share."""

    def __init__(self) -> None:
        self._out = 0

    @contextmanager
    def taken(self, wanted: bool) -> Iterator[int]:
        """The credit of a new stream for as long as it is open; 0 if it has none.

        It is half of what is left, and at least one response.
        """
        left = (CREDIT_TOTAL - self._out) // 2
        credit = max(1, min(CREDIT_STREAM_MAX, left)) if wanted else 0
        self._out += credit
        try:
            yield credit
        finally:
            self._out -= credit


class Granter:
    """Grants again what its reader has taken, half of the stream's credit at a time."""

    def __init__(self, credit: int, grant: Callable[[int], None]) -> None:
        self._step = max(1, credit // 2)
        self._grant = grant
        self._taken = 0

    def took(self) -> None:
        """The reader has taken one response."""
        self._taken += 1
        if self._taken == self._step:
            self._taken = 0
            self._grant(self._step)
