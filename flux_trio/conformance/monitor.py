"""The monitor: hands each record to the rules it concerns, and keeps the verdicts.

It is itself a machine with a hashable state (`snapshot`), holds no record but those that a live
state or a broken verdict refers to, and can watch a trace as it happens or read one afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from flux_trio.conformance.facts import Facts
from flux_trio.conformance.leg import ANY_TOPIC, ERROR, WITH_R, Key, Leg, errnum, payload
from flux_trio.conformance.registry import Clause
from flux_trio.conformance.rule import Broken, Rule, Said, State, Step
from flux_trio.conformance.view import View
from flux_trio.messages import Event, Request, Response, service_of, topics
from flux_trio.trace import Kind, Record

# What the job manager takes up when a party is gone, new, or has failed.
ENDINGS: Final = {topics.JOB_MANAGER_DISCONNECT, topics.SCHED_HELLO, topics.EXEC_HELLO}
FATALITIES: Final = {topics.SCHED_ALLOC, topics.SCHED_FREE}

LEGS_MAX: Final = 4096  # that are remembered: topics are what peers choose to send


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
        self._by_leg = _ByLeg(self._rules)
        self._states: dict[Rule, dict[Key, State]] = {
            rule: {} for rule in self._rules if rule.apply is not None
        }
        self._views = _in_order(view for rule in self._rules for view in rule.views)
        self._views_by_leg = _ByLeg(self._views)
        self._view_states: dict[View, dict[Key, State]] = {view: {} for view in self._views}
        self._turns: dict[str, tuple[int, bool]] = {}  # party → where it began, whether it sent
        self._kept: set[str] = set()
        self._last: Record | None = None
        self.facts = Facts()
        self.violations: list[Violation] = []

    def observe(self, record: Record) -> list[Violation]:
        """Take the next record of the trace; the violations that it is."""
        self._take_turn(record)
        leg = leg_of(record, self.facts)
        found = []
        for rule in self._by_leg.on(leg):
            judge = rule.judge
            said = self._applied(rule, record) if judge is None else judge(record, self)
            if isinstance(said, Broken):
                found.append(self._violation(rule, record, said))
            elif said:
                self._kept.add(rule.clause)
        self._fold(self._views_by_leg.on(leg), record)
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
        """What `view` has under `key`, or None."""
        return self._view_states[view].get(key)

    def all(self, view: View) -> Mapping[Any, Any]:
        """Everything that is live in `view`."""
        return self._view_states[view]

    def knew(self, party: str, n: int) -> bool:
        """Whether `party` has come back to its inbox since it took up the message at `n`."""
        return n < self._turns.get(party, (0, False))[0]

    # --- how

    def _take_turn(self, record: Record) -> None:
        """A turn of a party: what it takes up, then what it sends."""
        if record.kind == Kind.RECV:
            began, has_sent = self._turns.get(record.party, (0, True))
            if has_sent:
                self._turns[record.party] = (record.n, False)
        elif record.kind == Kind.SEND:
            began, has_sent = self._turns.get(record.party, (0, True))
            if not has_sent:
                self._turns[record.party] = (began, True)

    def _applied(self, rule: Rule, record: Record) -> Said:
        """What a rule says that keeps a state of its own."""
        key = rule.key(record)
        if key is None or rule.apply is None:
            return None
        states = self._states[rule]
        step: Step = rule.apply(states.get(key), record, self.facts)
        _put(states, key, step.state)
        return step.broken or step.kept

    def _fold(self, views: Iterable[View], record: Record) -> None:
        """All views see each other as they were before the record."""
        after = []
        for view in views:
            states = self._view_states[view]
            for key, part in view.parts(record, self):
                after.append((states, key, view.fold(states.get(key), part, record, self)))
        for states, key, state in after:
            _put(states, key, state)

    def _clear(self, record: Record) -> None:
        """A party is gone: what was live between it and the job manager ends without a verdict."""
        if record.kind != Kind.RECV or not _may_end(record):
            return
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


def leg_of(record: Record, facts: Facts) -> Leg:
    """Which leg a record is on."""
    found = record.message
    if isinstance(found, (Request, Response, Event)):
        topic = found.topic
        if facts.exec_service and service_of(topic) == facts.exec_service:
            topic = "<exec>" + topic[len(facts.exec_service) :]
        mark = _mark(record, facts)
        return Leg(record.kind, type(found).__name__.lower(), topic, mark)
    if record.kind == Kind.EVENT:
        return Leg(record.kind, "", str((record.data or {}).get("name", "")))
    return Leg(record.kind)


def _mark(record: Record, facts: Facts) -> str:
    found = record.message
    if isinstance(found, Response):
        if found.errnum:
            return ERROR
        return (
            WITH_R if found.topic == topics.KVS_LOOKUP and record.party == facts.scheduler else ""
        )
    if getattr(found, "topic", "") != topics.KVS_COMMIT:
        return ""
    ops = payload(record).get("ops")
    return WITH_R if isinstance(ops, list) and any(map(_is_of_r, ops)) else ""


def _is_of_r(op: Any) -> bool:
    return isinstance(op, (list, tuple)) and len(op) > 1 and str(op[1]).endswith(".R")


class _ByLeg:
    """Rules or views by the legs that they are on; what is found for a leg is remembered."""

    def __init__(self, machines: Iterable[Any]) -> None:
        self._here: dict[Leg, dict[Any, int]] = {}  # by leg without mark: and its place of all
        self._found: dict[Leg, list[Any]] = {}
        for place, machine in enumerate(machines):
            for leg in machine.legs:
                topic = ANY_TOPIC if leg.topic.startswith(ANY_TOPIC) else leg.topic
                here = Leg(leg.kind, leg.type, topic)
                self._here.setdefault(here, {})[machine] = place

    def on(self, leg: Leg) -> list[Any]:
        """All that a record on `leg` concerns, in their order."""
        found = self._found.get(leg)
        if found is None:
            if len(self._found) >= LEGS_MAX:
                self._found.clear()
            near = self._here.get(leg._replace(mark=""), {}) | self._here.get(
                Leg(leg.kind, leg.type, ANY_TOPIC), {}
            )
            found = [each for each in near if any(one.covers(leg) for one in each.legs)]
            self._found[leg] = found = sorted(found, key=near.__getitem__)
        return found


def _in_order(views: Iterable[View]) -> list[View]:
    """These views and those they read, each once."""
    found: dict[View, None] = {}

    def take(views: Iterable[View]) -> None:
        for view in views:
            take(view.reads)
            found[view] = None

    take(views)
    return list(found)


def _put(states: dict[Key, State], key: Key, state: State) -> None:
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state


def _may_end(record: Record) -> bool:
    found = record.message
    if isinstance(found, Request):
        return found.topic in ENDINGS
    return bool(errnum(record)) and getattr(found, "topic", "") in FATALITIES
