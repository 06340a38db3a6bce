"""The examples of the page run as they stand, as those on traces do; it lists each fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flux_trio.lab import FAULTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


TRACES = PAGE.with_name("trace.md")

EXAMPLES = [
    example
    for page in (PAGE, TRACES)
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_the_page_runs(example: str) -> None:
    exec(example, {})


def test_page_lists_each_fault() -> None:
    rows = re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE)
    assert rows == [kind.__name__ for kind in FAULTS]
