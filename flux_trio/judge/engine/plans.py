"""Plans: the rules and views of a record, found once for each kind of record.

Records with the same kind, message type, topic and trait values get the same plan. The plan follows
only from the declarations of the rules and views: their selectors say which records they read, and
a rule about a trait (`Rules.by`) is called when the plan is made. If such a rule answers from the
trait's value alone, the answer holds for all of these records.

Plans belong to a set of rules. Monitors with the same rules share them, so a process makes each
plan once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from flux_trio.judge.engine import parties
from flux_trio.judge.engine.compiled import ALWAYS, Asked, Folded, Step, reader_of, step_of
from flux_trio.judge.engine.declared import Mark, Seen, Selector, Trait, Value, Values, View
from flux_trio.judge.engine.rule import ByTrait, Rule, Said
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    EVENT,
    HOOK,
    OWN,
    name_of,
)
from flux_trio.messages import Control, Event, Request, Response, service_of
from flux_trio.trace import Record

PLANS_MAX: Final = 4096  # cached plans; peers may send any number of topics
RULE_SETS_MAX: Final = 16  # rule sets with cached plans; usually there is one

_TYPES: Final[dict[type, str]] = {Request: "request", Response: "response", Event: "event"}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to do with each record of one kind.

    `kept` are the clauses that every such record keeps.
    """

    kept: frozenset[str]
    step: Step
    may_clear: bool
    changes_facts: bool
    """Whether such a record may change the facts."""
    may_leave: bool
    may_return: bool
    """Whether by such a record a party may leave, or another one come."""
    is_of_parties: bool
    """Whether one of these four is so."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Records that differ only in the values of their traits."""

    here: Here
    traits: tuple[Trait, ...]
    read: Callable[[Record, Seen], tuple[Value, ...]]
    """Reads the values of these traits."""
    rules: tuple[Rule, ...]
    """The rules that may read some of these records."""
    views: tuple[View, ...]
    plans: dict[tuple[Value, ...], Plan]


class Plans:
    """The plans of a set of rules; `slots` has the index of each rule's and view's states."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.views = _in_order(view for rule in self.rules for view in _views_of(rule))
        keeping: list[View | Rule] = [*self.views]
        keeping += [rule for rule in self.rules if rule.apply is not None]
        self.slots = {each: slot for slot, each in enumerate(keeping, ALWAYS + 1)}
        self.with_debts = tuple(rule for rule in self.rules if rule.debt or rule.debts)
        """The rules that know of debts."""
        self.nmade = 0
        """The number of plans made so far, for tests."""
        traits = [mark.trait for mark in self._marks()]
        traits += [rule.trait for rule in self.rules if rule.trait is not None]
        self._traits = tuple(dict.fromkeys(traits))
        self._families: dict[Hashable, Family] = {}
        self._nplans = 0

    def plan(self, record: Record, seen: Seen) -> Plan:
        """Return the plan of a record; topics depend on the name of the execution service."""
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
        values = family.read(record, seen)
        plan = family.plans.get(values)
        return self._new_plan(family, values) if plan is None else plan

    def __len__(self) -> int:
        """Return the number of cached plans and families."""
        return self._nplans + len(self._families)

    # --- implementation

    def _marks(self) -> Iterable[Mark]:
        selectors: list[Selector] = [*parties.CHANGING, *parties.ENDINGS]
        selectors += [selector for rule in self.rules for selector in rule.selectors]
        selectors += [selector for view in self.views for selector in (*view.selectors, *view.many)]
        return [selector.mark for selector in selectors if selector.mark is not None]

    def _new_family(self, service: str, kind: str, type_: type, topic: str) -> Family:
        where = (service, kind, type_, topic)
        if type_ in _TYPES and service and service_of(topic) == service:
            topic = "<exec>" + topic[len(service) :]
        here = Here(kind, _TYPES.get(type_, ""), topic, {})
        traits = tuple(filter(here.has, self._traits))
        family = Family(
            here,
            traits,
            reader_of([trait.read for trait in traits]),
            tuple(each for each in self.rules if here.may_be_of(each.selectors)),
            tuple(each for each in self.views if here.may_be_of(each.selectors)),
            {},
        )
        self._make_room()
        self._families[where] = family
        return family

    def _make_room(self) -> None:
        if len(self) >= PLANS_MAX:
            self._families.clear()
            self._nplans = 0

    def _new_plan(self, family: Family, values: tuple[Value, ...]) -> Plan:
        self._make_room()
        self._nplans += 1
        self.nmade += 1
        here = family.here._replace(values=dict(zip(family.traits, values, strict=True)))
        plan = family.plans[values] = self._made(here, family)
        return plan

    def _made(self, here: Here, family: Family) -> Plan:
        kept, asked = self._asked(here, family.rules)
        step = step_of(asked, self._folded(here, family.views))
        return Plan(
            kept,
            step,
            may_clear=here.is_on(parties.ENDINGS),
            changes_facts=here.is_on(parties.CHANGING),
            may_leave=here.is_on(parties.LEAVING),
            may_return=here.is_on(parties.RETURNING),
            is_of_parties=here.is_on(parties.OF_PARTIES),
        )

    def _asked(self, here: Here, rules: Iterable[Rule]) -> tuple[frozenset[str], list[Asked]]:
        """Return the clauses that each such record keeps, and the rules to ask about each."""
        kept: set[str] = set()
        asked: list[Asked] = []
        for rule in rules:
            slot = self._slot(here, rule, rule.selectors)
            if slot is None:
                continue
            value = here.values.get(rule.trait) if rule.trait is not None else None
            if rule.by_trait is not None and slot == ALWAYS:
                said = answer(rule.by_trait, value)
                if said is not ASK:
                    kept |= {rule.clause} if said else set()
                    continue
            own = self.slots[rule] if rule.apply is not None else ALWAYS
            asked.append(Asked(slot, rule, value, own))
        return frozenset(kept), asked

    def _folded(self, here: Here, views: Iterable[View]) -> Iterator[Folded]:
        for view in views:
            live = self._slot(here, view, view.selectors)
            is_parted = view.key is None or here.is_on(view.many)
            if live is not None and (view.parts is not None or not is_parted):
                yield Folded(live, self.slots[view], view, is_parted)

    def _slot(self, here: Here, of: View | Rule, selectors: Iterable[Selector]) -> int | None:
        """Return the slot that must not be empty for a record to be read; None if never read."""
        slot = None
        for selector in selectors:
            if here.is_covered(selector):
                if selector.live is None:
                    return ALWAYS
                slot = self.slots[of if selector.live is OWN else selector.live]
        return slot


class Here(NamedTuple):
    """A kind of record, with the values of its traits."""

    kind: str
    type: str
    topic: str
    values: Values

    def has(self, trait: Trait) -> bool:
        """Whether these records have a trait."""
        return self.is_on(trait.selectors)

    def is_covered(self, selector: Selector) -> bool:
        """Whether a selector selects these records."""
        return self._may_cover(selector) and (
            selector.mark is None or self._is_marked(selector.mark)
        )

    def may_be_of(self, selectors: Iterable[Selector]) -> bool:
        """Whether one of the selectors selects these records if their traits have some value."""
        kind, type_ = self.kind, self.type
        for each in selectors:
            if each.kind == kind and each.type == type_ and self._may_cover(each):
                return True
        return False

    def _may_cover(self, selector: Selector) -> bool:
        if self.kind != selector.kind or self.type != selector.type:
            return False
        before, star, after = selector.topic.partition(ANY_TOPIC)
        if star:
            return self.topic.startswith(before) and self.topic.endswith(after)
        return self.topic == selector.topic

    def is_on(self, selectors: Iterable[Selector]) -> bool:
        """Whether one of the selectors selects these records."""
        return any(map(self.is_covered, selectors))

    def _is_marked(self, mark: Mark) -> bool:
        return mark.trait in self.values and bool(mark.holds(self.values[mark.trait]))


@functools.lru_cache(maxsize=RULE_SETS_MAX)
def plans_of(rules: tuple[Rule, ...]) -> Plans:
    """Return the plans of these rules, shared by all their monitors."""
    return Plans(rules)


# --- answers from a trait alone


class _LookedError(Exception):
    """A rule reads the record, or the monitor's state."""


class _Unseen:
    """Stands for a record, and for the monitor's state, while a plan is made."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _LookedError


_UNSEEN: Final[Any] = _Unseen()
ASK: Final = "ask"


def answer(by_trait: ByTrait, value: Value) -> bool | str:
    """Return a rule's answer for all records with this trait value, or ASK if it reads more."""
    try:
        said: Said = by_trait(value, _UNSEEN, _UNSEEN)
    except _LookedError:
        return ASK
    return ASK if said and said is not True else bool(said)


def _views_of(rule: Rule) -> Iterable[View]:
    by_trait = rule.trait.views() if rule.trait is not None else ()
    return [*rule.views, *by_trait, *_views_marked(rule.selectors)]


def _in_order(views: Iterable[View]) -> list[View]:
    """Return these views and the views that they read, each once."""
    found: dict[View, None] = {}

    def take(views: Iterable[View]) -> None:
        for view in views:
            if view not in found:
                found[view] = None
                take(view.reads)
                take(_views_marked(view.selectors))

    take(views)
    return list(found)


def _views_marked(selectors: Iterable[Selector]) -> list[View]:
    """Return the views that the traits of these selectors read."""
    return [
        view
        for selector in selectors
        if selector.mark is not None
        for view in selector.mark.trait.views()
    ]
