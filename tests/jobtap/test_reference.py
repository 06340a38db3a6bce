"""The reference of plugins in the documentation is the code's own."""

from __future__ import annotations

import re

from docs.make_plugins import harness_parts, parts
from docs.make_samples import DOCS


def test_the_page_has_every_part() -> None:
    page = (DOCS / "reference" / "plugins.md").read_text()
    assert re.findall("<!-- sample jobtap/(.+) -->", page) == list(parts())


def test_the_pages_on_tests_have_every_part_about_harnesses() -> None:
    pages = [DOCS / "howto" / "test-a-plugin.md", DOCS / "reference" / "testing.md"]
    text = "".join(page.read_text() for page in pages)
    assert re.findall("<!-- sample testing/(.+) -->", text) == list(harness_parts())


def test_attributes_have_types() -> None:
    made = parts() | harness_parts()
    assert "- `name: str`: By default the name" in made["plugin"]
    assert "- `dependencies: frozenset[str]`: The descriptions" in made["job"]
    assert "- `calls: list[HookCall]`: Every call" in made["plugin-harness"]
    assert "- `state: JobState`: The state of the job." in made["plugin-harness-job"]
    assert "_empty" not in "".join(made.values())
