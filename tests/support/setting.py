"""A clock that a test sets, over Trio's: the wall's time and what passes."""

from __future__ import annotations

import trio

from flux_trio.clock import Clock
from tests.support.failing import EPOCH


class SettableClock(Clock):
    """Shows `EPOCH` at first. Trio's clock stands still while the machine sleeps."""

    def __init__(self) -> None:
        super().__init__(lambda: EPOCH + self._trio() + self.ahead, self._trio)
        self._began = trio.current_time()
        self._slept = 0.0
        self.ahead = 0.0

    def _trio(self) -> float:
        return trio.current_time() - self._began + self._slept

    def step(self, by: float) -> None:
        """Somebody sets the wall clock."""
        self.ahead += by

    def sleep(self, seconds: float) -> None:
        """The machine sleeps."""
        self._slept += seconds
