"""Causes: of the violations of one broken thing, one is the cause and the others follow from it.

Violations in the same record are of one broken thing, and so are the debts of one job. A later
violation follows from the first one of its job if the first says that something is missing, or if
both point to the same record; but a clause that is broken again is broken twice.

Of violations that come together, the cause is the one that says the most: that something is
missing, then that data does not have its form, then what is wrong with one message or event, and at
last a goal or an invariant. The registry has for each clause how much it speaks of (`breadth`).
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from flux_trio.judge.clauses.registry import Breadth, Clause
from flux_trio.trace import Record

JOBS_MAX: Final = 4096
"""Jobs whose first violation is kept; the oldest are forgotten."""

UNEXPLAINED: Final = "unexplained."
"""With this the names of the rules begin that break no clause: what they report is dropped if
something that is broken may be why."""
PLACES_MAX: Final = 4096
"""Places of violations that may explain what comes; the oldest are forgotten."""

_BREADTHS: Final[tuple[Breadth, ...]] = ("form", "act", "general", "sum")
"""The narrowest first. What does not have its form means nothing, so the form comes before all."""


class Violation(msgspec.Struct, frozen=True, gc=False):
    """A broken clause: id, sentence, violator, the record, and earlier records that explain it.

    `jobid` is the job concerned, if any. A violation that follows from another one has it as its
    `cause`; a cause has none itself.
    """

    clause: str
    sentence: str
    party: str
    text: str
    record: Record
    because: tuple[int, ...]
    jobid: int | None = None
    cause: Violation | None = None
    role: str = ""
    """The role in which the party broke it, as the registry names it."""
    is_missing: bool = False
    """Whether it says that an event or a message is missing, so that later records may seem wrong,
    too."""
    may_wait: bool = False
    """Whether it is an action that is due, and that may still be due at the end of a trace at rest
    without being a violation."""

    @property
    def blamed(self) -> str:
        """The party by its name, with its role if that has another one."""
        if self.role in ("", self.party) or self.party.endswith(self.role):
            return self.party
        return f"{self.party} ({self.role})" if self.party else self.role

    @property
    def is_unexplained(self) -> bool:
        """Whether this breaks no clause, and nothing else says why it happened."""
        return self.clause.startswith(UNEXPLAINED)


class Causes:
    """Finds the cause of each violation; keeps the first violation of each job."""

    def __init__(self, clauses: Mapping[str, Clause]) -> None:
        self._clauses = clauses
        self._first: dict[int, Violation] = {}

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        """The place of each clause in the registry; most traces break no clause."""
        return {clause: place for place, clause in enumerate(self._clauses)}

    def of_record(self, found: list[Violation]) -> list[Violation]:
        """Return the violations in one record with their causes, the cause first."""
        cause, linked = self._linked(found)
        if cause is linked[0]:
            self._keep(cause)
        return linked

    def of_debts(self, found: Iterable[Violation]) -> list[Violation]:
        """Return the debts (actions that are due and not done) with their causes. Those of one job,
        or since one record, have one cause.
        """
        groups: dict[object, list[Violation]] = {}
        for each in found:
            since = each.because[:1] or (each.clause,)
            of = since if each.jobid is None else each.jobid
            groups.setdefault((each.may_wait, of), []).append(each)
        return [each for group in groups.values() for each in self._linked(group)[1]]

    def state(self) -> tuple[Violation, ...]:
        """Return the first violation of each job, as `take_up` takes them."""
        return tuple(self._first.values())

    def take_up(self, first: Iterable[Violation]) -> None:
        """Replace the state by one that `state` has returned."""
        self._first = {each.jobid: each for each in first if each.jobid is not None}

    def _linked(self, found: list[Violation]) -> tuple[Violation, list[Violation]]:
        """Return the cause of all these violations, and the violations with their causes."""
        ordered = sorted(found, key=self._rank)
        earlier = next((e for each in ordered if (e := self._earlier(each)) is not None), None)
        cause = earlier if earlier is not None else ordered[0]
        return cause, [each if each is cause else replace(each, cause=cause) for each in ordered]

    def _earlier(self, violation: Violation) -> Violation | None:
        """Return the first violation of the job if this one follows from it."""
        if violation.jobid is None:
            return None
        first = self._first.get(violation.jobid)
        if first is None:
            return None
        shared = {first.record.n, *first.because} & {violation.record.n, *violation.because}
        is_same = bool(shared) and first.clause != violation.clause
        return first if first.is_missing or is_same else None

    def _keep(self, violation: Violation) -> None:
        if violation.jobid is None or violation.jobid in self._first:
            return
        if len(self._first) >= JOBS_MAX:
            del self._first[next(iter(self._first))]
        self._first[violation.jobid] = violation

    def _rank(self, violation: Violation) -> tuple[bool, int, int]:
        clause = self._clauses.get(violation.clause)
        breadth: Breadth = "sum" if clause is None else clause.breadth  # no clause: an invariant
        place = self._places.get(violation.clause, len(self._places))
        return not violation.is_missing, _BREADTHS.index(breadth), place


class Explanations:
    """The records by which clauses were broken; of a receipt, that of the send."""

    def __init__(self) -> None:
        self._places = deque[int](maxlen=PLACES_MAX)  # in a search, places are only compared

    def note(self, violations: Iterable[Violation]) -> None:
        """Remember what was broken."""
        for each in violations:
            self._places.append(each.record.ref or each.record.n)

    def explains(self, found: Violation) -> bool:
        """Whether one of them is in a record that something unexplained points to."""
        return any(n in self._places for n in found.because)

    def state(self) -> tuple[int, ...]:
        """Return the state, as `take_up` takes it."""
        return tuple(self._places)

    def take_up(self, state: Iterable[int]) -> None:
        """Go on from a state."""
        self._places = deque(state, PLACES_MAX)
