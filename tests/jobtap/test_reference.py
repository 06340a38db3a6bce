"""The reference of plugins in the documentation is the code's own."""

from __future__ import annotations

from docs.make_plugins import DIRECTORY, pages


def test_the_parts_in_the_tree_are_those_that_the_code_says() -> None:
    written = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert written == pages(), "run: python -m docs.make_plugins"


def test_the_page_has_every_part() -> None:
    page = (DIRECTORY.parent / "plugins.md").read_text()
    for name in pages():
        assert f"{{include}} jobtap/{name}" in page
