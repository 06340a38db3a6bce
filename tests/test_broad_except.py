"""Only the supervisor of modules and the plugin host catch whatever is raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import flux_trio

PACKAGE: Final = Path(flux_trio.__file__).parent
BROAD: Final = {"Exception", "BaseException"}


def caught(tree: ast.AST) -> Iterator[ast.expr | None]:
    """Yield what each handler, and each `suppress`, names; None for a bare `except`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            yield node.type
        elif isinstance(node, ast.Call) and name_of(node.func).endswith("suppress"):
            yield from node.args


def name_of(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def is_broad(named: ast.expr | None) -> bool:
    kinds = named.elts if isinstance(named, ast.Tuple) else [named]
    return any(kind is None or ast.unparse(kind) in BROAD for kind in kinds)


def broad_files(sources: dict[str, str]) -> set[str]:
    return {
        name
        for name, source in sources.items()
        if any(is_broad(named) for named in caught(ast.parse(source)))
    }


def test_whatever_is_raised_is_caught_in_two_files() -> None:
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert broad_files(sources) == {"broker/supervisor.py", "jobtap/failures.py"}


def test_each_way_of_catching_everything_is_seen() -> None:
    body = "try:\n    pass\n{}:\n    pass\n"
    sources = {
        "bare": body.format("except"),
        "one": body.format("except Exception as error"),
        "tuple": body.format("except (OSError, BaseException)"),
        "suppress": "with contextlib.suppress(ValueError, Exception):\n    pass\n",
        "precise": body.format("except (OSError, ValueError)"),
    }
    assert broad_files(sources) == {"bare", "one", "tuple", "suppress"}
