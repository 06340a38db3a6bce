"""The entries of proofs fit the tree; proofs are tried with operators and edits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flux_trio.judge import load_clauses
from tests.planter.clauses.entries import Proof, faults_of, read_entries
from tests.planter.coding import Edit
from tests.planter.findings import ROOT
from tests.planter.operators import Operator
from tests.support.clause_mentions import clause_mentions

PATCHES_MAX = 150
TEST = "tests/cores/test_job_manager_sched.py::test_hello_without_allocations_ends_at_once"
SIDE = "flux_trio/cores/job_manager/scheduler/side.py"
IS_STREAMING = "if not request.is_streaming:"
TRY = """
import sys
from pathlib import Path

import msgspec

from tests.planter.clauses.entries import Proof
from tests.planter.clauses.trying import try_proofs
from tests.planter.findings import Findings

proofs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Proof])
try_proofs(proofs, Findings(Path(sys.argv[1]), "now"), 2, print)
"""
TRIED: dict[str, Operator | Edit] = {
    "withheld": Operator("withhold", "sent error job-manager.sched-hello"),
    "elsewhere": Operator("withhold", "sent request sched.alloc"),
    "nowhere": Operator("change", "returned no.function"),
    "edited": Edit(SIDE, IS_STREAMING, "if True:"),
    "crashed": Edit(SIDE, IS_STREAMING, "if {}[0]:"),
    "unplantable": Edit(SIDE, "class Sch", "x = 0\nclass Sch"),
}
SAID = [
    "withheld: proven: AssertionError: ",
    "elsewhere: NOT PROVEN: the test passes",
    "nowhere: NOT PROVEN: it cannot be planted: NoPlace: ",
    "edited: proven: AssertionError: ",
    "crashed: NOT PROVEN: the test crashes: call: KeyError: 0",
    "unplantable: NOT PROVEN: it cannot be planted: Unplantable: ",
]


def test_entries_fit_the_tree() -> None:
    """Clauses and tests exist; what an edit replaces is there once, in a function."""
    assert faults_of(read_entries(), load_clauses(), clause_mentions()) == []


def test_what_an_operator_can_say_is_no_patch() -> None:
    proofs = [proof for entries in read_entries().values() for proof in entries.proof]
    assert len([each for each in proofs if each.edit]) <= PATCHES_MAX


@pytest.mark.real
def test_a_proof_holds_if_its_test_fails_by_its_assertion(tmp_path: Path) -> None:
    proofs = [
        Proof(TEST, clause=name, operator=each)
        if isinstance(each, Operator)
        else Proof(TEST, clause=name, edit=(each,))
        for name, each in TRIED.items()
    ]
    run = subprocess.run(
        [sys.executable, "-c", TRY, str(tmp_path / "findings.jsonl")],
        cwd=ROOT,
        input=msgspec.json.encode(proofs),
        capture_output=True,
        check=True,
    )
    said = run.stdout.decode()
    assert [each for each in SAID if f"\n{each}" not in f"\n{said}"] == [], said
