"""The judge of a search: a monitor that is carried along each path."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.explore.remembered import digest
from flux_trio.faults.lives import LONG_TEXT, all_clauses
from flux_trio.judge import Monitor, Move, Standing, Violation, mover
from flux_trio.judge.rules import ALL_RULES

_KNOWN_MAX: Final = 200_000  # states of rules that are kept without their places


class Judge:
    """All clauses and invariants. `observe` is a Sink."""

    def __init__(self) -> None:
        self._monitor = Monitor(ALL_RULES, all_clauses(), is_simulated=True)
        self.observe = self._monitor.observe
        self.put_down = self._monitor.put_down
        self.take_up = self._monitor.take_up
        self._movers = [(slot, mover(type_)) for slot, type_ in self._monitor.types().items()]
        self._bare: dict[int, tuple[Any, int]] = {}

    @property
    def violations(self) -> list[Violation]:
        """What was broken on this path."""
        return [each for each in self._monitor.violations if each.clause != LONG_TEXT]

    def finish(self) -> list[Violation]:
        """The path ends at rest: return what was broken, and what is due now."""
        self._monitor.finish()
        return self.violations

    def states(self, standing: Standing) -> bytes:
        """Return a digest of the states of all rules, of whose records it has only which there are.

        The order of records is not in it: `docs/reference/explore.md` says what that may miss, and
        why the other parts of the judge that are left out decide nothing.
        """
        found = [
            (slot, frozenset([(key, self._hash_of(move, state)) for key, state in states]))
            for slot, move in self._movers
            if (states := standing.states[slot])
        ]
        return digest(repr((hash(standing.facts), hash(tuple(found)))).encode())

    def _hash_of(self, move: Move | None, state: Any) -> int:
        """Return the hash of a state with 1 for each place of a record."""
        found = self._bare.get(id(state))
        if found is not None and found[0] is state:
            return found[1]
        if len(self._bare) >= _KNOWN_MAX:
            self._bare.clear()
        number = hash(state if move is None else move(state, bool))
        self._bare[id(state)] = (state, number)
        return number
