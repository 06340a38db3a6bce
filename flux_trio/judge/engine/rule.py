"""A rule: one clause as a small state machine over the trace.

A rule declares the records that it reads (`selectors`). A rule of `Rules.rule` keeps its own state
under a key (a job id, an RPC). A rule of `Rules.check` reads each record alone. A rule of
`Rules.judge` also reads views, which are states that rules share. A state is hashable, and None if
there is nothing to keep, so the state of a monitor is small and can be compared. A rule reads only
the trace, and judges a party by the messages that the party had sent and received by then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from flux_trio.judge.engine.causes import UNEXPLAINED
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    OWN,
    Key,
    Selector,
    errnum,
    job_id,
    logged,
    message,
    no_key,
    noted,
    payload,
    received,
    rpc,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import (
    Clears,
    KeyOf,
    Seen,
    Trait,
    Value,
    View,
    put,
    seen_once,
    view,
    views_marked,
)
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

__all__ = [
    "ANY_TOPIC",
    "OWN",
    "Broken",
    "Key",
    "Rule",
    "Rules",
    "Seen",
    "Selector",
    "State",
    "Step",
    "Subjects",
    "View",
    "errnum",
    "exec_lost",
    "job_id",
    "logged",
    "message",
    "no_key",
    "noted",
    "payload",
    "received",
    "rpc",
    "scheduler_lost",
    "sent",
    "view",
    "while_live",
]

INSTANCE: Final = "instance"

T = TypeVar("T")
State: TypeAlias = Hashable


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


class Step(msgspec.Struct, frozen=True, gc=False):
    """The result of a rule for a record.

    `state` is the new state under the key (None removes it). `kept` means that the clause was
    exercised and kept; `broken` means that it was broken.
    """

    state: State = None
    kept: bool = False
    broken: Broken | None = None


Finding: TypeAlias = Broken | bool | None
"""True: kept. None or False: not exercised."""

Apply: TypeAlias = Callable[[State, Record, Facts], Step]
Ask: TypeAlias = Callable[[Record, Seen], Finding]
Judge: TypeAlias = Ask
Check: TypeAlias = Callable[[Record, Facts], Finding]
ByTrait: TypeAlias = Callable[[Any, Record, Seen], Finding]
Subjects: TypeAlias = Callable[[Record, Seen], Iterable[Any]]
Each: TypeAlias = Callable[[Any], Finding]
Debt: TypeAlias = Callable[[State, Facts], Broken | None]
Debts: TypeAlias = Callable[[Seen], Iterable[Broken]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """One clause as a state machine.

    `clause` is its id in the registry, or the name of an invariant. A record that one of the
    `selectors` selects is handled in one of five ways. `apply` updates the state under
    `key(record)`; a key of None skips the record. `judge` judges the record with the states of
    `views`, `check` judges it alone. `by_trait` judges the value of the record's `trait` (None if
    it does not have the trait). `each` judges each of the record's `subjects`.

    `needs_crossing` marks a rule that compares sends with receipts, `needs_headers` one about
    matchtags, flags or userids, `needs_payloads` one that reads what is in messages: a trace
    without these cannot exercise it. `clears` returns True for a record that removes all states of
    the rule (`scheduler_lost`, `exec_lost`). `debts` yields the actions that are due and not done
    yet, `debt` returns the one of a state of the rule. At the end of a trace at rest they are
    violations. A rule that `is_current` reads its clause as the current edition has it, and is
    applied to traces of that edition alone. A rule that `is_routed` is applied to traces of a
    router alone, which have no matchtags. In a trace that begins while the instance runs, a rule is
    asked once a peer has taken the role `since` in the trace; if that is INSTANCE, never.
    """

    clause: str
    selectors: tuple[Selector, ...]
    key: KeyOf = no_key
    apply: Apply | None = None
    type: Any = None
    judge: Judge | None = None
    check: Check | None = None
    trait: Trait | None = None
    by_trait: ByTrait | None = None
    subjects: Subjects | None = None
    each: Each | None = None
    views: tuple[View, ...] = ()
    needs_crossing: bool = False
    needs_headers: bool = False
    clears: Clears | None = None
    debt: Debt | None = None
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
        if self.check is not None:
            check = self.check
            return lambda record, seen: check(record, seen.facts)
        if self.subjects is not None and self.each is not None:
            return _asking_each(_found_once(self.subjects), self.each)
        return self._step

    def _step(self, record: Record, seen: Seen) -> Finding:
        """Apply the rule to its own state."""
        assert self.apply is not None
        key = self.key(record)
        if key is None:
            return None
        states = seen.states[self]
        step = self.apply(states.get(key), record, seen.facts)
        put(states, key, step.state)
        return step.broken or step.kept

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

    def rule(
        self, clause: str, *selectors: Iterable[Selector], key: KeyOf, state: Any, **given: Any
    ) -> Callable[[Apply], Apply]:
        """Register a function as the rule of `clause`; `state` is the type of its states."""
        return self._registering("apply", clause, selectors, key=key, type=state, **given)

    def check(
        self, clause: str, *selectors: Iterable[Selector], **given: Any
    ) -> Callable[[Check], Check]:
        """Register a rule without state."""
        return self._registering("check", clause, selectors, **given)

    def judge(
        self, clause: str, *selectors: Iterable[Selector], views: Iterable[View] = (), **given: Any
    ) -> Callable[[Judge], Judge]:
        """Register a rule whose state is in `views`."""
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


# --- lost parties


def scheduler_lost(record: Record, facts: Facts) -> bool:
    """Whether the job manager learns that the scheduler has gone, has failed, or is new."""
    found = record.message
    if isinstance(found, Request):
        if found.topic == topics.JOB_MANAGER_DISCONNECT:
            return found.sender == facts.scheduler
        return found.topic == topics.SCHED_HELLO
    return bool(errnum(record))  # an error response to alloc or free is fatal


def exec_lost(record: Record, facts: Facts) -> bool:
    """Whether the job manager learns that the execution service has gone, or is new."""
    found = record.message
    if not isinstance(found, Request):
        return False
    if found.topic == topics.JOB_MANAGER_DISCONNECT:
        return found.sender == facts.exec_peer
    return found.topic == topics.EXEC_HELLO
