"""Judge a whole trace: select the rules that it can exercise, and collect the violations.

A rule is left out, with the reason, if its clause needs data that the trace does not have, or if
the trace's edition of the RFCs has changed the clause. Such a clause is not exercised; it is not
broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from flux_trio.judge.clauses.registry import ADVICE, Clause
from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.engine.monitor import Monitor, Note, Verdict
from flux_trio.judge.engine.rule import INSTANCE, Rule
from flux_trio.judge.engine.selector import EVENT
from flux_trio.judge.engine.view import View
from flux_trio.judge.joining import Joining
from flux_trio.trace import Record, Shown, Source

_LATE: Final = {
    True: "the trace begins while the instance runs",
    False: "the trace begins while the instance runs, and the module was not loaded since",
}
UNDECIDED: Final = "what the trace shows of it does not decide it: "
"""What a clause has in `left_out`, before what makes it apply, if there were messages to judge."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A known departure from `clause`: its reason, and the violations that belong to it."""

    clause: str
    why: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts and violations of a trace.

    `verdicts` has every clause that has a rule, in the registry's order; `left_out` has the reason
    for each clause that could not be exercised. `nrecords` is the number of records of the trace.
    `known` has the departures that were known, whose violations are not in `violations`. `advice`
    has what breaks a recommendation alone, once it is put `apart`. `debts` is
    what was due at the end of the trace and not done, of which only a trace at rest makes
    violations; `t_end` is the time of the last record. `unexplained` has what happened and breaks
    no clause: a suspension, a lost service, an error response.
    """

    form: str
    nrecords: int
    verdicts: Mapping[str, Verdict]
    violations: tuple[Violation, ...]
    left_out: Mapping[str, str]
    known: tuple[Expected, ...] = ()
    advice: tuple[Violation, ...] = ()
    debts: tuple[Violation, ...] = ()
    t_end: float = 0.0
    unexplained: tuple[Violation, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether no clause was broken, other than by known departures."""
        return not self.violations

    def narrowed(self, violations: Sequence[Violation], otherwise: Verdict) -> Judgement:
        """Return the judgement with only `violations`, which are some of its own.

        A clause that was broken, but by none of them, has the verdict `otherwise`.
        """
        left = {each.clause for each in violations}
        verdicts = {
            clause: otherwise if verdict is Verdict.BROKEN and clause not in left else verdict
            for clause, verdict in self.verdicts.items()
        }
        return replace(self, verdicts=verdicts, violations=tuple(violations))

    def apart(self) -> Judgement:
        """Return the judgement with the advice apart from what is broken (readings: Advice)."""
        advice = [each for each in self.violations if each.clause in ADVICE]
        if not advice:
            return self
        broken = linked_anew(
            [each for each in self.violations if each.clause not in ADVICE], advice
        )
        return replace(self.narrowed(list(broken), Verdict.ADVICE), advice=tuple(advice))

    def wanted(self) -> set[int]:
        """Return the numbers of all records that explain the violations and the debts."""
        shown = (*self.violations, *self.advice, *self.debts, *self.unexplained)
        return {n for each in shown for n in (*each.because, each.record.n)}

    def broken_things(self) -> list[tuple[Violation, list[Violation]]]:
        """Return each violation that is a cause, with the violations that follow from it."""
        things: dict[int, tuple[Violation, list[Violation]]] = {}
        for each in self.violations:
            if each.cause is None or id(each.cause) not in things:
                things[id(each)] = (each, [])
            else:
                things[id(each.cause)][1].append(each)
        return list(things.values())


def linked_anew(left: Iterable[Violation], gone: Iterable[Violation]) -> Iterator[Violation]:
    """Yield what is left; of those that follow from one that is gone, the first is the cause."""
    causes: dict[int, Violation | None] = {id(each): None for each in gone}
    for each in left:
        if id(each.cause) not in causes:
            yield each
            continue
        linked = msgspec.structs.replace(each, cause=causes[id(each.cause)])
        if linked.cause is None:
            causes[id(each.cause)] = linked
        yield linked


def judge_trace(
    source: Source,
    rules: Iterable[Rule],
    clauses: Mapping[str, Clause],
    *,
    classic: bool = True,
    at_rest: bool = False,
    note: Note | None = None,
) -> Judgement:
    """Judge all records of `source`; call `note` with each and the clauses that it kept or broke.

    Without `classic`, the clauses that the newest edition has changed are left out. With `at_rest`
    the trace ends in a quiet state: a response or event that is still due is a violation. Raises
    the errors of the source.
    """
    rules = list(rules)
    used, left_out = applicable(rules, source.shown, clauses, classic=classic)
    is_routed = not source.shown.crossings
    monitor = Monitor(used, clauses, note, is_routed=is_routed, begins=source.begins)
    joining = Joining(monitor)
    nrecords, t_end = 0, 0.0
    for record in source.records:
        monitor.observe(record)
        joining.after(record)
        nrecords, t_end = nrecords + 1, record.t
    debts = monitor.debts()
    unexplained = [*monitor.unexplained, *(each for each in debts if each.is_unexplained)]
    debts = [each for each in debts if not each.is_unexplained]
    if at_rest:
        monitor.finish()
        debts = [each for each in debts if each.may_wait]
    verdicts = dict.fromkeys(in_order(rules, clauses), Verdict.NOT_EXERCISED)
    verdicts |= monitor.verdicts()
    left_out |= reasons(used, monitor, verdicts, clauses)
    return Judgement(
        source.form,
        nrecords,
        verdicts,
        tuple(monitor.violations),
        left_out,
        debts=tuple(each for each in debts if each.cause is None),
        t_end=t_end,
        unexplained=tuple(unexplained),
    )


def reasons(
    rules: Iterable[Rule],
    monitor: Monitor,
    verdicts: Mapping[str, Verdict],
    clauses: Mapping[str, Clause],
) -> dict[str, str]:
    """Return why clauses with these rules were not exercised, though the trace has what it takes.

    A clause that is in neither this nor `left_out` is one of which the trace has nothing.
    """
    found = {
        id_: UNDECIDED + clauses[id_].trigger
        for id_ in monitor.met() & clauses.keys()
        if verdicts[id_] is Verdict.NOT_EXERCISED
    }
    for rule in rules:
        is_late = rule.since and not monitor.facts.has_begun(rule.since)
        if is_late and verdicts[rule.clause] is Verdict.NOT_EXERCISED:
            found[rule.clause] = _LATE[rule.since == INSTANCE]
    return found


def applicable(
    rules: Iterable[Rule], shown: Shown, clauses: Mapping[str, Clause], *, classic: bool
) -> tuple[list[Rule], dict[str, str]]:
    """Return the rules that a trace can exercise, and why each other clause is left out."""
    used: list[Rule] = []
    left_out: dict[str, str] = {}
    for rule in rules:
        why = _reason(rule, shown, clauses, classic=classic)
        if not why:
            used.append(rule)
        elif rule.is_of_clause:
            left_out.setdefault(rule.clause, why)
    judged = {rule.clause for rule in used}
    return used, {clause: why for clause, why in left_out.items() if clause not in judged}


def pick_records(source: Source, wanted: set[int]) -> dict[int, Record]:
    """Return the records with these numbers, by number."""
    last = max(wanted, default=0)
    found = {}
    for record in source.records:
        if record.n in wanted:
            found[record.n] = record
        if record.n >= last:
            break
    return found


def in_order(rules: Iterable[Rule], clauses: Mapping[str, Clause]) -> list[str]:
    """Return the clauses with a rule in the registry's order, then those not in the registry."""
    judged = dict.fromkeys(rule.clause for rule in rules if rule.is_of_clause)
    return [id_ for id_ in clauses if id_ in judged] + [id_ for id_ in judged if id_ not in clauses]


def _reason(rule: Rule, shown: Shown, clauses: Mapping[str, Clause], *, classic: bool) -> str:
    """Return why a rule is not applied; "" if it is."""
    clause = clauses.get(rule.clause)
    if not classic and clause is not None and clause.newest is not None and not rule.is_current:
        return f"{clause.newest} in the current edition"
    if rule.is_routed and shown.crossings:
        return "the trace shows matchtags, by which another rule judges"
    if rule.needs_crossing and not shown.crossings:
        return "the trace does not show what crossed"
    if rule.needs_headers and not shown.headers:
        return "the trace does not show matchtags, flags and userids"
    if rule.needs_payloads and not shown.payloads:
        return "the trace does not show payloads"
    if not shown.events and _reads_events(rule.selectors, rule.views):
        return "the trace does not show the events of jobs"
    return ""


def _reads_events(selectors: Iterable[object], views: Iterable[View]) -> bool:
    if any(getattr(selector, "kind", "") == EVENT for selector in selectors):
        return True
    return any(_reads_events(view.selectors, view.reads) for view in views)
