"""What was found of each mutant, kept in a file so that a run may be stopped and resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tests.planter.mutants import Mutant

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / ".mutants"
PAGE: Final = ROOT / "docs" / "how-we-know" / "mutants.md"
"""Lists the mutants that no behaviour can tell from the program."""
NOTICED_MIN: Final = 0.98


def records_of(family: str) -> Path:
    """The directory of what tests reach."""
    return KEPT / family / "records"


def code_now() -> str:
    """A digest of every Python file of the program and its tests: findings hold for one."""
    return _digest_of("flux_trio", "plugins", "tests")


def program_now() -> str:
    """A digest of every Python file of the program alone, for what does not depend on its tests."""
    return _digest_of("flux_trio")


def _digest_of(*rooms: str) -> str:
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Finding:
    """What the tests said to one mutant."""

    mutant: str
    by: str
    """The test that failed, empty when all passed."""
    why: str = ""
    """What the test said."""
    ran: int = 0
    seconds: float = 0.0
    """Processor time."""
    code: str = ""
    scope: str = ""
    """Which tests were to run, empty for all."""


class Findings:
    """The findings of one family; the last of each mutant counts.

    They hold for one `code`; that no test noticed a mutant holds for one `scope` too.
    """

    def __init__(self, path: Path, code: str, scope: str = "") -> None:
        self._path = path
        self.code = code
        self.scope = scope
        self._all: dict[str, Finding] = {}
        if path.exists():
            whole, newline, cut = path.read_text(encoding="utf-8").rpartition("\n")
            if cut:  # the run was stopped while it wrote
                path.write_text(whole + newline, encoding="utf-8")
            for line in whole.splitlines():
                finding = Finding(**json.loads(line))
                self._all[finding.mutant] = finding

    def of(self, mutant: str) -> Finding | None:
        """What was found of `mutant`."""
        finding = self._all.get(mutant)
        if finding is None or finding.code != self.code:
            return None
        return finding if finding.by or finding.scope == self.scope else None

    def latest(self, mutant: str) -> Finding | None:
        """What was found of `mutant` in this code, whatever was to run."""
        finding = self._all.get(mutant)
        return None if finding is None or finding.code != self.code else finding

    def catchers(self, mutants: Iterable[str]) -> list[str]:
        """The tests that noticed one of `mutants` in any code, the most frequent first."""
        found = Counter(self._all[name].by for name in mutants if name in self._all)
        found.pop("", None)
        return [test for test, _ in found.most_common()]

    def add(self, finding: Finding) -> None:
        """Keep `finding`, also on disk."""
        finding = replace(finding, code=self.code, scope=self.scope)
        self._all[finding.mutant] = finding
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(finding)) + "\n")


def equivalents(page: Path = PAGE) -> dict[str, str]:
    """Why each mutant in the table of `page` changes no behaviour."""
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = (re.fullmatch(r"\| `([^`]+)` \| (.+) \|", line) for line in lines)
    return {row[1]: row[2] for row in rows if row is not None}


def report(
    mutants: Iterable[Mutant], findings: Findings, known: dict[str, str]
) -> tuple[str, bool]:
    """The figures of each group with the mutants that were not noticed; whether all is well."""
    groups: dict[str, Counter[str]] = {}
    lines, is_well = [], True
    for mutant in mutants:
        finding = findings.of(mutant.name)
        count = groups.setdefault(mutant.group, Counter())
        count["all"] += 1
        if finding is None:
            count["not run"] += 1
        elif finding.by:
            count["noticed"] += 1
            if mutant.name in known:
                is_well = False
                lines.append(f"{mutant.name}: listed as equivalent, noticed by {finding.by}")
        elif mutant.name in known:
            count["equivalent"] += 1
        else:
            is_well = False
            lines.append(f"{mutant.name}: not noticed by {finding.ran} tests")
    total: Counter[str] = sum(groups.values(), Counter())
    for name, count in [*groups.items(), ("all", total)]:
        figures = ", ".join(
            f"{count[kind]} {kind}" for kind in ("equivalent", "not run") if count[kind]
        )
        lines.append(
            f"{name}: {count['noticed']} of {count['all']} noticed" + f", {figures}" * bool(figures)
        )
    ran = total["all"] - total["not run"]
    return "\n".join(lines), is_well and total["noticed"] >= NOTICED_MIN * ran
