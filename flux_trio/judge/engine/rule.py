"""What a rule is: one clause as a small machine over the trace.

A rule names the records it reads (`legs`). One of `Rules.rule` keeps a state of its own, under a
key (a job id, an RPC); one of `Rules.check` looks at each record alone; one of `Rules.judge` looks
at views as well, which are states that rules share. State is hashable, and None when nothing is
live, so that a monitor's whole state is small and can be compared. A rule reads the trace only, and
judges a party by what that party had sent and received by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.leg import (
    ANY_TOPIC,
    OWN,
    Key,
    Leg,
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
from flux_trio.judge.engine.trait import Trait
from flux_trio.judge.engine.view import Clears, KeyOf, Seen, View, view
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

__all__ = [
    "ANY_TOPIC",
    "OWN",
    "Broken",
    "Key",
    "Leg",
    "Rule",
    "Rules",
    "Seen",
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

State: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Broken:
    """The clause was not kept: what was expected and what came, for whoever has to mend it.

    `because` are the places (`n`) of the earlier records that show why; the record in hand is the
    one that broke it. `party` says who broke it, where that is not the one the clause binds.
    """

    text: str
    because: tuple[int, ...] = ()
    party: str = ""


class Step(NamedTuple):
    """What a rule makes of a record.

    `state` is kept under the key (None: nothing is live). `kept` says that the clause was
    exercised and kept here; `broken` that it was not.
    """

    state: State = None
    kept: bool = False
    broken: Broken | None = None


Said: TypeAlias = Broken | bool | None
"""True: kept. None or False: not exercised here."""

Apply: TypeAlias = Callable[[State, Record, Facts], Step]
Judge: TypeAlias = Callable[[Record, Seen], Said]
ByTrait: TypeAlias = Callable[[Any, Record, Seen], Said]
Subjects: TypeAlias = Callable[[Record, Seen], Iterable[Any]]
Each: TypeAlias = Callable[[Any], Said]
Owed: TypeAlias = Callable[[State, Facts], Broken | None]
Owing: TypeAlias = Callable[[Seen], Iterable[Broken]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """One clause as a machine.

    `clause` is its id in the registry (or an invariant's name). A record on one of `legs` is
    applied to the state under `key(record)`, a key of None passing it over; or `judge` judges it,
    looking at `views`; or `by_trait` judges the value of its `trait` (None without that trait); or
    `each` judges each of the `subjects` that are in it, which are found once for all rules about
    them. `needs_crossing` marks a rule that must tell sends from receipts, and
    `needs_headers` one about matchtags, flags or userids: a recording that does not show them
    cannot exercise it. `clears` says of a record that it ends everything live here
    (`scheduler_lost`, `exec_lost`). `owed` says of a live state, and `owing` of all that is seen,
    what somebody has failed to do, should nothing more ever happen.
    """

    clause: str
    legs: tuple[Leg, ...]
    key: KeyOf = no_key
    apply: Apply | None = None
    type: Any = None
    judge: Judge | None = None
    trait: Trait | None = None
    by_trait: ByTrait | None = None
    subjects: Subjects | None = None
    each: Each | None = None
    views: tuple[View, ...] = ()
    needs_crossing: bool = False
    needs_headers: bool = False
    clears: Clears | None = None
    owed: Owed | None = None
    owing: Owing | None = None


class Rules:
    """A file's rules, registered as they are written."""

    def __init__(self) -> None:
        self.all: list[Rule] = []

    def rule(
        self,
        clause: str,
        *legs: Iterable[Leg],
        key: KeyOf,
        state: Any,
        needs_crossing: bool = False,
        needs_headers: bool = False,
        clears: Clears | None = None,
        owed: Owed | None = None,
    ) -> Callable[[Apply], Apply]:
        """Register the decorated function as the rule of `clause`; `state` is the type of one."""

        def register(apply: Apply) -> Apply:
            rule = Rule(
                clause=clause,
                legs=_flat(legs),
                key=key,
                apply=apply,
                type=state,
                needs_crossing=needs_crossing,
                needs_headers=needs_headers,
                clears=clears,
                owed=owed,
            )
            self.all.append(rule)
            return apply

        return register

    def check(
        self,
        clause: str,
        *legs: Iterable[Leg],
        needs_crossing: bool = False,
        needs_headers: bool = False,
    ) -> Callable[[Callable[[Record, Facts], Said]], Any]:
        """Register a rule without state."""

        def register(check: Callable[[Record, Facts], Said]) -> Any:
            self.judge(clause, *legs, needs_crossing=needs_crossing, needs_headers=needs_headers)(
                lambda record, seen: check(record, seen.facts)
            )
            return check

        return register

    def judge(
        self,
        clause: str,
        *legs: Iterable[Leg],
        views: Iterable[View] = (),
        needs_crossing: bool = False,
        needs_headers: bool = False,
        owing: Owing | None = None,
    ) -> Callable[[Judge], Judge]:
        """Register a rule whose state is in `views`."""

        def register(judge: Judge) -> Judge:
            rule = Rule(
                clause=clause,
                legs=_flat(legs),
                judge=judge,
                views=tuple(views),
                needs_crossing=needs_crossing,
                needs_headers=needs_headers,
                owing=owing,
            )
            self.all.append(rule)
            return judge

        return register

    def by(
        self,
        trait: Trait,
        clause: str,
        *legs: Iterable[Leg],
        views: Iterable[View] = (),
        needs_headers: bool = False,
        owing: Owing | None = None,
    ) -> Callable[[ByTrait], ByTrait]:
        """Register a rule about the value of a trait, which comes first.

        What it says without a look at the record or at what is seen holds for all records with
        that value: then it is not asked again. Only a Broken is made anew for each record.
        """

        def register(by_trait: ByTrait) -> ByTrait:
            rule = Rule(
                clause=clause,
                legs=_flat(legs),
                trait=trait,
                by_trait=by_trait,
                views=tuple(views),
                needs_headers=needs_headers,
                owing=owing,
            )
            self.all.append(rule)
            return by_trait

        return register

    def each(
        self,
        clause: str,
        *legs: Iterable[Leg],
        of: Subjects,
        views: Iterable[View] = (),
        needs_headers: bool = False,
    ) -> Callable[[Each], Each]:
        """Register a rule about each of the subjects that `of` finds in a record.

        The clause is broken by the first that breaks it. `views` are those that `of` looks at.
        """

        def register(each: Each) -> Each:
            rule = Rule(
                clause=clause,
                legs=_flat(legs),
                subjects=of,
                each=each,
                views=tuple(views),
                needs_headers=needs_headers,
            )
            self.all.append(rule)
            return each

        return register


def _flat(legs: Iterable[Iterable[Leg]]) -> tuple[Leg, ...]:
    return tuple(leg for group in legs for leg in group)


# --- who is gone


def scheduler_lost(record: Record, facts: Facts) -> bool:
    """The job manager hears that the scheduler is gone, or fails, or a scheduler starts anew."""
    found = record.message
    if isinstance(found, Request):
        if found.topic == topics.JOB_MANAGER_DISCONNECT:
            return found.sender == facts.scheduler
        return found.topic == topics.SCHED_HELLO
    return bool(errnum(record))  # of alloc or free: a fatality


def exec_lost(record: Record, facts: Facts) -> bool:
    """The job manager hears that the execution service is gone, or one starts anew."""
    found = record.message
    if not isinstance(found, Request):
        return False
    if found.topic == topics.JOB_MANAGER_DISCONNECT:
        return found.sender == facts.exec_peer
    return found.topic == topics.EXEC_HELLO
