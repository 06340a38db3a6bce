"""The commands of pages, typed in order, print what the pages show."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.make_typed import DOCS, commands, filled, normal, typed, typed_pages

PAGES = {str(path.relative_to(DOCS)): path.read_text() for path in typed_pages()}


def test_block_that_shows_an_output_makes_its_page_a_typed_one() -> None:
    assert "tutorial.md" in PAGES
    assert "howto/queues.md" in PAGES
    # Commands that print nothing, and a page that is for a live flux-core.
    assert "howto/tap-a-module.md" not in PAGES


def test_what_is_hidden_is_typed_and_what_is_shown_is_replaced() -> None:
    page = """
<!-- typed: a=1 -->
<!-- not typed: REASON -->
```console
$ left alone
```

```console
$ echo $a \\
    2
old
```
"""
    assert commands(page) == ["a=1", "echo $a \\\n    2"]
    assert filled(page, ["", "1 2\n"]) == page.replace("old", "1 2")


def test_tutorial_has_a_job_for_each_way_to_end() -> None:
    for end in (" CD ", " F ", " CA ", " TO "):
        assert end in PAGES["tutorial.md"]


@pytest.mark.real
@pytest.mark.gate
@pytest.mark.parametrize("name", PAGES)
def test_every_command_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    page = PAGES[name]
    if "node docs" in page and shutil.which("node") is None:
        pytest.skip("needs node")
    made = filled(page, typed(commands(page), tmp_path))
    assert normal(made) == normal(page), f"run: python -m docs.make_typed {name}"
