from __future__ import annotations

from docs.make_cli import PAGE, page


def test_the_page_in_the_tree_is_that_of_the_command() -> None:
    assert PAGE.read_text() == page(), "run: python -m docs.make_cli"
