"""The entries of the files rfcNN.toml, and what is wrong with them.

`[[proof]]` has an operator, or edits of our functions, with which the named test fails.
`[[planted]]` names a planted violation of a trace (tests/judge/planted), for a clause that only the
judge shows. `[[unprovable]]` says why nothing here can break a clause.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.judge import Clause
from tests.planter.coding import Edit, Unplantable, changed_in, edited, functions_now, plant_code
from tests.planter.findings import ROOT
from tests.planter.operators import Operator
from tests.support.planted import all_planted

HERE: Final = Path(__file__).parent


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What breaks each of the clauses, an operator or edits together, and the test that then fails.

    `test` is pytest's name of it, with or without parameters.
    """

    test: str
    clause: str = ""
    clauses: tuple[str, ...] = ()
    why: str = ""
    operator: Operator | None = None
    edit: tuple[Edit, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The clauses that the entry is about."""
        return self.clauses or (self.clause,)

    @property
    def path(self) -> str:
        """The test's file, from the root of the tree."""
        return self.test.partition("::")[0]

    @property
    def name(self) -> str:
        """The test's name in its file, with its parameters if `test` has them."""
        return self.test.partition("::")[2]

    def plant(self) -> None:
        """Break the clauses in this process from now on. Raises NoPlace or Unplantable."""
        if self.operator is not None:
            self.operator.plant()
        else:
            plant_code(edited(self.edit), functions_now())

    def digest(self) -> str:
        """A digest of the entry: what was found in this program holds for it."""
        whole = (self.operator, self.edit, self.test)
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:12]


class PlantedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clause that a planted violation of a trace breaks, and the test that judges the trace.

    `planted` is the name of the violation, as in planted_matrix.txt: "rfc27_free: id_is_text".
    """

    clause: str
    planted: str
    test: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The clause that the entry is about."""
        return (self.clause,)

    def digest(self) -> str:
        """A digest of the entry."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]


class Unprovable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A clause that nothing here can break, and why: one sentence."""

    clause: str
    reason: str


class ProofFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entries of one file."""

    proof: tuple[Proof, ...] = ()
    planted: tuple[PlantedEntry, ...] = ()
    unprovable: tuple[Unprovable, ...] = ()

    def clauses(self) -> Iterator[str]:
        """The clause of each entry, as often as it is named."""
        for proof in self.proof:
            yield from proof.ids
        yield from (each.clause for each in self.planted)
        yield from (each.clause for each in self.unprovable)


def read_entries(directory: Path = HERE) -> dict[Path, ProofFile]:
    """The files of proofs with their entries; raises msgspec.ValidationError for a wrong key."""
    return {
        path: msgspec.toml.decode(path.read_bytes(), type=ProofFile)
        for path in sorted(directory.glob("*.toml"))
    }


def function_of(test: str) -> str:
    """The name of a test without its parameters."""
    return test.partition("[")[0]


@functools.cache
def tests_of(path: str) -> frozenset[str]:
    """The names of the tests of a file, as they are named in it."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    return frozenset(_tests(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def _tests(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            yield f"{prefix}{node.name}"


def faults_of(
    files: Mapping[Path, ProofFile],
    clauses: Mapping[str, Clause],
    mentions: Mapping[str, Iterable[str]],
) -> list[str]:
    """A line for each thing that is wrong with the entries; `mentions` has the tests of an id."""
    found: list[str] = []
    for path, entries in files.items():
        for proof in entries.proof:
            where = f"{path.name}: {' '.join(proof.ids)}"
            found += [f"{where}: {fault}" for fault in _faults_of_proof(proof, mentions)]
        for planted in entries.planted:
            where = f"{path.name}: {planted.clause}"
            found += [f"{where}: {fault}" for fault in _faults_of_planted(planted)]
        for each in entries.unprovable:
            if not each.reason.endswith("."):
                found.append(f"{path.name}: {each.clause}: the reason is not a sentence")
        found += [
            f"{path.name}: {clause}: the registry has no such clause"
            for clause in entries.clauses()
            if clause not in clauses
        ]
    counts = Counter(clause for entries in files.values() for clause in entries.clauses())
    return found + [f"{clause}: {n} entries are about it" for clause, n in counts.items() if n > 1]


def _faults_of_proof(proof: Proof, mentions: Mapping[str, Iterable[str]]) -> Iterator[str]:
    if bool(proof.clause) == bool(proof.clauses):
        yield "expected one of the keys clause and clauses"
    tests = tests_of(proof.path)
    if function_of(proof.name) not in tests:
        yield f"there is no test {proof.test}"
    named = f"{proof.path}::{function_of(proof.name)}"
    for clause in proof.ids:
        if named not in mentions.get(clause, ()):
            yield f"the docstring of {named} does not name {clause}"
    if bool(proof.edit) == (proof.operator is not None):
        yield "expected an operator or edits"
    if proof.operator is not None and (fault := proof.operator.fault()):
        yield fault
    try:
        for file, text in edited(proof.edit).items():
            if not changed_in(file, text):
                yield f"{file}: nothing is changed"
    except (OSError, ValueError, Unplantable) as error:
        yield str(error)


def _faults_of_planted(entry: PlantedEntry) -> Iterator[str]:
    violation = all_planted().get(entry.planted)
    if violation is None:
        yield f"there is no planted violation {entry.planted!r}"
    elif violation.clause != entry.clause:
        yield f"the planted violation breaks {violation.clause}"
    path, _, name = entry.test.partition("::")
    if function_of(name) not in tests_of(path):
        yield f"there is no test {entry.test}"
