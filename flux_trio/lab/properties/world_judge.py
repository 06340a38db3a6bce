"""Judges the trace of a world in which the instance may be killed and started again."""

from __future__ import annotations

import functools
from typing import Final

from flux_trio.judge import Monitor, Violation, load_clauses
from flux_trio.judge.engine.rule import Rule
from flux_trio.judge.rules import CLASSIC, edition_of, rules_of_instance
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.trace import Batches, Kind, Record

_CONFIG: Final[str] = Kind.CONFIG.value
LONG_TEXT: Final = "6.response.4"  # it recommends short error texts; longer ones are wanted here


class WorldJudge:
    """Judges the trace of a world, also if the instance is killed and started again in it.

    Each life of the instance is judged as a trace of its own: what a killed instance was about to
    do is not due any more.
    """

    def __init__(self) -> None:
        self._earlier: list[Violation] = []
        self.owed: tuple[Violation, ...] = ()
        """The actions that were due from parties that lie, at the moment when everything was put
        right and they were loaded again."""
        self._is_over = False
        self._is_broken = False
        self._begin(CLASSIC)

    def _begin(self, edition: str) -> None:
        self._monitor = Monitor(clause_rules(edition), load_clauses(), is_simulated=True)
        self._batches = Batches(self._monitor.observe)

    def observe(self, record: Record) -> None:
        """Judge the next record of the trace; after `finish` nothing is judged any more."""
        if self._is_over:
            return
        if record.kind == _CONFIG:  # the first record of a life
            self._batches.flush()
            self._earlier += self._monitor.violations
            self._begin(edition_of(record))
        self._batches.append(record)

    def pause(self, world: CoresWorld) -> None:
        """Note what is due and was not done, since nobody has anything to do now.

        Only in the first life: a trace does not tell what the instance of a later one has read.
        """
        if world.life == 0 and not self._is_broken:
            self._batches.flush()
            self._is_broken = bool(self._monitor.finish())

    def note_debts_of_liars(self, world: CoresWorld) -> None:
        """Keep in `owed` the actions that are due from parties that lie, since these are about to
        be loaded again.
        """
        if world.liars and world.life == 0:
            self._batches.flush()
            due = [each for each in self._monitor.debts() if not each.may_wait]
            self.owed = tuple(each for each in due if each.party in world.liars)

    def finish(self) -> None:
        """End the judgement at rest: what is due now and was not done is a violation."""
        self._batches.flush()
        self._monitor.finish()
        self._is_over = True

    @property
    def violations(self) -> list[Violation]:
        """The violations in all lives of the instance."""
        self._batches.flush()
        found = [*self._earlier, *self._monitor.violations]
        return [each for each in found if each.clause != LONG_TEXT]


@functools.cache
def clause_rules(edition: str) -> tuple[Rule, ...]:
    """Return the rules by which an instance that speaks an edition can break a clause."""
    return tuple(each for each in rules_of_instance(edition, load_clauses()) if each.is_of_clause)


def described(violation: Violation) -> str:
    """Return a line about a violation, as in `Outcome.problems`: its clause, its record and its
    text.
    """
    return f"{violation.clause}: record {violation.record.n}: {violation.text}"


def violator(violation: Violation) -> str:
    """Return the party that broke a clause; for a violation in a message, the sender of the
    message.

    If the violation follows from another one, it is the party of that one.
    """
    while violation.cause is not None:
        violation = violation.cause
    record = violation.record
    return record.party if record.kind == Kind.SEND else violation.party
