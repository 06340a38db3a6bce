"""Taps as executables, and what the judge finds in their traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from flux_trio.judge import Judgement
from flux_trio.trace import read_trace
from tests.support import recorded

TRACES: Final = Path(__file__).parent.parent / "data" / "tap-traces"

FAULTS: Final = {
    "nothing": set[str](),
    "drop-success-live": {"27.alloc.12"},
    "duplicate-success": {"27.success.8"},
    "duplicate-alloc": {"27.impl.8"},
    "drop-cancel-live": {"27.alloccancel.1"},
    "drop-hello": {"27.hello.4"},
    "drop-free": {"27.free.1"},
    "duplicate-free": {"invariant.freed-once"},
}
"""What `tests/real/tapped.sh` plants, and the clauses by which it has to be named."""


def executable(directory: Path, name: str) -> Path:
    """A program that is the command flux-trio-NAME of this checkout."""
    path = directory / f"flux-trio-{name}"
    module = f"flux_trio.cli.attach.{name.replace('-', '_')}"
    path.write_text(f"#!{sys.executable}\nimport sys\n\nfrom {module} import main\n\nmain()\n")
    path.chmod(0o755)
    return path


def flux_that_runs_programs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a command `flux` on the path: `flux PROGRAM PATH` runs a loader, and any program."""
    flux = directory / "bin" / "flux"
    flux.parent.mkdir()
    flux.write_text('#!/bin/sh\nexec "$@"\n')
    flux.chmod(0o755)
    monkeypatch.setenv("PATH", f"{flux.parent}:/usr/bin:/bin")


def judged(path: Path) -> Judgement:
    """Judge the trace of a tap that has come to rest."""
    with path.open() as lines:
        return recorded.judged_source(read_trace(lines), at_rest=True)


def named_in(path: Path) -> set[str]:
    """The clauses that the first fault of a trace breaks, without those that follow from it."""
    things = judged(path).broken_things()
    return {things[0][0].clause} if things else set()
