"""The entries of proofs: they fit the tree, and what is wrong with one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flux_trio.judge import load_clauses
from tests.proofs.__main__ import chosen
from tests.proofs.entries import (
    Edit,
    PlantedEntry,
    Proof,
    ProofFile,
    Unprovable,
    faults_of,
    function_of,
    read_entries,
    sources_of_tests,
)
from tests.proofs.results import SUFFIX, read_proven, tried_now, write_proven
from tests.support.clause_mentions import clause_mentions

CLAUSES = load_clauses()
TEST = "tests/proofs/test_entries.py::test_entry_that_fits_has_no_faults"
MENTIONS = {"27.alloc.1": [TEST], "27.alloc.2": [TEST]}
EDIT = Edit("flux_trio/clock.py", '"""The ', '"""')
PROOF = Proof((EDIT,), TEST, "27.alloc.1")
PLANTED = PlantedEntry("27.free.1", "rfc27_free: id_is_text", TEST)


def faults(*proofs: Proof, **others: tuple[PlantedEntry | Unprovable, ...]) -> list[str]:
    entries = msgspec.convert({"proof": proofs, **others}, ProofFile)
    return faults_of({Path("rfc27.toml"): entries}, CLAUSES, MENTIONS)


def changed(**how: Any) -> Proof:
    return msgspec.structs.replace(PROOF, **how)


def test_entries_fit_the_tree() -> None:
    """Each names clauses and tests that exist, and what an edit replaces is there once."""
    assert faults_of(read_entries(), CLAUSES, clause_mentions()) == []


def test_proven_clauses_have_an_entry() -> None:
    for file, entries in read_entries().items():
        assert set(read_proven(file)) <= set(entries.clauses()), file.name


def test_entry_that_fits_has_no_faults() -> None:
    assert faults(PROOF) == []


WRONG = [
    (changed(clauses=("27.alloc.2",)), "expected one of the keys clause and clauses"),
    (changed(clause="27.alloc.99"), "the registry has no such clause"),
    (changed(clause="27.alloc.3"), f"the docstring of {TEST} does not name 27.alloc.3"),
    (changed(test="tests/proofs/test_entries.py::test_x"), "there is no test tests/proofs"),
    (changed(also=("test_x",)), "there is no test test_x in tests/proofs/test_entries.py"),
    (changed(edit=()), "it has no edit"),
    (changed(edit=(Edit("flux_trio/no.py", "a", "b"),)), "there is no file flux_trio/no.py"),
    (changed(edit=(Edit("docs/conf.py", "a", "b"),)), "docs/conf.py is not in flux_trio/"),
    (changed(edit=(Edit(EDIT.file, "no such text", "b"),)), "has 0 times, not once: 'no such"),
    (changed(edit=(Edit(EDIT.file, "\n", "b"),)), "times, not once"),
    (changed(edit=(Edit(EDIT.file, EDIT.old, EDIT.old),)), "old and new are the same"),
]


@pytest.mark.parametrize(("proof", "fault"), WRONG)
def test_what_is_wrong_with_a_proof_is_told(proof: Proof, fault: str) -> None:
    assert fault in "\n".join(faults(proof))


def test_what_is_wrong_with_other_entries_is_told() -> None:
    absent = PlantedEntry("27.free.3", "rfc27_free: nothing", "tests/no.py::test_x")
    assert faults(
        PROOF, planted=(PLANTED, absent), unprovable=(Unprovable("27.alloc.1", "no"),)
    ) == [
        "rfc27.toml: 27.free.1: the planted violation breaks 27.free.2",
        "rfc27.toml: 27.free.3: there is no planted violation 'rfc27_free: nothing'",
        "rfc27.toml: 27.free.3: there is no test tests/no.py::test_x",
        "rfc27.toml: 27.alloc.1: the reason is not a sentence",
        "27.alloc.1: 2 entries are about it",
    ]


def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rfc1.toml").write_text('[[proof]]\ntest = "x"\nedits = []\n')
    with pytest.raises(msgspec.ValidationError, match=r"field `edits?`"):
        read_entries(tmp_path)


def test_a_proof_holds_for_its_edits_and_the_source_of_its_test() -> None:
    other_test = changed(test="tests/proofs/test_entries.py::test_entries_fit_the_tree")
    other_edit = changed(edit=(Edit(EDIT.file, EDIT.old, "'''"),))
    assert len({PROOF.digest(), other_test.digest(), other_edit.digest()}) == 3
    assert changed(why="because").digest() == PROOF.digest()


def test_docstrings_are_no_part_of_a_test() -> None:
    source = sources_of_tests("tests/proofs/test_entries.py")["test_entries_fit_the_tree"]
    assert "replaces" not in source
    assert "read_entries()" in source
    assert function_of("TestX::test_y[a[b]]") == "TestX::test_y"


def test_what_was_proven_is_kept_until_its_entry_changes(tmp_path: Path) -> None:
    file = tmp_path / "rfc27.toml"
    two = changed(clause="", clauses=("27.alloc.10", "27.alloc.2"))
    write_proven(file, ProofFile((PROOF, two)), {PROOF.digest(): True, two.digest(): True})
    assert list(read_proven(file)) == ["27.alloc.1", "27.alloc.2", "27.alloc.10"]
    write_proven(file, ProofFile((PROOF, changed(clause="27.alloc.2"))), {})
    assert read_proven(file) == {"27.alloc.1": tried_now(PROOF), "27.alloc.2": tried_now(PROOF)}
    write_proven(file, ProofFile((PROOF,)), {PROOF.digest(): False})
    assert read_proven(file) == {}


def test_what_was_proven_with_other_files_stays_proven_and_is_tried_again(tmp_path: Path) -> None:
    """The files are those that are edited, and that of the test."""
    file = tmp_path / "rfc27.toml"
    entries = ProofFile((PROOF,), planted=(PLANTED,))
    write_proven(file, entries, {PROOF.digest(): True, PLANTED.digest(): True})
    assert chosen(file, entries, "", only_new=True) == []
    text = file.with_suffix(SUFFIX).read_text()
    assert text.count(PROOF.files_digest()) == 1
    file.with_suffix(SUFFIX).write_text(text.replace(PROOF.files_digest(), "0123456789ab"))
    write_proven(file, entries, {})
    assert read_proven(file)["27.alloc.1"] == (PROOF.digest(), "0123456789ab")
    assert chosen(file, entries, "", only_new=True) == [PROOF]
    assert chosen(file, entries, "27.free", only_new=True) == []
    assert chosen(file, entries, "27.free", only_new=False) == [PLANTED]


def test_files_of_a_proof_are_those_that_are_edited_and_that_of_its_test() -> None:
    other_file = changed(edit=(EDIT, Edit("flux_trio/judge/clauses/registry.py", "a", "b")))
    other_test = changed(test="tests/proofs/test_trying.py::test_x")
    assert len({PROOF.files_digest(), other_file.files_digest(), other_test.files_digest()}) == 3
    same_file = changed(edit=(Edit(EDIT.file, "a", "b"),), test=f"{PROOF.path}::test_x")
    assert same_file.files_digest() == PROOF.files_digest()
