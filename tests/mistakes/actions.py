"""Generated mutants: each action of a core dropped, or done twice.

An action is a statement that calls the outbox of a core: it sends a message, asks another service,
sets or clears a timer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.mistakes.trying import Target
from tests.planter.findings import ROOT

CORES: Final = ROOT / "flux_trio" / "cores"
ACTIONS: Final = frozenset(
    {"send", "send_all", "ask", "ask_when_durable", "answer_at_once", "set_timer", "clear_timer"}
)
SENDERS: Final = frozenset(
    {"outbox", "_outbox", "_context", "_ledger", "ledger", "_exchange", "self"}
)


NOTE: Final = "__reached__"
"""The builtin that `noting` calls."""


def targets() -> Iterator[Target]:
    """Yield the mutants of every action, in the order of files and lines."""
    for file, source in _sources():
        for place, statement in _places(file, source):
            for how in ("dropped", "doubled"):
                plants = partial(_changed, file, source, statement, how)
                yield Target(f"{place} {how}", plants, place=place)


def noting() -> dict[str, str]:
    """Return the text of each file in which each action calls NOTE with its place first."""
    return {file: _noting(file, source) for file, source in _sources()}


def _noting(file: str, source: str) -> str:
    lines = source.splitlines(keepends=True)
    actions = sorted(_places(file, source), key=lambda each: _begin(each[1]), reverse=True)
    for place, statement in actions:
        row, column = _begin(statement)
        line = lines[row]
        lines[row] = f"{line[:column]}{NOTE}({place!r}); {line[column:]}"
    return "".join(lines)


def _begin(statement: ast.Expr) -> tuple[int, int]:
    return statement.lineno - 1, statement.col_offset


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the path of each file of the cores, from the root, and its text."""
    for path in sorted(CORES.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def _places(file: str, source: str) -> Iterator[tuple[str, ast.Expr]]:
    """Yield each action of a file, with a name of its own."""
    known: Counter[str] = Counter()
    for function, statement in _actions(ast.parse(source)):
        what = ast.unparse(statement).splitlines()[0][:60]
        place = f"{file}:{function}: {what}"
        known[place] += 1
        if known[place] > 1:
            place += f" ({known[place]})"
        yield place, statement


def _actions(module: ast.Module) -> Iterator[tuple[str, ast.Expr]]:
    """Yield each statement that is an action, with the name of its function."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        for each in ast.walk(function):
            if isinstance(each, ast.Expr) and _is_action(each.value):
                yield function.name, each


def _is_action(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    sender = value.func.value
    name = sender.attr if isinstance(sender, ast.Attribute) else getattr(sender, "id", "")
    return value.func.attr in ACTIONS and name in SENDERS


def _changed(file: str, source: str, statement: ast.Expr, how: str) -> dict[str, str]:
    """Return the text of the file with the statement dropped, or twice."""
    lines = source.splitlines(keepends=True)
    assert statement.end_lineno is not None
    first, last = statement.lineno - 1, statement.end_lineno
    indent = lines[first][: statement.col_offset]
    new = [f"{indent}pass\n"] if how == "dropped" else lines[first:last] * 2
    return {file: "".join([*lines[:first], *new, *lines[last:]])}
