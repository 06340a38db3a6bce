"""Judges an examination: which cases count, which of them pass, and what has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

from tests.real.examiner.tap import Outcome

Result = Literal["passes", "fails", "needs none", "exempt", "not here"]
"""`passes` and `fails` count. `needs none` passes without any instance, and `not here` is a case
that flux-core itself does not pass on the machine of the run: it lacks a program, or the case is
skipped."""
Results = dict[str, dict[str, Result]]
"""By file and case."""

COUNTED: Final = ("passes", "fails")


def judged(
    core: Mapping[str, Outcome],
    none: Mapping[str, Outcome],
    ours: Mapping[str, Outcome],
    exempt: Mapping[str, str],
) -> dict[str, Result]:
    """Return the result of each case of a file that was played in all three settings.

    A case that was not reached with us has failed.
    """

    def result(case: str) -> Result:
        if core[case] != "ok":
            return "not here"
        if case in exempt:
            return "exempt"
        if none.get(case) == "ok":
            return "needs none"
        return "passes" if ours.get(case) == "ok" else "fails"

    return {case: result(case) for case in core}


def judged_again(recorded: Mapping[str, Result], ours: Mapping[str, Outcome]) -> dict[str, Result]:
    """Return the results of a file that was played again with us alone."""
    found = dict(recorded)
    for case, result in recorded.items():
        if result in COUNTED:
            found[case] = "passes" if ours.get(case) == "ok" else "fails"
    return found


def worse(recorded: Results, found: Results) -> list[str]:
    """Return the cases that passed and do not any more: `FILE: CASE`."""
    return _changed(recorded, found, "passes", "fails")


def better(recorded: Results, found: Results) -> list[str]:
    """Return the cases that failed, or are new, and pass."""
    return _changed(recorded, found, "fails", "passes")


def _changed(recorded: Results, found: Results, before: Result, after: Result) -> list[str]:
    return [
        f"{file}: {case}"
        for file, cases in found.items()
        for case, result in cases.items()
        if result == after and recorded.get(file, {}).get(case) == before
    ]


def counts(cases: Mapping[str, Result]) -> Counter[Result]:
    """Return how many cases there are of each result."""
    return Counter(cases.values())


def share(results: Results) -> tuple[int, int]:
    """Return how many cases pass, of how many that count."""
    found = Counter(result for cases in results.values() for result in cases.values())
    return found["passes"], sum(found[each] for each in COUNTED)


def unexplained(results: Results, reasons: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return the cases that fail and have no reason."""
    return [
        f"{file}: {case}"
        for file, cases in results.items()
        for case, result in cases.items()
        if result == "fails" and case not in reasons.get(file, {})
    ]


def outdated(results: Results, reasons: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return the reasons of cases that do not fail."""
    return [
        f"{file}: {case}"
        for file, cases in reasons.items()
        for case in cases
        if results.get(file, {}).get(case) != "fails"
    ]
