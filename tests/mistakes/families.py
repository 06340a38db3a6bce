"""The families of mutants, and what was found of them."""

from __future__ import annotations

import hashlib
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

    for name in mutants_of("tables"):
        yield Target(name, dict, name)


FAMILIES: Final[dict[str, Callable[[], Iterator[Target]]]] = {
    "mistakes": _mistakes,
    "actions": actions.targets,
    "rows": _rows,
}


def found_by_fuzz(family: str) -> Findings:
    """Return what `flux-trio fuzz` has found of a family."""
    return Findings(KEPT / "fuzz" / f"{family}.jsonl", code_now())


def code_now() -> str:
    """A digest of the program and of what is planted: findings hold for one."""
    digest = hashlib.sha256()
    here = sorted((ROOT / "tests" / "mistakes").glob("*.toml"))
    for path in [*sorted((ROOT / "flux_trio").rglob("*.py")), *here]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
