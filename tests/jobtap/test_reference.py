"""The reference of plugins in the documentation is the code's own."""

from __future__ import annotations

from docs.make_plugins import parts
from docs.make_samples import DOCS


def test_the_page_has_every_part() -> None:
    page = (DOCS / "reference" / "plugins.md").read_text()
    for name in parts():
        assert f"<!-- sample jobtap/{name} -->" in page
