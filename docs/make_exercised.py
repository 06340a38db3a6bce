"""The tables of mistakes that an exercise has to name; see `make_samples`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.lab import outside_manager
from tests.lab.outside_clauses import EXCUSED, is_own, table_lines
from tests.lab.planted import Row, rows

PRINCIPLES: Final = Path(__file__).parents[1] / "tests" / "lab" / "principles.txt"


def tables() -> dict[str, str]:
    """Return the table of each program as Markdown, by the name of its sample."""
    return {
        **{each: _table(rows(each)) for each in ("fifo.py", "fifo.js", "exec.py", "manager.py")},
        "current-manager.py": _table(rows("current/manager.py")),
        "outside": _outside(table_lines(), EXCUSED, is_own),
        "outside_manager": _outside(
            table_lines(outside_manager.TABLE), outside_manager.EXCUSED, outside_manager.is_own
        ),
        "principles": PRINCIPLES.read_text(encoding="utf-8").strip(),
    }


def _table(planted: Sequence[Row]) -> str:
    """Return a row for each mistake, after their number."""
    nblind = sum(row.is_blind for row in planted)
    lines = [f"{len(planted)} mistakes, of which {nblind} are blind.", ""]
    lines += ["| mistake | about | blind | named by |", "|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.group} | {'yes' if row.is_blind else ''} | {row.clause} |"
        for row in sorted(planted, key=lambda row: row.group)
    ]
    return "\n".join(lines)


def _outside(
    named_in: Iterable[tuple[str, set[str]]],
    excused: Mapping[str, str],
    is_own: Callable[[str, set[str]], bool],
) -> str:
    """Return what is named in each cell message x field x operator, after their number."""
    lines = list(named_in)
    judged = [(name, named) for name, named in lines if name not in excused]
    nown = sum(is_own(name, named) for name, named in judged)
    told = [
        f"{len(lines)} cells, of which {len(lines) - len(judged)} are excused. Of the others "
        f"{nown} of {len(judged)} are named by a clause of their own.",
        "",
        "| message | field | operator | named | excuse |",
        "|---|---|---|---|---|",
    ]
    for name, named in lines:
        cells = " | ".join(f"`{each}`" if "." in each else each for each in name.split(" | "))
        told.append(f"| {cells} | {', '.join(sorted(named))} | {excused.get(name, '')} |")
    return "\n".join(told)
