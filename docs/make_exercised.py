"""The tables of mistakes that an exercise has to name; see `make_samples`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab import planted_in_exec, planted_in_node, planted_in_python
from tests.lab.planted import Row

PRINCIPLES: Final = Path(__file__).parents[1] / "tests" / "lab" / "principles.txt"


def tables() -> dict[str, str]:
    """Return the table of each program as Markdown, by the name of its sample."""
    return {
        "fifo.py": _table(planted_in_python.ROWS),
        "fifo.js": _table(planted_in_node.ROWS),
        "exec.py": _table(planted_in_exec.ROWS),
        "principles": PRINCIPLES.read_text(encoding="utf-8").strip(),
    }


def _table(rows: Sequence[Row]) -> str:
    """Return a row for each mistake, after their number."""
    nblind = sum(row.is_blind for row in rows)
    lines = [f"{len(rows)} mistakes, of which {nblind} are blind.", ""]
    lines += ["| mistake | about | blind | named by |", "|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.group} | {'yes' if row.is_blind else ''} | {row.clause} |"
        for row in sorted(rows, key=lambda row: row.group)
    ]
    return "\n".join(lines)
