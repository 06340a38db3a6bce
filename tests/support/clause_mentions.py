"""Which tests name which clauses.

A test names the clauses it shows: in the first paragraph of its docstring, in strings that stand
alone before its first statement, or in the ids and values of its parametrization. `20.format.1`
is a mention, `32.start.12-21` is ten. Comments and assert messages are not: they may well be
about what the test does not show.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]

_MENTION = re.compile(r"(?<![\w.])([0-9]+\.[a-z]+)\.([0-9]+)(?:-([0-9]+))?(?![\w-])")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def clause_mentions(tests: Path = TESTS) -> Mapping[str, Sequence[str]]:
    """Clause id to the tests that name it, as pytest names them; all test files below `tests`.

    The files are read once in a process.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        name = path.relative_to(tests.parent).as_posix()
        for test, ids in mentions_in(path.read_text(encoding="utf-8")):
            for clause in ids:
                found.setdefault(clause, []).append(f"{name}::{test}")
    return found


def mentions_in(source: str) -> list[tuple[str, list[str]]]:
    """(test, clause ids) of each test in a module's source that names any."""
    found = [(name, _ids(test)) for name, test in _tests(ast.parse(source).body, "")]
    return [(name, ids) for name, ids in found if ids]


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, f"{prefix}{node.name}::")


def _ids(test: _Function) -> list[str]:
    texts = [_first_paragraph(text) for text in _leading_strings(test.body)]
    texts += [text for mark in test.decorator_list for text in _strings(mark)]
    return list(dict.fromkeys(id_ for text in texts for id_ in ids_in(text)))


def ids_in(text: str) -> list[str]:
    """The clause ids in a text, ranges spelled out."""
    ids = []
    for section, first, last in _MENTION.findall(text):
        ids += [f"{section}.{n}" for n in range(int(first), int(last or first) + 1)]
    return ids


def _leading_strings(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield text
            case _:
                return


def _strings(decorator: ast.expr) -> Iterator[str]:
    if "parametrize" not in ast.unparse(decorator):
        return
    for node in ast.walk(decorator):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _first_paragraph(text: str) -> str:
    return text.strip().split("\n\n")[0]
