"""The judge of a search: a monitor that is taken along each path of the search."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from flux_trio.judge import Monitor, MonitorState, Violation, load_clauses
from flux_trio.judge.engine.causes import Causes
from flux_trio.judge.engine.rule import Rule
from flux_trio.judge.engine.view import View
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab.properties.world_judge import LONG_TEXT
from flux_trio.trace import Record
from tests.explore.search.numbered import digest
from tests.explore.search.order import Order
from tests.explore.search.placed import Placed, Spot, number_of
from tests.explore.search.settling import (
    NOTHING,
    KnowledgeRead,
    Numbering,
    Numbers,
    Origins,
    Places,
    Settled,
    Settler,
    numbers_of,
    settle_known,
)
from tests.explore.search.small_world import MORTAL, PartyState, WorldState


class Stood(NamedTuple):
    """The state of a judge as values, at a state of the world."""

    standing: MonitorState
    slots: tuple[Settled, ...] = ()


def rules_of_clauses() -> list[Rule]:
    """Return the rules of clauses and invariants; what others report is no violation."""
    return [rule for rule in ALL_RULES if rule.is_of_clause]


class Judge:
    """Judges all clauses and invariants along a path. `observe` is a sink of the world's trace."""

    def __init__(self) -> None:
        self._monitor = self._make()
        self.observe: Callable[[Record], object] = self._monitor.observe

    def _make(self) -> Monitor:
        return Monitor(rules_of_clauses(), load_clauses(), is_simulated=True)

    @property
    def violations(self) -> list[Violation]:
        """The violations on this path so far."""
        return [each for each in self._monitor.violations if each.clause != LONG_TEXT]

    def finish(self) -> list[Violation]:
        """End the path, whose world is at rest; return the violations, and the actions that are due
        and not done."""
        self._monitor.finish()
        return self.violations

    def put_down(self, world: WorldState) -> tuple[Stood, bytes]:
        """Return the state of the judge, and a digest of what in it decides later verdicts; here
        the digest is empty."""
        return Stood(self._monitor.put_down()), b""

    def take_up(self, stood: Stood, world: WorldState) -> None:
        """Replace the state of the judge by one that `put_down` has returned for this state of the
        world."""
        self._monitor.take_up(stood.standing)


class JudgeInOrder(Judge):
    """A judge whose states have digests, which include the order of all records that a rule may
    compare."""

    def __init__(self, order: Order) -> None:
        self.order = order
        super().__init__()
        self.observe = self._observe
        count: Counter[str] = Counter()
        self._settlers: dict[int, Settler] = {}
        for each, slot in self._monitor.kept():
            name = each.name
            count[name] += 1
            number = f" ({count[name]})" if count[name] > 1 else ""
            self._settlers[slot] = Settler(name + number, each.type, order)
        self._slots = (NOTHING,) * len(self._monitor.slots)
        self._rests = Numbering()
        self._last = 0

    def _make(self) -> Monitor:
        return _MonitorInOrder(self.order)

    # --- the places of records

    def _observe(self, record: Record) -> None:
        ref: Any = record.ref
        if ref:
            ref = Placed(ref, None if ref > self._last else self._link_of(record.party, ref))
        self._monitor.observe(msgspec.structs.replace(record, n=Placed(record.n, None), ref=ref))

    def _link_of(self, party: str, ref: int) -> Spot:
        """Return the spot of the message sent at `ref`, which `party` takes up or loses.

        A party loses what waited for it. A request that waits at a module which ends is lost by its
        sender, if it wants no response. An event waits at several parties, so `party` comes first.
        """
        waiting = [each for each in self._world.parties if each.name == party]
        waiting += [each for each in self._world.parties if each.name != party]
        for receiver in waiting:
            for sender, messages in receiver.station.links:
                if any(n == ref for n, _ in messages):
                    return self._spot_of_link(sender, receiver.name)
        raise AssertionError(f"expected a message on its way, sent at {ref}; {party} has it")

    def _spot_of_link(self, sender: str, receiver: str) -> Spot:
        return self.order.spot(f"link {sender}>{receiver}", ())

    # --- put down and taken up

    def take_up(self, stood: Stood, world: WorldState) -> None:
        super().take_up(stood, world)
        self._world = world
        self._slots = stood.slots
        last = stood.standing.last
        self._last = 0 if last is None else number_of(last.n)

    def put_down(self, world: WorldState) -> tuple[Stood, bytes]:
        standing = self._monitor.put_down()
        origins: Origins = {}
        slots = self._settled(standing, origins)
        known = settle_known(standing.known, self.order, origins)
        links = self._links_of(world)
        if _has_moved(origins):
            places = self._old(links) | known.places
            for settled in slots:
                places |= settled.places
            self.order.moved({**places, **origins})
        numbers = links | numbers_of(known.places)
        for settled in slots:
            numbers |= settled.numbers
        parties = tuple([party.name for party in world.parties])
        rest = self._rests.of((standing.facts, known.shape, parties, inboxes(world)))
        shape = array("Q", [rest, *[each.shape for each in slots]])
        signs = array("b", self.order.signs(numbers))
        states = (standing.states[0], *[settled.held for settled in slots[1:]])
        stood = Stood(standing._replace(states=states, known=known.known), slots)
        return stood, digest(shape.tobytes() + signs.tobytes())

    def _settled(self, standing: MonitorState, origins: Origins) -> tuple[Settled, ...]:
        return tuple(
            [
                self._settlers[slot].settle(held, before, origins) if held and slot else NOTHING
                for slot, (held, before) in enumerate(
                    zip(standing.states, self._slots, strict=True)
                )
            ]
        )

    def _links_of(self, world: WorldState) -> Numbers:
        """Return by link where the messages on their way were sent."""
        return {
            self._spot_of_link(sender, party.name): tuple([n for n, _ in waiting])
            for party in world.parties
            for sender, waiting in party.station.links
        }

    def _old(self, links: Numbers) -> Places:
        """Return the places of links that were there before the transition."""
        return {
            spot: tuple([Placed(n, spot) for n in waiting if n <= self._last])
            for spot, waiting in links.items()
        }


def _has_moved(origins: Origins) -> bool:
    return any(
        place.spot is not None and place.spot is not spot
        for spot, places in origins.items()
        for place in places
    )


def inboxes(world: WorldState) -> tuple[tuple[str, ...], ...]:
    """Return for the modules that may end the senders of the messages that wait there, in their
    order.

    When a module ends, the broker answers for it in this order.
    """
    return tuple(
        [
            _senders(party)
            for party in world.parties
            if party.name in MORTAL and len(party.station.links) > 1
        ]
    )


def _senders(party: PartyState) -> tuple[str, ...]:
    """Return who has sent each message that waits at a party, for the oldest message first."""
    places = sorted([(n, sender) for sender, waiting in party.station.links for n, _ in waiting])
    return tuple([sender for _, sender in places])


class _MonitorInOrder(Monitor):
    """A monitor that keeps every state as it is, and notes what is read of the parties."""

    def __init__(self, order: Order) -> None:
        super().__init__(rules_of_clauses(), load_clauses(), is_simulated=True)
        self._known = KnowledgeRead(order)
        self._causes = _CausesByNumber(load_clauses())

    def _no_states(self, _of: View) -> dict[Any, Any]:
        return {}


class _CausesByNumber(Causes):
    """Takes the places in violations as numbers: the search ends with them."""

    def of_record(self, found: list[Violation]) -> list[Violation]:
        return super().of_record([_by_number(each) for each in found])

    def of_debts(self, found: Iterable[Violation]) -> list[Violation]:
        return super().of_debts([_by_number(each) for each in found])


def _by_number(violation: Violation) -> Violation:
    record = violation.record
    record = msgspec.structs.replace(record, n=number_of(record.n), ref=number_of(record.ref))
    because = tuple(map(number_of, violation.because))
    return msgspec.structs.replace(violation, record=record, because=because)
