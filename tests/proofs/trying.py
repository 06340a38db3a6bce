"""Tries proofs: each in a copy of the tree that has its edits, with the file of its test.

A proof holds when the named test fails by its assertion, each test of `also` fails, every other
test of the file passes, and the named test passes in the copy without the edits.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from tests.planter.findings import ROOT, Finding, Findings
from tests.proofs.entries import Edit, Proof, function_of
from tests.proofs.outcomes import OUTCOMES

PATIENCE_S: Final = 300.0
"""A run of one file that takes longer does not end: the longest takes a quarter of it."""


@dataclass
class Run:
    """How the tests of one file ended."""

    passed: set[str] = field(default_factory=set)
    """Names in the file, with parameters."""
    failures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The failed phases of each test, as `outcomes.py` tells of them."""
    trouble: str = ""
    """Why the run says nothing, if so."""

    def failed(self) -> set[str]:
        """The functions of which at least one test failed."""
        return {function_of(name) for name in self.failures}


def verdict(proof: Proof, run: Run) -> str:
    """Why `run`, made with the edits of `proof`, does not prove its clauses; empty if it does."""
    if run.trouble:
        return run.trouble
    named = _named(proof, run)
    if not named:
        return "the test passes" if _has_passed(proof.name, run) else "the test did not run"
    for name, phases in named.items():
        if why := _no_assertion(proof, phases):
            return f"{name} crashes: {why}"
    expected = {function_of(proof.name), *proof.also}
    if more := sorted(run.failed() - expected):
        return f"other tests fail: {', '.join(more)}"
    if fewer := sorted(set(proof.also) - run.failed()):
        return f"these tests of `also` pass: {', '.join(fewer)}"
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


def also_in(proof: Proof, run: Run) -> tuple[str, ...]:
    """The tests that fail besides the named one."""
    return tuple(sorted(run.failed() - {function_of(proof.name)}))


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


def run_file(tree: Path, path: str) -> Run:
    """Run the tests of the file `path` in `tree`."""
    outcomes = tree.with_name(f"{tree.name}.outcomes")
    outcomes.write_text("")
    temporary = tempfile.mkdtemp(prefix="p", dir=tree.parent)
    environment = {
        **os.environ,
        OUTCOMES: str(outcomes),
        "PYTHONPATH": str(tree),
        "TMPDIR": temporary,
        "PYTEST_DEBUG_TEMPROOT": temporary,
    }
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-p", "tests.proofs.outcomes"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, path],
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(PATIENCE_S)
        trouble = ""
    except subprocess.TimeoutExpired:
        trouble = f"the tests do not end in {PATIENCE_S:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(temporary, ignore_errors=True)
    run = read_outcomes(outcomes.read_text(encoding="utf-8"), tree)
    run.trouble = trouble or run.trouble
    return run


def read_outcomes(text: str, tree: Path) -> Run:
    """The outcomes that the plugin wrote in a run in `tree`."""
    run = Run(trouble="the run broke off")
    for line in map(json.loads, text.splitlines()):
        match line:
            case {"program": program} if program != str(tree):
                return Run(trouble=f"the tests run the program in {program}")
            case {"test": test, "phase": "collect", "text": said}:
                return Run(trouble=f"{test} cannot be collected: {said}")
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

    def run(self, proofs: Sequence[Proof]) -> None:
        """Try each of `proofs` that is not found to hold for this code."""
        waiting = [each for each in proofs if not self.holds(each)]
        waiting.sort(key=lambda proof: proof.path)
        if not waiting:
            return
        with copies(self.processes) as trees, ThreadPoolExecutor(self.processes) as pool:
            free: SimpleQueue[Path] = SimpleQueue()
            for tree in trees:
                free.put(tree)
            futures = {pool.submit(self._try, proof, free): proof for proof in waiting}
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    finding = future.result()
                    self.findings.add(finding)
                    ids = " ".join(futures[future].ids)
                    said = f"{'proven' if finding.by else 'NOT PROVEN'}: {finding.why}"
                    self.say(f"{done}/{len(waiting)} {ids}: {said} ({finding.seconds:.1f} s)")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def holds(self, proof: Proof) -> bool:
        """Whether `proof` was tried with this code, and holds."""
        finding = self.findings.of(proof.digest())
        return finding is not None and bool(finding.by)

    def _try(self, proof: Proof, free: SimpleQueue[Path]) -> Finding:
        """Try `proof` in the next free tree: `why` has its assertion, or why it does not hold."""
        begin = time.monotonic()
        tree = free.get()
        try:
            with edited(tree, proof.edit):
                run = run_file(tree, proof.path)
            why = verdict(proof, run)
            wider = msgspec.structs.replace(proof, also=also_in(proof, run))
            if not verdict(wider, run):
                unsound = self._why_unsound(tree, proof)
                why = why or unsound
                if not unsound:  # it holds as soon as the entry has this `also`
                    self.findings.add(Finding(wider.digest(), proof.test, assertion(proof, run)))
        finally:
            free.put(tree)
        by, said = ("", why) if why else (proof.test, assertion(proof, run))
        return Finding(proof.digest(), by, said, 1, round(time.monotonic() - begin, 1))

    def _why_unsound(self, tree: Path, proof: Proof) -> str:
        """Why the named test says nothing: it fails without the edits too. Tried once a file."""
        known = self.findings.of(proof.path)
        if known is None:
            run = run_file(tree, proof.path)
            failed = run.trouble or " ".join(sorted(run.failures))
            known = Finding(proof.path, proof.path, failed)
            if not failed:
                self.findings.add(known)
        return f"without the edits the file fails: {known.why}" if known.why else ""
