"""Searches that note what they meet, and one that keeps the whole order of records.

`Search` keeps the order of the records that rules compare. `InOrder` keeps that of all records that
the states of rules refer to, what the parties have taken up by when, and the order of the messages
on their way: all that a rule may read, but for the numbers of the records.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from flux_trio.judge import Monitor, MonitorState
from flux_trio.judge.engine.knowing import Known
from flux_trio.judge.engine.view import Place
from flux_trio.lab import Plan
from tests.explore.search import Search
from tests.explore.search.identity import identity
from tests.explore.search.judging import Stood, rules_of_clauses
from tests.explore.search.placed import number_of
from tests.explore.search.places import mover, renumbered
from tests.explore.search.small_world import WorldState

_TYPES: Final = {slot: each.type for each, slot in Monitor(rules_of_clauses(), {}).kept()}


class Noting(Search):
    """A search that also notes each state of the cores that it meets, with the states of the
    rules."""

    def __init__(self, plan: Plan) -> None:
        self.of_cores: set[bytes] = set()
        super().__init__(plan, with_rules=True)

    def _met_first(self, state: WorldState) -> Stood | None:
        self.of_cores.add(identity(state, self._world.machines))
        return super()._met_first(state)


class InOrder(Noting):
    """A search in which two states also differ if the order of any records differs to which states
    of rules refer."""

    def __init__(self, plan: Plan) -> None:
        self._met: set[Hashable] = set()
        super().__init__(plan)

    def _met_first(self, state: WorldState) -> Stood | None:
        name = identity(state, self._world.machines)
        self.of_cores.add(name)
        stood, _ = self._judge.put_down(state)
        found = (name, in_order(stood.standing, state))
        is_new = found not in self._met
        self._met.add(found)
        return stood if is_new else None

    def _forget(self) -> None:
        self._met.clear()
        super()._forget()


def in_order(standing: MonitorState, world: WorldState) -> Hashable:
    """Return everything that rules may read in a state, with each record replaced by its rank among
    all."""
    held = [
        (slot, key, state) for slot, states in enumerate(standing.states) for key, state in states
    ]
    links = [link for party in world.parties for link in party.station.links]
    on_their_way = tuple([n for _, waiting in links for n, _ in waiting])
    typed = [(_TYPES.get(slot), state) for slot, _, state in held]
    typed += [(Known, standing.known), (tuple[Place, ...], on_their_way)]
    *states, known, sent = renumbered([(type_, _plain(type_, state)) for type_, state in typed])
    named = frozenset((slot, key, each) for (slot, key, _), each in zip(held, states, strict=True))
    return hash((standing.facts, named, known, sent, standing.left, standing.first))


def _plain(type_: Any, state: Any) -> Any:
    """Return a state with numbers in place of places that note what they are compared with."""
    move = mover(type_)
    return state if move is None else move(state, number_of)
