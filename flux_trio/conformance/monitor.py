"""The monitor: hands each record to the rules it concerns, and keeps the verdicts.

It is itself a machine with a hashable state (`snapshot`), holds no record but those that a live
state or a broken verdict refers to, and can watch a trace as it happens or read one afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flux_trio.conformance.dispatch import Dispatch, Plan
from flux_trio.conformance.facts import Facts
from flux_trio.conformance.leg import RECV, SEND, Key
from flux_trio.conformance.registry import Clause
from flux_trio.conformance.rule import Apply, Broken, Each, Rule, Said, State, Subjects
from flux_trio.conformance.view import KeyOf, Seen, View
from flux_trio.trace import Record


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
    """Judges one trace by `rules`; `clauses` has the sentences.

    All rules are applied: those that need what the trace does not show are to be left out before
    (`judge_trace`).
    """

    def __init__(self, rules: Iterable[Rule], clauses: Mapping[str, Clause]) -> None:
        self._clauses = clauses
        self._rules = list(rules)
        self._states: dict[Rule, dict[Key, State]] = {
            rule: {} for rule in self._rules if rule.apply is not None
        }
        self._views = _in_order(view for rule in self._rules for view in rule.views)
        self._view_states: dict[View, dict[Key, State]] = {view: {} for view in self._views}
        judges = {rule: self._judge_of(rule) for rule in self._rules if rule.each is None}
        self._dispatch = Dispatch(self._rules, judges, self._states, self._view_states)
        self._turns: dict[str, tuple[int, bool]] = {}  # party → where it began, whether it sent
        self._kept: set[str] = set()
        self._last: Record | None = None
        self.facts = Facts()
        self.violations: list[Violation] = []

    def observe(self, record: Record) -> list[Violation]:
        """Take the next record of the trace; the violations that it is."""
        self._take_turn(record)
        plan = self._dispatch.plan(record, self.facts)
        kept = self._kept
        if not plan.kept <= kept:
            kept |= plan.kept
        found: list[Violation] = []
        for live, judge, rule in plan.rules:
            if live:
                said = judge(record, self)
                if said is True:
                    kept.add(rule.clause)
                elif said:
                    found.append(self._violation(rule, record, said))
        for subjects, rules in plan.tables:
            found += self._judged(record, subjects, rules)
        self._fold(plan, record)
        if plan.may_end:
            self._clear(record)
        if plan.may_tell:
            self.facts = self.facts.after(record)
            self._dispatch.know(self.facts)
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
            for rule in self._rules
            for broken in self._owed(rule)
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
        states = [*self._states.items(), *self._view_states.items()]
        live = ((of, key, state) for of, kept in states for key, state in kept.items())
        return (self.facts, frozenset(self._turns.items()), frozenset(live))

    # --- what a rule may ask for (Seen)

    def at(self, view: View, key: Key = ()) -> Any:
        """What `view` has under `key`, or None; nothing is under what cannot be a key."""
        try:
            return self._view_states[view].get(key)
        except TypeError:
            return None

    def all(self, view: View) -> Mapping[Any, Any]:
        """Everything that is live in `view`."""
        return self._view_states[view]

    def knew(self, party: str, n: int) -> bool:
        """Whether `party` has come back to its inbox since it took up the message at `n`."""
        return n < self._turns.get(party, (0, False))[0]

    # --- how

    def _take_turn(self, record: Record) -> None:
        """A turn of a party: what it takes up, then what it sends."""
        if record.kind == RECV:
            began, has_sent = self._turns.get(record.party, (0, True))
            if has_sent:
                self._turns[record.party] = (record.n, False)
        elif record.kind == SEND:
            began, has_sent = self._turns.get(record.party, (0, True))
            if not has_sent:
                self._turns[record.party] = (began, True)

    def _judged(
        self, record: Record, subjects: Subjects, rules: Iterable[tuple[Each, Rule]]
    ) -> list[Violation]:
        """What rules about the same subjects say of each that is in the record."""
        broken: dict[Rule, Violation] = {}
        kept = self._kept
        for subject in subjects(record, self):
            for each, rule in rules:
                said = each(subject)
                if said is True:
                    kept.add(rule.clause)
                elif said and rule not in broken:
                    broken[rule] = self._violation(rule, record, said)
        return list(broken.values())

    def _judge_of(self, rule: Rule) -> Callable[[Record, Seen], Said]:
        """How a rule is asked."""
        if rule.judge is not None:
            return rule.judge
        assert rule.apply is not None
        return functools.partial(_applied, rule.key, rule.apply, self._states[rule])

    def _fold(self, plan: Plan, record: Record) -> None:
        """Views that are read by others see each other as they were before the record."""
        for live, states, key_of, fold in plan.alone:
            if live:
                key = key_of(record)
                if key is not None:
                    _put(states, key, fold(states.get(key), None, record, self))
        after: list[tuple[dict[Key, State], Key, State]] = []
        for live, states, key_of, fold in plan.keyed:
            if live:
                key = key_of(record)
                if key is not None:
                    after.append((states, key, fold(states.get(key), None, record, self)))
        for live, states, parts, fold in plan.parted:
            if live:
                for key, part in parts(record, self):
                    after.append((states, key, fold(states.get(key), part, record, self)))
        for states, key, state in after:
            _put(states, key, state)

    def _clear(self, record: Record) -> None:
        """A party is gone: what was live between it and the job manager ends without a verdict."""
        for rule, states in self._states.items():
            if rule.clears is not None and rule.clears(record, self.facts):
                states.clear()
        for view, states in self._view_states.items():
            if view.clears is not None and view.clears(record, self.facts):
                states.clear()

    def _owed(self, rule: Rule) -> Iterator[Broken]:
        if rule.owing is not None:
            yield from rule.owing(self)
        if rule.owed is not None:
            for state in self._states[rule].values():
                broken = rule.owed(state, self.facts)
                if broken is not None:
                    yield broken

    def _violation(self, rule: Rule, record: Record, broken: Broken) -> Violation:
        clause = self._clauses.get(rule.clause)
        sentence = clause.text if clause is not None else ""
        party = broken.party
        if not party and clause is not None:
            party = clause.violator or clause.actor
        return Violation(rule.clause, sentence, party, broken.text, record, broken.because)


def _put(states: dict[Key, State], key: Key, state: State) -> None:
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state


def _applied(
    key_of: KeyOf, apply: Apply, states: dict[Key, State], record: Record, seen: Seen
) -> Said:
    """What a rule says that keeps a state of its own."""
    key = key_of(record)
    if key is None:
        return None
    state, kept, broken = apply(states.get(key), record, seen.facts)
    _put(states, key, state)
    return broken or kept


def _in_order(views: Iterable[View]) -> list[View]:
    """These views and those they read, each once."""
    found: dict[View, None] = {}

    def take(views: Iterable[View]) -> None:
        for view in views:
            take(view.reads)
            found[view] = None

    take(views)
    return list(found)
