"""Trying a proof: which run of the tests proves a clause."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.planter.findings import ROOT, Finding, Findings
from tests.proofs.entries import Edit, Proof
from tests.proofs.trying import Run, Trial, assertion, edited, read_outcomes, run_file, verdict

EDIT = Edit("flux_trio/lamp.py", "RED", "GREEN")
PROOF = Proof((EDIT,), "tests/test_toys.py::test_a", "27.alloc.1", also=("test_b",))


def phase(
    when: str = "call", *, asserted: bool = True, broken: Iterable[str] = ()
) -> dict[str, Any]:
    return {"phase": when, "asserted": asserted, "broken": list(broken), "text": "said"}


ASSERTED, CRASHED = [phase()], [phase(asserted=False)]
JUDGED, JUDGED_OTHERWISE = (
    [phase("teardown", broken=[id_])] for id_ in ("27.alloc.1", "27.alloc.2")
)


@pytest.mark.parametrize(
    ("failures", "why"),
    [
        ({"test_a": ASSERTED, "test_b": CRASHED}, ""),
        ({"test_a[x]": ASSERTED, "test_b": CRASHED}, ""),
        ({"test_a": JUDGED, "test_b": CRASHED}, ""),
        ({"test_b": ASSERTED}, "the test passes"),
        ({"test_a": CRASHED, "test_b": ASSERTED}, "test_a crashes: call: said"),
        ({"test_a[x]": ASSERTED, "test_a[y]": CRASHED}, "test_a[y] crashes: call: said"),
        ({"test_a": JUDGED_OTHERWISE}, "test_a crashes: teardown is about something else: said"),
        ({"test_a": ASSERTED}, "these tests of `also` pass: test_b"),
        ({"test_a": ASSERTED, "test_b": ASSERTED, "test_c": ASSERTED}, "other tests fail: test_c"),
    ],
)
def test_a_proof_holds_when_its_tests_fail_by_assertion_and_no_others(
    failures: dict[str, list[dict[str, Any]]], why: str
) -> None:
    assert verdict(PROOF, Run({"test_a"}, failures)) == why


def test_what_the_test_says_is_kept_with_the_proof() -> None:
    assert assertion(PROOF, Run(failures={"test_b": CRASHED, "test_a[x]": ASSERTED})) == "said"


def test_a_run_that_says_nothing_proves_nothing() -> None:
    assert verdict(PROOF, Run(trouble="the run broke off")) == "the run broke off"
    assert verdict(PROOF, Run({"test_c"})) == "the test did not run"


def test_a_run_that_breaks_off_or_tests_another_program_is_told(tmp_path: Path) -> None:
    ours = f'{{"program": "{tmp_path}"}}\n'
    assert read_outcomes(ours, tmp_path).trouble == "the run broke off"
    assert read_outcomes(ours + '{"ended": true}\n', tmp_path).trouble == ""
    assert "the program in /x" in read_outcomes('{"program": "/x"}\n', tmp_path).trouble


def test_edits_are_taken_back(tmp_path: Path) -> None:
    (tmp_path / "flux_trio").mkdir()
    lamp = tmp_path / EDIT.file
    lamp.write_text("RED = 1")
    with edited(tmp_path, [EDIT, Edit(EDIT.file, "GREEN", "DARK")]):
        assert lamp.read_text() == "DARK = 1"
    assert lamp.read_text() == "RED = 1"


TOYS = """
from flux_trio.judge import load_clauses


def test_registry_has_clauses() -> None:
    assert "27.alloc.1" in load_clauses()


def test_of_something_else() -> None:
    assert True
"""
REGISTRY = "flux_trio/judge/clauses/registry.py"
READS = "return parse_clauses(_read(CLAUSES_FILE), CLAUSES_FILE)"


@pytest.mark.real
def test_an_edit_is_tried_in_a_copy_and_noticed_by_assertion_or_crash(tmp_path: Path) -> None:
    tree = tmp_path / "0"
    clauses = ROOT / Path(REGISTRY).parent
    (tree / "flux_trio/judge/clauses").mkdir(parents=True)
    (tree / "tests").mkdir()
    for directory, kept in [("flux_trio", "judge"), ("flux_trio/judge", "clauses")]:
        for path in (ROOT / directory).iterdir():
            if path.name not in (kept, "__pycache__"):
                (tree / directory / path.name).symlink_to(path)
    for path in clauses.iterdir():
        if path.is_file():
            (tree / REGISTRY).with_name(path.name).write_bytes(path.read_bytes())
    for name in ("planter", "proofs", "support"):
        (tree / "tests" / name).symlink_to(ROOT / "tests" / name)
    (tree / "tests/test_toys.py").write_text(TOYS)
    (tree / "pytest.ini").write_text("[pytest]\n")
    test = "tests/test_toys.py::test_registry_has_clauses"
    for new, why in [
        ("return {}", ""),
        (READS.replace("CLAUSES_FILE)", "REASONS_FILE)", 1), "crashes: call: FormatError"),
        (READS + "  # the same", "the test passes"),
    ]:
        proof = Proof((Edit(REGISTRY, READS, new),), test, "27.alloc.1")
        with edited(tree, proof.edit):
            found = verdict(proof, run_file(tree, "tests/test_toys.py"))
        assert why in found if why else not found


def test_what_holds_for_this_code_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    Findings(path, "now").add(Finding(PROOF.digest(), PROOF.test))
    trial = Trial(Findings(path, "now"), print)
    assert trial.holds(PROOF)
    trial.run([PROOF])
    assert not Trial(Findings(path, "later"), print).holds(PROOF)
