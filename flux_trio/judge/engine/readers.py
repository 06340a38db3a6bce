"""Which rules and views read a record: found once for each kind of record.

Records with the same kind, message type, topic and trait values are of one kind, and the same rules
and views read them. That follows only from the selectors that these declare. Monitors with the same
rules share what was found, so a process finds it once.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from flux_trio.judge.engine import parties
from flux_trio.judge.engine.rule import Ask, Rule
from flux_trio.judge.engine.selector import ANY_TOPIC, EVENT, HOOK, OWN, name_of
from flux_trio.judge.engine.view import (
    Fold,
    KeyOf,
    Parts,
    Seen,
    Selector,
    Trait,
    Value,
    Values,
    View,
)
from flux_trio.messages import Control, Event, Request, Response, service_of
from flux_trio.trace import Record

KINDS_MAX: Final = 4096  # cached kinds of records; peers may send any number of topics
RULE_SETS_MAX: Final = 16  # rule sets with cached readers; usually there is one
ALWAYS: Final = 0
"""The number of a slot that is never empty, for rules and views that read a kind of record at all
times."""

_TYPES: Final[dict[type, str]] = {Request: "request", Response: "response", Event: "event"}


class RuleReader(NamedTuple):
    """A rule that reads a kind of record; it is skipped while the slot `live` is empty."""

    live: int
    rule: Rule
    ask: Ask


class Folded(NamedTuple):
    """A view that reads a kind of record, with its `slot`; skipped while `live` is empty.

    It has `parts` for records with several keys, else `key` for those with one.
    """

    live: int
    slot: int
    fold: Fold
    parts: Parts | None
    key: KeyOf | None


@dataclass(frozen=True, slots=True, eq=False)
class Readers:
    """The rules and views that read one kind of record, and what such records may change.

    Each view must see the states of the others before the record: a view comes after the views that
    read it, and those with parts are stored last.
    """

    rules: tuple[RuleReader, ...]
    parted: tuple[Folded, ...]
    keyed: tuple[Folded, ...]
    may_clear: bool
    changes_facts: bool
    may_leave: bool
    may_return: bool
    is_of_parties: bool
    """Whether records of this kind may change the facts, or be a leaving, a return or an ending."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """The kinds of records that differ only in the values of their `traits`.

    Of all rules and views it has those that may read such records, with the selectors for that.
    """

    here: RecordKind
    traits: tuple[Trait, ...]
    rules: tuple[tuple[Rule, tuple[Selector, ...]], ...]
    views: tuple[tuple[View, tuple[Selector, ...]], ...]
    kinds: dict[tuple[Value, ...], Readers]


class AllReaders:
    """The readers of all kinds of records, for one set of rules.

    `slots` has for each view the index of its states.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.views = _with_those_they_read(view for rule in self.rules for view in rule.all_views())
        self.slots = {view: slot for slot, view in enumerate(self.views, ALWAYS + 1)}
        self.with_debts = tuple(rule for rule in self.rules if rule.debts)
        """The rules that can say what is due and not done."""
        self._traits = tuple(dict.fromkeys(self._declared_traits()))
        self._families: dict[Hashable, Family] = {}
        self._nkinds = 0

    def of(self, record: Record, seen: Seen) -> Readers:
        """Return the readers of a record; topics depend on the name of the execution service."""
        message: Any = record.message
        kind = record.kind
        if message is not None:
            topic = message.topic if type(message) is not Control else ""
        elif kind == EVENT:
            topic = name_of(record)
        elif kind == HOOK:
            topic = str((record.data or {}).get("hook"))
        else:
            topic = ""
        where = (seen.facts.exec_service, kind, type(message), topic)
        family = self._families.get(where)
        if family is None:
            family = self._new_family(*where)
        values = tuple([trait.read(record, seen) for trait in family.traits])
        readers = family.kinds.get(values)
        return self._new_kind(family, values) if readers is None else readers

    def __len__(self) -> int:
        """Return the number of kinds and families that are cached."""
        return self._nkinds + len(self._families)

    # --- implementation

    def _declared_traits(self) -> Iterator[Trait]:
        selectors: list[Selector] = [*parties.CHANGING, *parties.ENDINGS]
        for view in self.views:
            selectors += (*view.selectors, *view.many)
        for rule in self.rules:
            selectors += rule.selectors
            if rule.trait is not None:
                yield rule.trait
        yield from (selector.mark.trait for selector in selectors if selector.mark is not None)

    def _new_family(self, service: str, kind: str, type_: type, topic: str) -> Family:
        self._make_room()
        where = (service, kind, type_, topic)
        if type_ in _TYPES and service and service_of(topic) == service:
            topic = "<exec>" + topic[len(service) :]
        here = RecordKind(kind, _TYPES.get(type_, ""), topic, {})
        traits = tuple(trait for trait in self._traits if here.is_on(trait.selectors))
        rules = [(rule, here.selected(rule.selectors)) for rule in self.rules]
        views = [(view, here.selected(view.selectors)) for view in self.views]
        family = self._families[where] = Family(
            here,
            traits,
            tuple([each for each in rules if each[1]]),
            tuple([each for each in views if each[1]]),
            {},
        )
        return family

    def _new_kind(self, family: Family, values: tuple[Value, ...]) -> Readers:
        self._make_room()
        self._nkinds += 1
        here = family.here._replace(values=dict(zip(family.traits, values, strict=True)))
        folded = dict(self._folded(family, here))
        readers = family.kinds[values] = Readers(
            tuple(self._asked(family, here)),
            tuple([each for each in folded.values() if each.parts is not None]),
            tuple(_readers_first({view: each for view, each in folded.items() if each.key})),
            may_clear=here.is_on(parties.ENDINGS),
            changes_facts=here.is_on(parties.CHANGING),
            may_leave=here.is_on(parties.LEAVING),
            may_return=here.is_on(parties.RETURNING),
            is_of_parties=here.is_on(parties.OF_PARTIES),
        )
        return readers

    def _make_room(self) -> None:
        if len(self) >= KINDS_MAX:
            self._families.clear()
            self._nkinds = 0

    def _asked(self, family: Family, here: RecordKind) -> Iterator[RuleReader]:
        for rule, selectors in family.rules:
            live = self._live(here, selectors)
            if live is not None:
                value = None if rule.trait is None else here.values.get(rule.trait)
                yield RuleReader(live, rule, rule.asking(value))

    def _folded(self, family: Family, here: RecordKind) -> Iterator[tuple[View, Folded]]:
        for view, selectors in family.views:
            live = self._live(here, selectors, view)
            is_parted = view.key is None or here.is_on(view.many)
            if live is not None and (view.parts is not None or not is_parted):
                parts, key = (view.parts, None) if is_parted else (None, view.key)
                yield view, Folded(live, self.slots[view], view.fold, parts, key)

    def _live(
        self, here: RecordKind, selectors: Iterable[Selector], own: View | None = None
    ) -> int | None:
        """Return the slot that must not be empty for a record to be read; None if never read."""
        slot = None
        for selector in selectors:
            if here.is_covered(selector):
                if selector.live is None:
                    return ALWAYS
                live: Any = own if selector.live is OWN else selector.live
                slot = self.slots[live]
        return slot


class RecordKind(NamedTuple):
    """A kind of record, with the values of its traits."""

    kind: str
    type: str
    topic: str
    values: Values

    def is_on(self, selectors: Iterable[Selector]) -> bool:
        """Whether one of the selectors selects these records."""
        return any(map(self.is_covered, selectors))

    def is_covered(self, selector: Selector) -> bool:
        """Whether a selector selects all of these records."""
        if not self._is_named(selector):
            return False
        mark = selector.mark
        return mark is None or (
            mark.trait in self.values and bool(mark.holds(self.values[mark.trait]))
        )

    def selected(self, selectors: Iterable[Selector]) -> tuple[Selector, ...]:
        """Return the selectors that may select such records, whatever their traits are."""
        return tuple([each for each in selectors if self._is_named(each)])

    def _is_named(self, selector: Selector) -> bool:
        if self.kind != selector.kind or self.type != selector.type:
            return False
        before, star, after = selector.topic.partition(ANY_TOPIC)
        if star:
            return self.topic.startswith(before) and self.topic.endswith(after)
        return self.topic == selector.topic


@functools.lru_cache(maxsize=RULE_SETS_MAX)
def all_readers(rules: tuple[Rule, ...]) -> AllReaders:
    """Return the readers of these rules, shared by all their monitors."""
    return AllReaders(rules)


def _with_those_they_read(views: Iterable[View]) -> list[View]:
    """Return these views and the views that they read, each once."""
    found: dict[View, None] = {}

    def add(views: Iterable[View]) -> None:
        for view in views:
            if view not in found:
                found[view] = None
                add(view.all_reads())

    add(views)
    return list(found)


def _readers_first(folded: dict[View, Folded]) -> Iterator[Folded]:
    """Yield the views so that each comes after all that read it, directly or through another."""
    left = folded
    while left:
        read = {view for each in left for view in views_read_by(each)}
        yield from (each for view, each in left.items() if view not in read)
        left = {view: each for view, each in left.items() if view in read}


def views_read_by(view: View) -> frozenset[View]:
    """Return the views that a view reads, directly or through another one."""
    return frozenset(view.reads).union(*map(views_read_by, view.reads))
