"""What differs between the programs of the two editions, side by side; see `make_samples`."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

PROGRAMS: Final = Path(__file__).parent / "howto" / "any-language"
NAMES: Final = ("fifo.js", "fifo.py", "exec.py", "manager.py")


def tables() -> dict[str, str]:
    """Return a table of each program, by its name: classic to the left, current to the right."""
    return {name: _table(name) for name in NAMES}


def _table(name: str) -> str:
    classic, current = (
        (PROGRAMS / where / name).read_text(encoding="utf-8").splitlines()
        for where in ("", "current")
    )
    same = difflib.SequenceMatcher(None, classic, current, autojunk=False).get_opcodes()
    rows = [
        f"<tr><td>\n{_block(classic[a:b])}\n</td><td>\n{_block(current[c:d])}\n</td></tr>"
        for kind, a, b, c, d in same
        if kind != "equal"
    ]
    return "\n".join(["<table>", "<tr><th>classic</th><th>current</th></tr>", *rows, "</table>"])


def _block(lines: Sequence[str]) -> str:
    return f"<pre>{'<br>'.join(_escaped(lines))}</pre>"


def _escaped(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with the indentation that they have beyond the least of them."""
    margin = min((len(each) - len(each.lstrip()) for each in lines if each), default=0)
    for each in lines:
        yield html.escape(each[margin:], quote=False)
