"""Searches that note what they meet, and one that keeps the order of records.

`Search` takes of the records that the states of rules refer to only which there are. `InOrder`
keeps their order among each other, what the parties have taken up by when, and the order of the
messages on their way: all that a rule may read, but for the numbers of the records. What one way to
a state may be judged by and another one may not, makes two states of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from flux_trio.explore import Search
from flux_trio.explore.identity import identity
from flux_trio.explore.small_world import WorldState
from flux_trio.faults import Plan
from flux_trio.judge import Monitor, Standing
from flux_trio.judge.engine.knowing import Known
from flux_trio.judge.engine.place import Place, renumbered
from flux_trio.judge.rules import ALL_RULES

_TYPES: Final = Monitor(ALL_RULES, {}).types()


class Noting(Search):
    """A search with the states of the rules that notes the states of the cores that it meets."""

    def __init__(self, plan: Plan) -> None:
        self.of_cores: set[bytes] = set()
        super().__init__(plan, with_rules=True)

    def _is_new(self, state: WorldState) -> bool:
        self.of_cores.add(identity(state, self._world.machines))
        return super()._is_new(state)


class InOrder(Noting):
    """A search that keeps the order of the records that the states of rules refer to."""

    def __init__(self, plan: Plan) -> None:
        self._met: set[Hashable] = set()
        super().__init__(plan)

    def _is_new(self, state: WorldState) -> bool:
        super()._is_new(state)
        standing = self._judge.put_down()
        found = (identity(state, self._world.machines), in_order(standing, state))
        is_new = found not in self._met
        self._met.add(found)
        return is_new


def in_order(standing: Standing, world: WorldState) -> Hashable:
    """Return all that rules may read, with the places of records as their ranks among all."""
    held = [
        (slot, key, state) for slot, states in enumerate(standing.states) for key, state in states
    ]
    links = [link for party in world.parties for link in party.station.links]
    on_their_way = tuple([n for _, waiting in links for n, _ in waiting])
    typed = [(_TYPES.get(slot), state) for slot, _, state in held]
    typed += [(Known, standing.known), (tuple[Place, ...], on_their_way)]
    *states, known, sent = renumbered(typed)
    named = frozenset((slot, key, each) for (slot, key, _), each in zip(held, states, strict=True))
    return hash((standing.facts, named, known, sent, standing.left, standing.first))
