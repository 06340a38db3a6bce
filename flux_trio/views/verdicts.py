"""A judgement as text, as JSON and as JUnit XML: first the broken clauses, then what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.formats.spelling import spelled
from flux_trio.judge import UNEXPLAINED, Clause, Expected, Judgement, Verdict, Violation
from flux_trio.trace import Record, record_to_json
from flux_trio.views.arrows import tell
from flux_trio.views.junit import Case, junit_text

SHOWN_MAX: Final = 5
"""Violations of one clause that are shown in full in texts and pages."""

UNEXPLAINED_MAX: Final = 20
"""Things that no clause explains which are shown in texts and pages."""

INVARIANTS: Final = "invariants"


def group_of(clause: str) -> str:
    """Return the group of a clause: `RFC 27`, or INVARIANTS for a clause that no RFC states."""
    head = clause.partition(".")[0]
    return f"RFC {head}" if head.isdigit() else INVARIANTS


def in_groups(judgement: Judgement) -> list[tuple[str, list[str]]]:
    """Return the judged clauses by RFC in ascending order, invariants last."""

    def place(clause: str) -> tuple[bool, int]:
        head = clause.partition(".")[0]
        return (not head.isdigit(), int(head) if head.isdigit() else 0)

    ordered = sorted(judgement.verdicts, key=place)
    return [(name, list(clauses)) for name, clauses in groupby(ordered, group_of)]


Thing: TypeAlias = tuple[Violation, list[Violation]]
"""A broken thing: the violation that is its cause, and those that follow from it."""


def things_by_clause(judgement: Judgement) -> dict[str, list[Thing]]:
    """Return the broken things by the clause of their cause, in the order of the trace."""
    found: dict[str, list[Thing]] = {}
    for thing in judgement.broken_things():
        found.setdefault(thing[0].clause, []).append(thing)
    return found


def first_of_each(following: Iterable[Violation]) -> dict[str, Violation]:
    """Return the first violation of each clause."""
    first: dict[str, Violation] = {}
    for each in following:
        first.setdefault(each.clause, each)
    return first


def only_following(judgement: Judgement) -> dict[str, Violation]:
    """Return the clauses that are broken as consequences alone, each with its first violation."""
    following = [each for each in judgement.violations if each.cause is not None]
    causes = things_by_clause(judgement)
    return {id_: each for id_, each in first_of_each(following).items() if id_ not in causes}


def sums_of(judgement: Judgement) -> str:
    """Return how many things are broken and how many violations follow; "" if none follows."""
    things = len(judgement.broken_things())
    following = len(judgement.violations) - things
    return f"{things} broken, and {following} violations that follow from them" if following else ""


def story(violation: Violation, records: Mapping[int, Record]) -> list[Record]:
    """Return the records that show a violation, in order; the last one broke the clause."""
    earlier = sorted({n for n in violation.because if n in records and n != violation.record.n})
    return [*(records[n] for n in earlier), violation.record]


# --- text


def verdict_text(judgement: Judgement, records: Mapping[int, Record]) -> str:
    """Return a block for each broken thing, what is due, and counts; `records` has the records."""
    lines: list[str] = []
    for clause, alike in things_by_clause(judgement).items():
        for cause, following in alike[:SHOWN_MAX]:
            lines += [*cause_lines(cause, following, records), ""]
        more = len(alike) - SHOWN_MAX
        if more > 0:
            lines += [f"{clause}: broken {more} times more", ""]
    for section in (
        _advice_lines(judgement),
        _unexplained_lines(judgement),
        _debt_lines(judgement, records),
        _known_lines(judgement),
    ):
        shown = list(section)
        lines += [*shown, ""] if shown else []
    return "\n".join([*lines, *count_lines(judgement), ""])


def cause_lines(
    cause: Violation, following: list[Violation], records: Mapping[int, Record]
) -> Iterator[str]:
    """Yield the lines about a broken thing: the clause, what was found, and what followed."""
    yield from _block(cause, records)
    yield from _following_lines(following)


def _following_lines(following: list[Violation]) -> Iterator[str]:
    """Yield a line for each violation that follows from another one, the first of each clause."""
    if following:
        yield f"  consequences ({len(following)}):"
    for clause, each in first_of_each(following).items():
        yield f"    {clause:16} {spelled(each.text)}"


def kind_of(unexplained: Violation) -> str:
    """Return what happened, in words: `lost service`."""
    return unexplained.clause.removeprefix(UNEXPLAINED).replace("-", " ")


def _advice_lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each clause that recommends, how often it was not followed and how first."""
    if judgement.advice:
        yield "advice: recommended, and not done"
    counts = Counter(each.clause for each in judgement.advice)
    for clause, each in first_of_each(judgement.advice).items():
        by = f"{each.party}: " if each.party else ""
        yield f"  {clause:16} {times(counts[clause]):14} {by}{spelled(each.text)}"


def _unexplained_lines(judgement: Judgement) -> Iterator[str]:
    """Yield two lines for each thing that happened and breaks no clause: what, and its record."""
    if judgement.unexplained:
        yield "unexplained: no clause is broken that says why"
    for each in judgement.unexplained[:UNEXPLAINED_MAX]:
        yield f"  {kind_of(each):16} {spelled(each.text)}"
        yield f"  {tell(each.record, each.record.t)}"
    more = len(judgement.unexplained) - UNEXPLAINED_MAX
    if more > 0:
        yield f"  and {more} more"


def _debt_lines(judgement: Judgement, records: Mapping[int, Record]) -> Iterator[str]:
    """Yield a line for each thing that was due at the end and not done, and for how long."""
    if judgement.debts:
        yield "due at the end of the trace"
    for each in judgement.debts:
        age = age_of(each, judgement, records)
        since = "" if age is None else f", for {age:.3g} s"
        yield f"  {each.clause:16} {spelled(each.text)}{since}"


def age_of(debt: Violation, judgement: Judgement, records: Mapping[int, Record]) -> float | None:
    """Return the seconds since when something is due; None if the trace does not show it."""
    since = next((records[n] for n in debt.because if n in records), None)
    return None if since is None else judgement.t_end - since.t


def _known_lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each known departure: how often it occurred, and its reason."""
    if judgement.known:
        yield "known departures"
    for each in judgement.known:
        yield f"  {each.clause:16} {occurred(each):14} {each.why}"


def occurred(departure: Expected) -> str:
    """Return how often a known departure occurred, in words."""
    return times(len(departure.violations)) if departure.violations else "did not occur"


def times(count: int) -> str:
    return f"{count} time{'s' * (count > 1)}"


def _block(violation: Violation, records: Mapping[int, Record]) -> Iterator[str]:
    yield f"{violation.clause} broken by {violation.blamed or 'an unknown party'}"
    if violation.sentence:
        yield f"  clause: {violation.sentence}"
    yield f"  found:  {spelled(violation.text)}"
    shown = story(violation, records)
    for record in shown:
        yield f"  {tell(record, shown[0].t)}"


def count_lines(judgement: Judgement) -> Iterator[str]:
    """Yield for each RFC how many clauses are kept, broken and not exercised."""
    shown = verdicts_in(judgement)
    for name, clauses in in_groups(judgement):
        counts = Counter(judgement.verdicts[clause] for clause in clauses)
        numbers = "  ".join(f"{verdict.value} {counts[verdict]:3}" for verdict in shown)
        yield f"{name:10} {numbers}"
    totals = Counter(judgement.verdicts.values())
    numbers = "  ".join(f"{verdict.value} {totals[verdict]:3}" for verdict in shown)
    yield f"{'all':10} {numbers}  ({judgement.form}, {judgement.nrecords} records)"
    if sums := sums_of(judgement):
        yield sums


def verdicts_in(judgement: Judgement) -> list[Verdict]:
    """Return the verdicts that a report counts: KNOWN and ADVICE only if there are any."""
    optional = {Verdict.KNOWN: judgement.known, Verdict.ADVICE: judgement.advice}
    return [each for each in Verdict if optional.get(each, True)]


def why_not(judgement: Judgement, clauses: Mapping[str, Clause], id_: str) -> str | None:
    """Return why a clause was not exercised; None if it was."""
    if judgement.verdicts[id_] != Verdict.NOT_EXERCISED:
        return None
    if id_ in judgement.left_out:
        return judgement.left_out[id_]
    if id_ not in clauses:
        return "the trace has nothing that this invariant is about"
    return f"the trace does not show what makes it apply: {clauses[id_].trigger}"


# --- JSON


def verdict_json(
    judgement: Judgement, clauses: Mapping[str, Clause], records: Mapping[int, Record]
) -> dict[str, Any]:
    """Return each clause with its verdict, and each violation with its records."""
    return {
        "form": judgement.form,
        "records": judgement.nrecords,
        "kept": judgement.is_kept,
        "clauses": [
            {
                "id": id_,
                "verdict": verdict.value,
                "level": clauses[id_].level if id_ in clauses else None,
                "sentence": clauses[id_].text if id_ in clauses else "",
                "why": why_not(judgement, clauses, id_),
            }
            for id_, verdict in judgement.verdicts.items()
        ],
        "violations": [_violation_json(each, records) for each in judgement.violations],
        "advice": [_violation_json(each, records) for each in judgement.advice],
        "unexplained": [_violation_json(each, records) for each in judgement.unexplained],
        "debts": [
            {**_violation_json(each, records), "age": age_of(each, judgement, records)}
            for each in judgement.debts
        ],
        "known": [
            {"clause": each.clause, "why": each.why, "occurred": len(each.violations)}
            for each in judgement.known
        ],
    }


def _violation_json(violation: Violation, records: Mapping[int, Record]) -> dict[str, Any]:
    return {
        "clause": violation.clause,
        "sentence": violation.sentence,
        "party": violation.party,
        "role": violation.role,
        "text": spelled(violation.text),
        "because": list(violation.because),
        "n": violation.record.n,
        "cause": None if violation.cause is None else violation.cause.clause,
        "records": [msgspec.Raw(record_to_json(each)) for each in story(violation, records)],
    }


# --- JUnit


def verdict_junit(
    judgement: Judgement, clauses: Mapping[str, Clause], records: Mapping[int, Record], name: str
) -> str:
    """Return a test case for each clause.

    A clause fails with what follows from it. It is skipped if it is not exercised, or if it is
    broken as a consequence alone: `skipped` counts both, and the reason names the cause. So is what
    no clause explains, which fails nothing and is to be seen.
    """
    broken, skipped = things_by_clause(judgement), _skipped(judgement, clauses)
    suites = [
        (group, [_case(id_, clauses, broken.get(id_, []), skipped, records) for id_ in ids])
        for group, ids in in_groups(judgement)
    ]
    if judgement.unexplained:
        shown = judgement.unexplained[:UNEXPLAINED_MAX]
        suites.append(("unexplained", [_unexplained(each) for each in shown]))
    return junit_text(name, suites)


def _unexplained(violation: Violation) -> Case:
    name = f"{kind_of(violation)} at record {violation.record.n}"
    return Case(name, skipped=spelled(violation.text))


def _skipped(judgement: Judgement, clauses: Mapping[str, Clause]) -> dict[str, str]:
    """Return why clauses are skipped, by clause."""
    skipped = {
        id_: f"follows from {_cause_of(each).clause}: {spelled(each.text)}"
        for id_, each in only_following(judgement).items()
    }
    for id_, each in first_of_each(judgement.advice).items():
        skipped[id_] = f"advice: {spelled(each.text)}"
    for id_ in judgement.verdicts:
        if (why := why_not(judgement, clauses, id_)) is not None:
            skipped[id_] = why
    return skipped


def _cause_of(violation: Violation) -> Violation:
    return violation if violation.cause is None else violation.cause


def _case(
    id_: str,
    clauses: Mapping[str, Clause],
    things: Sequence[Thing],
    skipped: Mapping[str, str],
    records: Mapping[int, Record],
) -> Case:
    name = f"{id_} {clauses[id_].text if id_ in clauses else ''}".strip()
    if id_ in skipped or not things:
        return Case(name, skipped=skipped.get(id_, ""))
    blocks = [
        "\n".join(cause_lines(cause, following, records)) for cause, following in things[:SHOWN_MAX]
    ]
    message = spelled(things[0][0].text)
    return Case(name, "\n\n".join(blocks), message=message, kind=str(len(things)))
