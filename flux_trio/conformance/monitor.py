"""The monitor: hands each record to the rules it concerns, and keeps the verdicts.

It is itself a machine with a hashable state (`snapshot`), holds no record but those that a live
state or a broken verdict refers to, and can watch a trace as it happens or read one afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from flux_trio.conformance.facts import Facts
from flux_trio.conformance.registry import Clause
from flux_trio.conformance.rule import ANY_TOPIC, Broken, Key, Leg, Rule, State, Step
from flux_trio.messages import Event, Request, Response, service_of, topics
from flux_trio.trace import Kind, Record

# The requests by which the job manager learns that a party is gone or new.
ENDINGS: Final = {topics.JOB_MANAGER_DISCONNECT, topics.SCHED_HELLO, topics.EXEC_HELLO}


class Verdict(StrEnum):
    """What a trace shows about a clause."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_EXERCISED = "not exercised"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken clause: its id and sentence, who did it, where, and what shows it."""

    clause: str
    sentence: str
    party: str
    text: str
    record: Record
    because: tuple[int, ...]


class Monitor:
    """Judges one trace by `rules`; `clauses` has the sentences."""

    def __init__(
        self, rules: Iterable[Rule], clauses: dict[str, Clause], *, crossings: bool = True
    ) -> None:
        self._clauses = clauses
        self._crossings = crossings
        self._by_leg: dict[Leg, list[Rule]] = {}
        self._rules = [rule for rule in rules if crossings or not rule.needs_crossing]
        for rule in self._rules:
            for leg in rule.legs:
                self._by_leg.setdefault(leg, []).append(rule)
        self._states: dict[Rule, dict[Key, State]] = {rule: {} for rule in self._rules}
        self._kept: set[str] = set()
        self.facts = replace(Facts(), crossings=crossings)
        self.violations: list[Violation] = []
        self._last: Record | None = None

    def observe(self, record: Record) -> list[Violation]:
        """Take the next record of the trace; the violations that it is."""
        found = []
        for rule in self._concerned(record):
            key = rule.key(record)
            if key is None:
                continue
            step = rule.apply(self._states[rule].get(key), record, self.facts)
            self._keep(rule, key, step)
            if step.broken is not None:
                found.append(self._violation(rule, record, step.broken))
        self._clear(record)
        self.facts = self.facts.after(record)
        self.violations += found
        self._last = record
        return found

    def finish(self) -> list[Violation]:
        """The trace has come to rest: whatever is owed now was not done.

        Not for a trace that was cut short, in which somebody may have been about to act.
        """
        last = self._last
        if last is None:
            return []
        found = [
            self._violation(rule, last, broken)
            for rule, kept in self._states.items()
            if rule.owed is not None
            for state in kept.values()
            if (broken := rule.owed(state, self.facts)) is not None
        ]
        self.violations += found
        return found

    def verdicts(self) -> dict[str, Verdict]:
        """By clause, for every clause that has a rule here."""
        broken = {violation.clause for violation in self.violations}
        judged = {rule.clause for rule in self._rules}
        kept = dict.fromkeys(judged & self._kept, Verdict.KEPT)
        return (
            dict.fromkeys(judged, Verdict.NOT_EXERCISED)
            | kept
            | dict.fromkeys(broken, Verdict.BROKEN)
        )

    def snapshot(self) -> Hashable:
        """What is live now; equal snapshots judge what follows alike."""
        live = (
            (rule, key, state) for rule, kept in self._states.items() for key, state in kept.items()
        )
        return (self.facts, frozenset(live))

    def _concerned(self, record: Record) -> list[Rule]:
        leg = leg_of(record, self.facts)
        anywhere = self._by_leg.get(leg._replace(topic=ANY_TOPIC), [])
        return self._by_leg.get(leg, []) + anywhere

    def _keep(self, rule: Rule, key: Key, step: Step) -> None:
        if step.state is None:
            self._states[rule].pop(key, None)
        else:
            self._states[rule][key] = step.state
        if step.kept:
            self._kept.add(rule.clause)

    def _clear(self, record: Record) -> None:
        """A party is gone: what was live between it and the job manager ends without a verdict."""
        request = record.message
        if record.kind != Kind.RECV or not isinstance(request, Request):
            return
        if request.topic not in ENDINGS:
            return
        for rule in self._rules:
            if rule.clears is not None and rule.clears(request, self.facts):
                self._states[rule].clear()

    def _violation(self, rule: Rule, record: Record, broken: Broken) -> Violation:
        clause = self._clauses.get(rule.clause)
        sentence = clause.text if clause is not None else ""
        party = "" if clause is None else (clause.violator or clause.actor)
        return Violation(rule.clause, sentence, party, broken.text, record, broken.because)


def leg_of(record: Record, facts: Facts) -> Leg:
    """Which leg a record is on."""
    found = record.message
    if isinstance(found, (Request, Response, Event)):
        topic = found.topic
        if facts.exec_service and service_of(topic) == facts.exec_service:
            topic = "<exec>" + topic[len(facts.exec_service) :]
        return Leg(record.kind, type(found).__name__.lower(), topic)
    if record.kind == Kind.EVENT:
        return Leg(record.kind, "", str((record.data or {}).get("name", "")))
    return Leg(record.kind)
