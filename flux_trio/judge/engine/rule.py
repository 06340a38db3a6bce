"""A rule: one clause, as a question about records of the trace.

A rule declares the records that it reads (`selectors`), and the views, which have what is kept of
earlier records. A rule keeps nothing itself. It reads only the trace, and judges a party by the
messages that the party had sent and received by then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from flux_trio.judge.engine.causes import UNEXPLAINED
from flux_trio.judge.engine.view import Seen, Selector, Trait, Value, View, seen_once, views_marked
from flux_trio.trace import Record

INSTANCE: Final = "instance"

T = TypeVar("T")


class Broken(msgspec.Struct, frozen=True, gc=False):
    """The clause was broken; `text` says what was expected and what came.

    `because` has the numbers (`n`) of the earlier records that show why; the current record broke
    the clause. `party` is the violator if it is not the party that the clause binds. `job` is the
    job concerned if it is not the job of the current record.

    `is_missing` says that an event or a message is missing, so that what comes next may seem wrong
    too. A debt is what somebody still has to do: `because` begins with the record since when. If it
    `may_wait`, it may be open at rest too, and is no violation; if it `is_to_leave`, a party has to
    leave, and does what is due when it leaves.
    """

    text: str
    because: tuple[int, ...] = ()
    party: str = ""
    job: int | None = None
    is_missing: bool = False
    may_wait: bool = False
    is_to_leave: bool = False


Finding: TypeAlias = Broken | bool | None
"""True: kept. None or False: not exercised."""

Ask: TypeAlias = Callable[[Record, Seen], Finding]
Judge: TypeAlias = Ask
ByTrait: TypeAlias = Callable[[Any, Record, Seen], Finding]
Subjects: TypeAlias = Callable[[Record, Seen], Iterable[Any]]
Each: TypeAlias = Callable[[Any], Finding]
Debts: TypeAlias = Callable[[Seen], Iterable[Broken]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """A question whether the records of `selectors` keep one clause.

    `clause` is its id in the registry, or the name of an invariant. A record is judged in one of
    three ways, with the states of `views`: `judge` judges the record, `by_trait` the value of the
    record's `trait` (None if it does not have the trait), `each` each of the record's `subjects`.

    `needs_crossing` marks a rule that compares sends with receipts, `needs_headers` one about
    matchtags, flags or userids, `needs_payloads` one that reads what is in messages: a trace
    without these cannot exercise it. `debts` yields the actions that are due and not done yet: at
    the end of a trace at rest they are violations. A rule that `is_current` reads its clause as the
    current edition has it, and is applied to traces of that edition alone. A rule that `is_routed`
    is applied to traces of a router alone, which have no matchtags. In a trace that begins while
    the instance runs, a rule is asked once a peer has taken the role `since` in the trace; if that
    is INSTANCE, never.
    """

    clause: str
    selectors: tuple[Selector, ...]
    judge: Judge | None = None
    trait: Trait | None = None
    by_trait: ByTrait | None = None
    subjects: Subjects | None = None
    each: Each | None = None
    views: tuple[View, ...] = ()
    needs_crossing: bool = False
    needs_headers: bool = False
    debts: Debts | None = None
    is_current: bool = False
    is_routed: bool = False
    since: str = ""
    needs_payloads: bool = True

    @property
    def is_of_clause(self) -> bool:
        """Whether the rule is of a clause or an invariant; others report what breaks none."""
        return not self.clause.startswith(UNEXPLAINED)

    def asking(self, value: Value) -> Ask:
        """Return the function that judges records whose trait, if the rule has one, is `value`."""
        ask, role = self._asking(value), self.since
        if not role:
            return ask
        return lambda record, seen: ask(record, seen) if seen.facts.has_begun(role) else None

    def _asking(self, value: Value) -> Ask:
        if self.judge is not None:
            return self.judge
        if self.by_trait is not None:
            return functools.partial(self.by_trait, value)
        assert self.subjects is not None
        assert self.each is not None
        return _asking_each(_found_once(self.subjects), self.each)

    def all_views(self) -> Iterator[View]:
        """Yield the views that the rule reads, or its trait, or the traits of its selectors."""
        yield from self.views
        if self.trait is not None:
            yield from self.trait.views()
        yield from views_marked(self.selectors)


def _asking_each(subjects_of: Subjects, each: Each) -> Ask:
    """Return the function that judges each subject; it reports the first violation."""

    def ask(record: Record, seen: Seen) -> Finding:
        is_kept = False
        for subject in subjects_of(record, seen):
            said = each(subject)
            if said is True:
                is_kept = True
            elif said:
                return said
        return is_kept

    return ask


@functools.cache
def _found_once(subjects_of: Subjects) -> Subjects:
    """Return a function that finds the subjects once for all rules about them."""
    return seen_once(lambda record, seen: tuple(subjects_of(record, seen)))


class Rules:
    """The rules of one file; its methods are decorators that register a rule.

    With `current` the rules read their clauses as the current edition of the RFCs has them; with
    `routed` they read traces without matchtags. The keywords are those of `Rule`.
    """

    def __init__(self, *, current: bool = False, routed: bool = False) -> None:
        self.all: list[Rule] = []
        self._is_current = current
        self._is_routed = routed

    def judge(
        self, clause: str, *selectors: Iterable[Selector], views: Iterable[View] = (), **given: Any
    ) -> Callable[[Judge], Judge]:
        """Register a rule about each record, with the states of `views`."""
        return self._registering("judge", clause, selectors, views=tuple(views), **given)

    def by(
        self,
        trait: Trait,
        clause: str,
        *selectors: Iterable[Selector],
        views: Iterable[View] = (),
        **given: Any,
    ) -> Callable[[ByTrait], ByTrait]:
        """Register a rule about the value of a trait, which is its first argument."""
        given |= {"trait": trait, "views": tuple(views)}
        return self._registering("by_trait", clause, selectors, **given)

    def each(
        self,
        clause: str,
        *selectors: Iterable[Selector],
        of: Subjects,
        views: Iterable[View] = (),
        **given: Any,
    ) -> Callable[[Each], Each]:
        """Register a rule about each of the subjects that `of` finds in a record.

        Only the first violation in a record is reported. `views` are the views that `of` reads.
        """
        given |= {"subjects": of, "views": tuple(views)}
        return self._registering("each", clause, selectors, **given)

    def _registering(
        self, way: str, clause: str, selectors: Iterable[Iterable[Selector]], **given: Any
    ) -> Callable[[T], T]:
        flat = tuple(selector for group in selectors for selector in group)
        given |= {"is_current": self._is_current, "is_routed": self._is_routed}

        def register(function: T) -> T:
            declared: dict[str, Any] = {**given, way: function}
            self.all.append(Rule(clause=clause, selectors=flat, **declared))
            return function

        return register
