"""The families of mutants, and what was found of them."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

from tests.mistakes import actions
from tests.mistakes.entries import mistakes
from tests.mistakes.trying import Target
from tests.planter.findings import KEPT, ROOT, Findings


def _mistakes() -> Iterator[Target]:
    for each in mistakes():
        yield Target(each.id, each.edited)


def _rows() -> Iterator[Target]:
    from tests.planter.mutants import mutants_of

    for name, mutant in mutants_of("tables").items():
        yield Target(name, dict, name, mutant.place)


FAMILIES: Final[dict[str, Callable[[], Iterator[Target]]]] = {
    "mistakes": _mistakes,
    "actions": actions.targets,
    "rows": _rows,
}


def found_by_fuzz(family: str) -> Findings:
    """Return what `flux-trio fuzz` has found of a family."""
    return Findings(KEPT / "fuzz" / f"{family}.jsonl", code_now())


def program_commit() -> str:
    """The last commit that changed the program, in short; "" if it has changed since."""
    changed = _git("status", "--porcelain", "--", "flux_trio")
    return "" if changed else _git("log", "-1", "--format=%h", "--abbrev=8", "--", "flux_trio")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def code_now() -> str:
    """A digest of the program and of what is planted: findings hold for one."""
    digest = hashlib.sha256()
    here = sorted((ROOT / "tests" / "mistakes").glob("*.toml"))
    for path in [*sorted((ROOT / "flux_trio").rglob("*.py")), *here]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
