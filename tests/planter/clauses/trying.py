"""Tries proofs: each in a copy of the tree, by its test with what it plants.

A proof holds when the named test fails by its assertion, and passes with nothing planted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from tests.planter.clauses.entries import Edit, Proof, function_of
from tests.planter.clauses.outcomes import OUTCOMES, PLANTED, Planted
from tests.planter.findings import ROOT, Finding, Findings


@dataclass
class Run:
    """How tests ended."""

    passed: set[str] = field(default_factory=set)
    """Names in the file, with parameters."""
    failures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The failed phases of each test, as `outcomes.py` tells of them."""
    trouble: str = ""
    """Why the run says nothing, if so."""


def verdict(proof: Proof, run: Run) -> str:
    """Why `run`, made with what `proof` plants, does not prove its clauses; empty if it does."""
    if run.trouble:
        return run.trouble
    named = _named(proof, run)
    if not named:
        return "the test passes" if _has_passed(proof.name, run) else "the test did not run"
    for name, phases in named.items():
        if why := _no_assertion(proof, phases):
            return f"{name} crashes: {why}"
    return ""


def _named(proof: Proof, run: Run) -> dict[str, list[dict[str, Any]]]:
    """The failures of the named test, by its parameters."""
    return {
        name: phases
        for name, phases in run.failures.items()
        if proof.name in (name, function_of(name))
    }


def assertion(proof: Proof, run: Run) -> str:
    """What the named test says as it fails."""
    return str(next(iter(_named(proof, run).values()))[0]["text"])


def _has_passed(name: str, run: Run) -> bool:
    return any(name in (test, function_of(test)) for test in run.passed)


def _no_assertion(proof: Proof, phases: Sequence[dict[str, Any]]) -> str:
    """What failed other than by an assertion of the test, or of the judge about these clauses."""
    first = phases[0]
    if not first.get("asserted"):
        return f"{first['phase']}: {first['text']}"
    if first["phase"] != "call" and not set(proof.ids) <= set(first["broken"]):
        return f"{first['phase']} is about something else: {first['text']}"
    return ""


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Copies of the tree, as it is now with what is not committed; removed at the end."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [file for file in listed.splitlines() if (ROOT / file).is_file()]
    with tempfile.TemporaryDirectory(prefix="proofs") as directory:
        trees = [Path(directory) / str(n) for n in range(count)]
        for tree in trees:
            for file in files:
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tree / file)
        yield trees


@contextmanager
def edited(tree: Path, edits: Iterable[Edit]) -> Iterator[None]:
    """Apply `edits` to the files of `tree`, and take them back."""
    before: dict[Path, str] = {}
    try:
        for edit in edits:
            path = tree / edit.file
            text = path.read_text(encoding="utf-8")
            before.setdefault(path, text)
            _write(path, text.replace(edit.old, edit.new))
        yield
    finally:
        for path, text in before.items():
            _write(path, text)


def _write(path: Path, text: str) -> None:
    """Write `text`, and remove what is compiled: an edit within a second may keep the size."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def run_file(tree: Path, path: str, planted: Sequence[Planted]) -> dict[str, Run]:
    """Run the tests of `planted`, which are in the file `path` of `tree`; the runs by key."""
    temporary = tempfile.mkdtemp(prefix="p")
    outcomes = Path(temporary, "outcomes")
    outcomes.write_text("")
    environment = {
        **os.environ,
        OUTCOMES: str(outcomes),
        PLANTED: msgspec.json.encode(planted).decode(),
        "PYTHONPATH": str(tree),
        "TMPDIR": temporary,
        "PYTEST_DEBUG_TEMPROOT": temporary,
    }
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-p", "tests.planter.clauses.outcomes"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", ""]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, path],
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        told = outcomes.read_text(encoding="utf-8")
        shutil.rmtree(temporary, ignore_errors=True)
    return {each.key: read_outcomes(told, tree, each.key) for each in planted}


def read_outcomes(text: str, tree: Path, key: str) -> Run:
    """The outcomes that the plugin wrote for `key` in a run in `tree`."""
    run = Run(trouble="the run broke off")
    for line in map(json.loads, text.splitlines()):
        match line:
            case {"program": program} if program != str(tree):
                return Run(trouble=f"the tests run the program in {program}")
            case {"test": test, "phase": "collect", "text": said}:
                return Run(trouble=f"{test} cannot be collected: {said}")
            case {"key": other} if other != key:
                pass
            case {"no_place": said}:
                return Run(trouble=f"the operator cannot be planted: {said}")
            case {"test": test, "passed": True}:
                run.passed.add(test.partition("::")[2])
            case {"test": test}:
                run.failures.setdefault(test.partition("::")[2], []).append(line)
            case {"ended": True}:
                run.trouble = ""
    return run


@dataclass
class Trial:
    """Tries proofs in copies of the tree, and keeps what it finds."""

    findings: Findings
    say: Callable[[str], None]
    processes: int = 2

    def run(self, proofs: Iterable[Proof]) -> None:
        """Try each of `proofs` that is not found to hold for this code."""
        waiting = [each for each in proofs if not self.holds(each)]
        if not waiting:
            return
        with copies(self.processes) as trees, ThreadPoolExecutor(self.processes) as pool:
            free: SimpleQueue[Path] = SimpleQueue()
            for tree in trees:
                free.put(tree)
            futures = [pool.submit(self._try, each, free) for each in _together(waiting)]
            try:
                for future in as_completed(futures):
                    for proof, finding in future.result():
                        self.findings.add(finding)
                        said = f"{'proven' if finding.by else 'NOT PROVEN'}: {finding.why}"
                        self.say(f"{' '.join(proof.ids)}: {said}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def holds(self, proof: Proof) -> bool:
        """Whether `proof` was tried with this code, and holds."""
        finding = self.findings.of(proof.digest())
        return finding is not None and bool(finding.by)

    def _try(self, proofs: Sequence[Proof], free: SimpleQueue[Path]) -> list[tuple[Proof, Finding]]:
        """Try proofs of one file in the next free tree: `why` has the assertion, or the reason."""
        path, tree = proofs[0].path, free.get()
        try:
            plain = {each.test for each in proofs if self.findings.of(each.test) is None}
            runs = run_file(tree, path, [Planted(each, each) for each in plain])
            for test, run in runs.items():
                why = run.trouble or " ".join(sorted(run.failures))
                self.findings.add(Finding(test, "" if why else test, why))
            with edited(tree, proofs[0].edit):
                planted = [Planted(each.digest(), each.test, each.operator) for each in proofs]
                runs = run_file(tree, path, planted)
        finally:
            free.put(tree)
        return [(each, self._found(each, runs[each.digest()])) for each in proofs]

    def _found(self, proof: Proof, run: Run) -> Finding:
        why, plain = verdict(proof, run), self.findings.of(proof.test)
        if plain is not None and not plain.by:
            why = f"it fails with nothing planted, too: {plain.why}"
        return Finding(proof.digest(), "" if why else proof.test, why or assertion(proof, run))


def _together(proofs: Iterable[Proof]) -> list[list[Proof]]:
    """The operators of a test file, which leave the tree as it is, together; then each patch."""
    found: dict[str, list[Proof]] = {}
    for each in sorted(proofs, key=lambda proof: bool(proof.edit)):
        found.setdefault(each.digest() if each.edit else each.path, []).append(each)
    return list(found.values())
