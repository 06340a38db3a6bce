"""The entries of proofs fit the tree; a proof is tried with an operator."""

from __future__ import annotations

import pytest

from flux_trio.judge import load_clauses
from tests.planter.clauses.entries import Proof, faults_of, read_entries
from tests.planter.clauses.outcomes import Planted
from tests.planter.clauses.trying import run_file, verdict
from tests.planter.findings import ROOT
from tests.planter.operators import Operator
from tests.support.clause_mentions import clause_mentions

PATCHES_MAX = 150
TEST = "tests/cores/test_job_manager_sched.py::test_hello_without_allocations_ends_at_once"


def test_entries_fit_the_tree() -> None:
    """Each names clauses and tests that exist, and what an edit replaces is there once."""
    assert faults_of(read_entries(), load_clauses(), clause_mentions()) == []


def test_what_an_operator_can_say_is_no_patch() -> None:
    proofs = [proof for entries in read_entries().values() for proof in entries.proof]
    assert len([each for each in proofs if each.edit]) <= PATCHES_MAX


@pytest.mark.real
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("sent error job-manager.sched-hello", ""),
        ("sent request sched.alloc", "the test passes"),
        ("returned no.such.function", "the operator cannot be planted"),
    ],
)
def test_a_proof_holds_if_its_test_fails_by_its_assertion(place: str, why: str) -> None:
    proof = Proof(TEST, clause="27.hello.15", operator=Operator("withhold", place))
    runs = run_file(ROOT, proof.path, [Planted("it", proof.test, proof.operator)])
    said = verdict(proof, runs["it"])
    assert said.startswith(why)
    assert bool(said) == bool(why)
