"""Which part of the order of earlier records belongs to a state of a search.

The judge's views keep numbers of records (places), and a rule may compare two of them. Two states
in which such a comparison gives different results must not be taken for one; any other difference
in the order of records does not count. A spot is a field of a view in which places stand: see
`placed`.

`Order` has the pairs of spots whose places are compared. It learns a pair when a rule compares two
places that stand there, or when a place moves to a spot where it is compared. What was explored
before may have taken two states for one that differ in this, so the search has to begin again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from tests.explore.search.placed import Placed, Spot

ALL: Final = "all"
"""Places of the two spots are compared, whatever the keys of their states are."""
SAME: Final = "same"
"""Places of the two spots are compared if their states have the same key."""

Present = Mapping[Spot, Sequence[int]]
"""By spot: the places that stand there, in order."""


class Order:
    """What a search has learned of the rules: which spots they compare with each other, and what
    they read of the messages that parties have surely handled."""

    def __init__(
        self, pairs: Mapping[tuple[str, str], str] | None = None, parts: Iterable[str] = ()
    ) -> None:
        self.pairs = dict(pairs or {})
        """By the names of two spots: whether their places are compared always (ALL) or for the same
        key (SAME)."""
        self.parts = set(parts)
        """Which parts of `knowing`, the messages that parties have surely handled, rules read."""
        self.nlearned = 0
        """How many pairs and parts were learned."""
        self._spots: dict[tuple[str, Hashable], Spot] = {}
        self._of_name: dict[str, list[Spot]] = {}
        self._met: dict[frozenset[Spot], list[tuple[Spot, Spot]]] = {}

    def spot(self, name: str, key: Hashable) -> Spot:
        """Return the spot with this name and key."""
        found = self._spots.get((name, key))
        if found is None:
            found = Spot(name, key, len(self._spots), self.note)
            self._spots[name, key] = found
            self._of_name.setdefault(name, []).append(found)
            for pair in self.pairs:
                if name in pair:
                    self._join(pair)
        return found

    # --- learning

    def note(self, one: Spot, other: Spot) -> None:
        """Learn that rules compare the places of these two spots, if that is not known."""
        if other in one.others:
            return
        pair = min((one.name, other.name), (other.name, one.name))
        is_first = pair not in self.pairs
        self.pairs[pair] = SAME if is_first and one.key == other.key else ALL
        self.nlearned += 1
        self._join(pair)

    def read(self, part: str) -> None:
        """Learn that a rule reads this part of `knowing`, if that is not known."""
        if part not in self.parts:
            self.parts.add(part)
            self.nlearned += 1

    def moved(self, now: Mapping[Spot, Sequence[Placed]]) -> None:
        """Learn from a transition in which places have moved to other spots.

        If two places are compared where they stand now, their order must have counted where they
        stood before, too. `now` has by spot the places that stand there now, each as it stood
        before.
        """
        for spot, places in now.items():
            for place in places:
                if place.spot is not None and place.spot is not spot:
                    for other in tuple(spot.others):
                        for each in now.get(other, ()):
                            if each.spot is not None and each is not place:
                                self.note(place.spot, each.spot)

    def _join(self, pair: tuple[str, str]) -> None:
        """Tell the spots of these names of each other."""
        is_all = self.pairs[pair] == ALL
        for one in self._of_name.get(pair[0], ()):
            for other in self._of_name.get(pair[1], ()):
                if is_all or one.key == other.key:
                    one.others.add(other)
                    other.others.add(one)
        self._met.clear()

    # --- the order of a state

    def signs(self, present: Present) -> tuple[int, ...]:
        """Return for each two places that may be compared which is older: -1 if the first is, 1 if
        the second is, 0 for the same record.
        """
        spots = frozenset([spot for spot in present if spot.others])
        pairs = self._met.get(spots)
        if pairs is None:
            pairs = self._met[spots] = _pairs_of(spots)
        return tuple(
            [
                (a > b) - (a < b)
                for one, other in pairs
                for a in present[one]
                for b in present[other]
            ]
        )


def _pairs_of(spots: frozenset[Spot]) -> list[tuple[Spot, Spot]]:
    return [
        (one, other)
        for one in sorted(spots, key=_number_of)
        for other in sorted(one.others & spots, key=_number_of)
        if one.number <= other.number
    ]


def _number_of(spot: Spot) -> int:
    return spot.number
