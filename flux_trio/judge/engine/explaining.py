"""Which violations may explain what breaks no clause itself (`UNEXPLAINED`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from flux_trio.judge.engine.causes import PLACES_MAX, Violation
from flux_trio.judge.engine.view import Place


class Explanations:
    """The records by which clauses were broken; of a receipt, that of the send."""

    def __init__(self) -> None:
        self._places = deque[Place](maxlen=PLACES_MAX)  # in a search, places are only compared

    def note(self, violations: Iterable[Violation]) -> None:
        """Remember what was broken."""
        for each in violations:
            self._places.append(each.record.ref or each.record.n)

    def explains(self, found: Violation) -> bool:
        """Whether one of them is in a record that something unexplained points to."""
        return any(n in self._places for n in found.because)

    def state(self) -> tuple[Place, ...]:
        """Return the state, as `take_up` takes it."""
        return tuple(self._places)

    def take_up(self, state: Iterable[Place]) -> None:
        """Go on from a state."""
        self._places = deque(state, PLACES_MAX)
