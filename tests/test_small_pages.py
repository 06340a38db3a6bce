"""Every size of a page or slice is among those that `make small-pages` makes small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import flux_trio
from tests.support.small_pages import ABOUT_A_STEP, PAGES

ROOT: Final = Path(flux_trio.__file__).parent
NAME: Final = re.compile(
    r"_?(PAGE|SLICE|BATCH)(_(JOBS|KEYS|ROWS|VALUES|EVENTS|CHANGES|PAGES))?(_MAX)?"
)
NO_PAGES: Final = {"flux_trio.editions.kvs.PAGE_KEYS_MAX": "a longer page is refused"}


def sizes() -> Iterator[str]:
    """Yield the numbers of the package that are called like the size of a page."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(("flux_trio", *path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            is_number = isinstance(value, ast.Constant) and isinstance(value.value, int)
            if isinstance(target, ast.Name) and is_number and NAME.fullmatch(target.id):
                yield f"{module}.{target.id}"


def test_every_size_of_a_page_can_be_small() -> None:
    small = {f"{module}.{name}" for module, names in PAGES.items() for name in names}
    found = set(sizes())
    assert len(found) > 10
    assert found - small == NO_PAGES.keys()


def test_each_test_that_is_left_out_is_there() -> None:
    for name in ABOUT_A_STEP:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT.parent / path).read_text(encoding="utf-8"), name
