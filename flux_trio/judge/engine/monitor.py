"""The monitor: hands each record to the rules it concerns, and keeps the verdicts.

It is itself a machine with a hashable state (`snapshot`), holds no record but those that a live
state or a broken verdict refers to, and can watch a trace as it happens or read one afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from flux_trio.judge.clauses.registry import Clause
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.leg import RECV, SEND, Key
from flux_trio.judge.engine.place import Place, renumbered
from flux_trio.judge.engine.plans import Plan, States, plans_of, put
from flux_trio.judge.engine.rule import Broken, Each, Rule, Said, State, Subjects
from flux_trio.judge.engine.view import View
from flux_trio.trace import Record

Turns: TypeAlias = tuple[tuple[str, tuple[Place, bool]], ...]
"""By party: where its turn began, and whether it has sent something in it."""


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
        self._rules = tuple(rules)
        self._plans = plans_of(self._rules)
        slots = self._plans.slots
        nothing: States = {}
        self.slots: list[States] = [{(): True}, *(nothing.copy() for _ in slots)]
        self._states: dict[View | Rule, States] = {
            each: self.slots[slot] for each, slot in slots.items()
        }
        self._turns: dict[str, tuple[int, bool]] = {}
        self._kept: set[str] = set()
        self._last: Record | None = None
        self.facts = Facts()
        self.violations: list[Violation] = []

    def observe(self, record: Record) -> list[Violation]:
        """Take the next record of the trace; the violations that it is."""
        self._take_turn(record)
        plan = self._plans.plan(record, self)
        kept, slots = self._kept, self.slots
        if not plan.kept <= kept:
            kept |= plan.kept
        found: list[Violation] = []
        for live, judge, rule in plan.rules:
            if slots[live]:
                said = judge(record, self)
                if said is True:
                    kept.add(rule.clause)
                elif said:
                    found.append(self._violation(rule, record, said))
        for table in plan.tables:
            found += self._judged(record, *table)
        self._fold(plan, record)
        if plan.may_end:
            self._clear(record)
        if plan.may_tell:
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
        """What is live now; equal snapshots judge what follows alike.

        Only the order of the records that states refer to counts, not how they are numbered.
        """
        held = [(each, key) for each, states in self._states.items() for key in states]
        states = [(each.type, self._states[each][key]) for each, key in held]
        *live, turns = renumbered([*states, (Turns, tuple(sorted(self._turns.items())))])
        pairs = zip(held, live, strict=True)
        return (self.facts, turns, frozenset((*which, state) for which, state in pairs))

    # --- what a rule may ask for (Seen)

    def at(self, view: View, key: Key = ()) -> Any:
        """What `view` has under `key`, or None; nothing is under what cannot be a key."""
        try:
            return self._states[view].get(key)
        except TypeError:
            return None

    def all(self, view: View) -> Mapping[Any, Any]:
        """Everything that is live in `view`."""
        return self._states[view]

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
        self, record: Record, subjects: Subjects, asked: tuple[Each, ...], rules: tuple[Rule, ...]
    ) -> list[Violation]:
        """What rules about the same subjects say of each that is in the record."""
        broken: dict[Rule, Violation] = {}
        answers: list[Said] = []
        for subject in subjects(record, self):
            before = answers
            answers = [each(subject) for each in asked]
            if answers == before:
                continue  # nearly always: they say the same of all, and it is noted
            for said, rule in zip(answers, rules, strict=True):
                if said is True:
                    self._kept.add(rule.clause)
                elif said and rule not in broken:
                    broken[rule] = self._violation(rule, record, said)
        return list(broken.values())

    def _fold(self, plan: Plan, record: Record) -> None:
        slots = self.slots
        for key_of, views in plan.alone:
            key = key_of(record)
            if key is None:
                continue
            for live, slot, fold in views:
                if slots[live]:
                    states = slots[slot]
                    was = states.get(key)
                    state = fold(was, None, record, self)
                    if state is not was:
                        put(states, key, state)
        if plan.keyed or plan.parted:
            self._fold_together(plan, record)

    def _fold_together(self, plan: Plan, record: Record) -> None:
        """Views that are read by others see each other as they were before the record."""
        slots = self.slots
        after: list[tuple[dict[Key, State], Key, State]] = []
        for key_of, views in plan.keyed:
            key = key_of(record)
            if key is None:
                continue
            for live, slot, fold in views:
                if slots[live]:
                    states = slots[slot]
                    was = states.get(key)
                    state = fold(was, None, record, self)
                    if state is not was:
                        after.append((states, key, state))
        for live, slot, parts, fold in plan.parted:
            if slots[live]:
                states = slots[slot]
                for key, part in parts(record, self):
                    was = states.get(key)
                    state = fold(was, part, record, self)
                    if state is not was:
                        after.append((states, key, state))
        for states, key, state in after:
            put(states, key, state)

    def _clear(self, record: Record) -> None:
        """A party is gone: what was live between it and the job manager ends without a verdict."""
        for each, states in self._states.items():
            if each.clears is not None and each.clears(record, self.facts):
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
