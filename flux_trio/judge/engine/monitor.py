"""The monitor: passes each record to the rules that select it, and keeps the verdicts.

A monitor keeps only the records that a violation refers to, and can be put down. It can watch a
trace as it happens, or read one afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from flux_trio.formats import job_key
from flux_trio.formats.fluid import job_directory_of
from flux_trio.judge.clauses.registry import Clause
from flux_trio.judge.engine.causes import Causes, Explanations, Violation
from flux_trio.judge.engine.clock import Clock, ClockState, slept_of, step_of
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.knowing import Knowledge, Known
from flux_trio.judge.engine.packed import Packed
from flux_trio.judge.engine.readers import KINDS_MAX, Readers, all_readers
from flux_trio.judge.engine.rule import Broken, Rule
from flux_trio.judge.engine.selector import CLOCK, FAULT, job_id
from flux_trio.judge.engine.view import Key, Place, View, put
from flux_trio.trace import Record

States: TypeAlias = MutableMapping[Key, Hashable]
Note: TypeAlias = Callable[[Record, frozenset[str]], object]
"""A function that is called with a record, and the clauses that it kept or broke."""

_OF_TIME: Final = frozenset({CLOCK, FAULT})


class Verdict(StrEnum):
    KEPT = "kept"
    BROKEN = "broken"
    ADVICE = "advice"
    """Broken, and only recommended (readings: Advice)."""
    KNOWN = "known"
    """Broken, and only in ways that are known of the implementation (`--known`)."""
    NOT_EXERCISED = "not exercised"


PROMPT_S: Final = 1.0
"""Seconds within which an idle party acts on a message; in simulated time every party does. An
action that was due for longer when its party leaves counts as left out."""


def _is_of(key: Hashable, jobs: frozenset[int], directories: set[str]) -> bool:
    """Whether the key of a state is of one of these jobs: its id, or a key of the KVS."""
    if isinstance(key, str):
        return job_directory_of(key) in directories
    return key in jobs


class MonitorState(NamedTuple):
    """The whole state of a `Monitor` as values, from which another monitor goes on."""

    facts: Facts
    states: tuple[tuple[tuple[Key, Hashable], ...], ...]
    """The states of each view with their keys, by slot."""
    known: Known
    clock: ClockState
    t: float
    ahead: float
    last: Record | None
    left: tuple[Violation, ...]
    leaver: str
    """The party that has begun to leave, "" without one."""
    first: tuple[Violation, ...]
    kept: frozenset[str]
    violations: tuple[Violation, ...]
    unexplained: tuple[Violation, ...]
    broken: tuple[Place, ...]
    """What may explain what comes; as `Explanations`."""


class Monitor:
    """Judges one trace by `rules`; `clauses` has the sentences.

    All rules are applied. The caller leaves out the rules that need data which the trace does not
    have (`judge_trace` does so). If the trace `is_simulated`, a party has acted on what it received
    PROMPT_S ago. If it `is_routed`, its receipts say only when a router forwarded a message. Unless
    it `begins` with the instance, rules wait for what they need to know (`Rule.since`). `note` is
    called with each record and the clauses that it kept or broke.

    `violations` and `unexplained` are all so far: clauses that were broken, and what happened and
    breaks none (`UNEXPLAINED`). Who watches for long takes what is there, and clears both.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        clauses: Mapping[str, Clause],
        note: Note | None = None,
        *,
        is_simulated: bool = False,
        is_routed: bool = False,
        begins: bool = True,
    ) -> None:
        self._clauses = clauses
        self._note = note
        self._rules = tuple(rules)
        self._readers = all_readers(self._rules)
        slots = self._readers.slots
        self.slots: list[States] = [{(): True}, *map(self._no_states, slots)]  # the first is ALWAYS
        self.states: Mapping[View, States] = {
            each: self.slots[slot] for each, slot in slots.items()
        }
        self._known = Knowledge(is_routed=is_routed)
        self._kept: set[str] = set()
        self._asked: set[Readers] = set()
        self._met: set[str] = set()
        self._last: Record | None = None
        self._t = self._ahead = 0.0
        self._clock = Clock(PROMPT_S)
        self._is_simulated = is_simulated
        self._causes = Causes(clauses)
        self._left: list[Violation] = []
        self._leaver = ""
        """The party that has begun to leave, service by service."""
        self.facts = Facts(begins=begins)
        self.violations: list[Violation] = []
        self.unexplained: list[Violation] = []
        self._explanations = Explanations()

    def observe(self, record: Record) -> list[Violation]:
        """Take the next record of the trace, and return its violations."""
        self._known.observe(record)
        t = record.t - self._ahead
        if t >= self._clock.next_t or record.kind in _OF_TIME:
            self._advance_clock(record)
        else:
            self._t = t
        if not self.facts.begins:
            self.facts = self.facts.shown_by(record)
        readers = self._readers.of(record, self)
        if readers not in self._asked:
            self._note_kind(readers)
        if self._left or readers.is_of_parties:
            self._note_debts(record, readers)
        found = self._ask(record, readers)
        self._fold(record, readers)
        if readers.is_of_parties:
            self._change_parties(record, readers)
        if found:
            found = self._keep_found(found)
        self._last = record
        return found

    def learn(self, record: Record, views: Iterable[View]) -> None:
        """Pass a record from before the trace to `views` alone; no rule judges it."""
        slots = {self._readers.slots[each] for each in views}
        readers = self._readers.of(record, self)
        parted = tuple(each for each in readers.parted if each.slot in slots)
        keyed = tuple(each for each in readers.keyed if each.slot in slots)
        self._fold(record, replace(readers, parted=parted, keyed=keyed))

    def _keep_found(self, found: list[Violation]) -> list[Violation]:
        """Keep what was found in a record; return the violations of clauses."""
        broken = [each for each in found if not each.is_unexplained]
        if broken:
            broken = self._causes.of_record(broken)
            self.violations += broken
            self._explanations.note(broken)
            return broken
        self.unexplained += [each for each in found if not self._explanations.explains(each)]
        return []

    def _ask(self, record: Record, readers: Readers) -> list[Violation]:
        """Ask the rules about a record; return the violations, and add what is kept."""
        slots = self.slots
        kept, broken = [], []
        for live, rule, ask in readers.rules:
            if slots[live]:
                said = ask(record, self)
                if said is True:
                    kept.append(rule.clause)
                elif said:
                    broken.append((rule, said))
        self._kept.update(kept)
        if self._note is not None:
            told = [rule.clause for rule, _ in broken if rule.is_of_clause]
            self._note(record, frozenset([*kept, *told]))
        if not broken:
            return []
        jobid = job_id(record)
        return [
            self._violation(rule, record, said, jobid if said.job is None else said.job)
            for rule, said in broken
        ]

    def _fold(self, record: Record, readers: Readers) -> None:
        """Fold a record into the states of the views."""
        slots = self.slots
        after = []
        for live, slot, fold, parts, _ in readers.parted:
            if slots[live] and parts is not None:
                states = slots[slot]
                for key, part in parts(record, self):
                    was = states.get(key)
                    state = fold(was, part, record, self)
                    if state is not was:
                        after.append((states, key, state))
        for live, slot, fold, _, key_of in readers.keyed:
            if slots[live] and key_of is not None and (key := key_of(record)) is not None:
                states = slots[slot]
                was = states.get(key)
                state = fold(was, None, record, self)
                if state is not was:
                    put(states, key, state)
        for states, key, state in after:
            put(states, key, state)

    def debts(self) -> list[Violation]:
        """Return what is due and not done, with what was overdue when the parties left.

        Debts of one job are of one thing: one of them is the cause of the others.
        """
        return self._causes.of_debts(self._due())

    def finish(self) -> list[Violation]:
        """End a trace that is at rest: a debt is a violation, unless it may wait.

        Do not call it for a trace that was cut short: a party may have been about to act.
        """
        due = self._due()
        broken = [each for each in due if not each.may_wait and not each.is_unexplained]
        found = self._causes.of_debts(broken)
        self.violations += found
        self.unexplained += [each for each in due if each.is_unexplained]
        return found

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of every clause that has a rule here."""
        broken = {violation.clause for violation in self.violations}
        judged = {rule.clause for rule in self._rules if rule.is_of_clause}
        kept = dict.fromkeys(judged & self._kept, Verdict.KEPT)
        return (
            dict.fromkeys(judged, Verdict.NOT_EXERCISED)
            | kept
            | dict.fromkeys(broken, Verdict.BROKEN)
        )

    def met(self) -> set[str]:
        """Return the clauses of which there were messages that their rules are about."""
        return self._met

    def forget(self, jobs: Iterable[int]) -> None:
        """Drop what is kept of jobs that have ended long ago: for a watch of months."""
        jobs = frozenset(jobs)
        directories = {job_key(each, "").rstrip(".") for each in jobs}
        for states in self.slots:
            gone = [key for key in states if _is_of(key, jobs, directories)]
            for key in gone:
                del states[key]

    def kept(self) -> Iterable[tuple[View, int]]:
        """Return the views, each with the slot of its states in `MonitorState`."""
        return self._readers.slots.items()

    def put_down(self) -> MonitorState:
        """Return all that the monitor has, from which `take_up` goes on."""
        return MonitorState(
            facts=self.facts,
            states=tuple([tuple(states.items()) if states else () for states in self.slots]),
            known=self._known.state(),
            clock=self._clock.state(),
            t=self._t,
            ahead=self._ahead,
            last=self._last,
            left=tuple(self._left),
            leaver=self._leaver,
            first=self._causes.state(),
            kept=frozenset(self._kept),
            violations=tuple(self.violations),
            unexplained=tuple(self.unexplained),
            broken=self._explanations.state(),
        )

    def take_up(self, standing: MonitorState) -> None:
        """Go on from the state of another monitor with the same rules."""
        for slot, states in zip(self.slots, standing.states, strict=True):
            if slot:
                slot.clear()
            for key, state in states:
                slot[key] = state
        self.facts, self._last, self._t = standing.facts, standing.last, standing.t
        self._ahead = standing.ahead
        self._known.take_up(standing.known)
        self._clock.take_up(standing.clock)
        self._causes.take_up(standing.first)
        self._left, self._leaver = list(standing.left), standing.leaver
        self._kept.clear()
        self._kept |= standing.kept
        self.violations = list(standing.violations)
        self.unexplained = list(standing.unexplained)
        self._explanations.take_up(standing.broken)

    # --- the interface for rules (Seen)

    def at(self, view: View, key: Key = ()) -> Any:
        try:
            return self.states[view].get(key)
        except TypeError:
            return None

    def all(self, view: View) -> Mapping[Any, Any]:
        return self.states[view]

    def knew(self, party: str, n: int) -> bool:
        return self._known.knew(party, n) or (self._is_simulated and self.is_old(n))

    def takes_at_once(self, party: str) -> bool:
        return self._known.takes_at_once(party)

    def requests_of(self, party: str) -> Iterable[tuple[tuple[str, int], int]]:
        return self._known.requests_of(party)

    def may_act_on(self, party: str) -> int:
        return self._known.may_act_on(party)

    def is_old(self, n: int) -> bool:
        """Whether record `n` is PROMPT_S seconds old, in time during which parties could act."""
        return n <= self._old()

    # --- implementation

    def _no_states(self, of: View) -> States:
        """Return the place for the states of a view; a search of small worlds has its own."""
        return {} if of.packing is None else Packed(of.packing)

    def _note_kind(self, readers: Readers) -> None:
        """Note the clauses that a new kind of record is about."""
        if len(self._asked) >= KINDS_MAX:  # topics may have any number of names
            self._asked.clear()
        self._asked.add(readers)
        self._met |= {rule.clause for _, rule, _ in readers.rules}

    def _advance_clock(self, record: Record) -> None:
        """Tell the clock what time has passed.

        No time passes when the wall clock is set, nor while the machine sleeps.
        """
        before, self._t = self._t, record.t - self._ahead
        if record.kind == CLOCK:
            self._ahead += step_of(record)
            self._t = record.t - self._ahead
        if self._t >= self._clock.next_t:
            last = self._last
            self._clock.sample(self._t, None if last is None else (before, last.n))
        if record.kind == FAULT:
            self._ahead += slept_of(record)

    def _change_parties(self, record: Record, readers: Readers) -> None:
        """Take it that a party comes, goes or gets a role."""
        if readers.may_clear:
            self._clear(record)
        if readers.changes_facts:
            self.facts = self.facts.after(record)

    def _clear(self, record: Record) -> None:
        """When a party has gone, drop its states with the job manager, without a verdict."""
        for each, states in self.states.items():
            if each.clears is not None and each.clears(record, self.facts):
                states.clear()

    def _old(self) -> int:
        """Return the number of the last record that is PROMPT_S old."""
        return self._clock.old(self._t)

    def _note_debts(self, record: Record, readers: Readers) -> None:
        """Keep what is overdue before a party leaves; forget it if it comes back or acts after all.

        It is due since the last of the records that explain it. What may wait for the answer to a
        later call is not overdue.

        Whoever leaves takes its states along: what it had to do would be forgotten with them. What
        the job manager had to do before it is not done by a party that comes back.
        """
        if readers.may_return:
            self._leaver = ""
            manager = self.facts.manager
            self._left = [each for each in self._left if each.party == manager != record.party]
        elif readers.may_leave and self.facts.is_leaving(record):
            if self._leaver == record.party:
                return  # with its first disconnect, answers that it waited for have become void
            self._leaver = record.party
            old = self._old()
            known = {(each.clause, each.jobid) for each in self._left}
            self._left += [
                each
                for each in self._debts(is_leaving=True)
                if each.because
                and (since := max(each.because)) <= old
                and not self._known.awaits(each.party, since)
                and (each.clause, each.jobid) not in known
            ]
        elif (jobid := job_id(record)) is not None:
            self._left = [each for each in self._left if each.jobid != jobid]

    def _due(self) -> list[Violation]:
        """Return the debts of now, and those that were overdue when the parties left."""
        explains = self._explanations.explains
        debts = self._debts()
        found = [each for each in debts if not (each.is_unexplained and explains(each))]
        known = {(each.clause, each.jobid) for each in found}
        return found + [each for each in self._left if (each.clause, each.jobid) not in known]

    def _debts(self, *, is_leaving: bool = False) -> list[Violation]:
        last = self._last
        if last is None:
            return []
        return [
            self._violation(rule, last, broken, broken.job, is_debt=True)
            for rule in self._readers.with_debts
            if not rule.since or self.facts.has_begun(rule.since)
            for broken in (rule.debts(self) if rule.debts is not None else ())
            if not (is_leaving and broken.is_to_leave)
        ]

    def _violation(
        self,
        rule: Rule,
        record: Record,
        broken: Broken,
        jobid: int | None,
        *,
        is_debt: bool = False,
    ) -> Violation:
        clause = self._clauses.get(rule.clause)
        sentence = clause.text if clause is not None else ""
        role: str = "" if clause is None else clause.violator or clause.actor
        party = broken.party
        if party:
            role = self.facts.role_as(party, role)
        elif role:
            party = self.facts.name_of(role, None if is_debt else record)
        return Violation(
            rule.clause,
            sentence,
            party,
            broken.text,
            record,
            broken.because,
            jobid,
            role=role,
            is_missing=broken.is_missing,
            may_wait=broken.may_wait,
        )
