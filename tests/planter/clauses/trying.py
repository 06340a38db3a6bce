"""Tries proofs: a proof holds when the named test fails by its assertion.

An assertion is an AssertionError, or what `pytest.raises` and `pytest.fail` raise, that comes from
a file of the tests or of flux_trio/testing; an `assert` in the program is a crash as any other.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from flux_trio.testing import ClausesBroken
from tests.planter.clauses.entries import Proof, function_of
from tests.planter.findings import ROOT, Finding, Findings
from tests.planter.mutants import Mutant
from tests.planter.running import Plan, causes_of, run, said_by

_OURS: Final = ("tests/", "conftest.py", "docs/", "flux_trio/testing/")


def try_proofs(
    proofs: Iterable[Proof], findings: Findings, processes: int, say: Callable[[str], None]
) -> None:
    """Try each of `proofs` that is not found to hold for this code, and keep what is found."""
    waiting = {
        each.digest(): each
        for each in proofs
        if not ((finding := findings.of(each.digest())) and finding.by)
    }
    if waiting:
        plan = ProofsPlan(waiting, findings, processes, say)
        run(plan, sorted({each.path for each in waiting.values()}))


class ProofsPlan(Plan):
    """Plants what breaks clauses; the test of each proof is to notice."""

    def __init__(
        self,
        proofs: dict[str, Proof],
        findings: Findings,
        processes: int,
        say: Callable[[str], None],
    ) -> None:
        self._proofs = proofs
        mutants = [Mutant(key, each.test, each.path, each.plant) for key, each in proofs.items()]
        super().__init__(mutants, findings, processes, say)

    def tests_for(self, mutant: Mutant, tests: Collection[str]) -> list[str]:
        """The named test, with each of its parameters if none are named."""
        return [each for each in tests if mutant.place in (each, function_of(each))]

    def judge(self, mutant: Mutant, phase: str, error: BaseException) -> tuple[bool, str]:
        """An assertion of the test counts, or of the judge about these clauses."""
        causes, said = list(causes_of(error)), said_by(error)
        if not all(map(_is_asserted, causes)):
            return False, f"the test crashes: {phase}: {said}"
        if phase != "call" and not set(self._proofs[mutant.name].ids) <= set(_broken(causes)):
            return False, f"the {phase} is about something else: {said}"
        return True, said

    def said(self, finding: Finding) -> str:
        """The clauses, and the assertion or the reason."""
        ids = " ".join(self._proofs[finding.mutant].ids)
        return f"{ids}: {'proven' if finding.by else 'NOT PROVEN'}: {why_of(finding)}"


def why_of(finding: Finding) -> str:
    """The assertion that proves, or why there is none."""
    return finding.why or "the test passes"


def _is_asserted(error: BaseException) -> bool:
    if not isinstance(error, AssertionError | pytest.fail.Exception):
        return False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
            return path.relative_to(ROOT).as_posix().startswith(_OURS)
    return False


def _broken(causes: Iterable[BaseException]) -> Iterator[str]:
    for error in causes:
        if isinstance(error, ClausesBroken):
            yield from (violation.clause for violation in error.violations)
