"""The example of the page runs as it stands, and the page lists each fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from flux_trio.faults import Fault

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


def test_example_of_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(example, {})


def test_page_lists_each_fault() -> None:
    rows = re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE)
    assert rows == [fault.__name__ for fault in get_args(Fault)]
