"""Every page and slice as small as two: what works in pages works on its second one, too.

`pytest -p tests.support.small_pages` runs any test so, in its own process, but those that are about
how much one step takes. Worlds have pages of their own, see `flux_trio.lab.world.pages`; these are
those, and those of the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from flux_trio.lab.world import pages

SMALL: Final = 2

PAGES: Final[dict[str, tuple[str, ...]]] = pages.PAGES | {
    "flux_trio.attach.monitor": ("SLICE",),
    "flux_trio.cli.follow.watching": ("AT_ONCE",),
    "flux_trio.cli.jobs.explanation": ("_ASKED_AT_ONCE",),
    "flux_trio.cli.jobs.job_purge": ("BATCH",),
    "flux_trio.cli.judge.monitoring": ("BATCH",),
    "flux_trio.trace.writing": ("BATCH", "WAITING_MAX"),
    "flux_trio.transports.share": ("SLICE_MESSAGES_MAX",),
}
"""The names of the sizes, by the module that defines them."""

ABOUT_A_STEP: Final = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split()
"""Tests by file and function: what one turn asks, answers or reads; they play no more turns."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are about one step."""
    left_out = [item for item in items if _name(item) in ABOUT_A_STEP]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _name(item: pytest.Item) -> str:
    function = item.nodeid.partition("[")[0].rpartition("::")[2]
    return f"{item.nodeid.partition('::')[0]}::{function}"


def pytest_configure() -> None:
    """Called by pytest when it loads this file as a plugin."""
    for names, name, _ in pages.places_of(PAGES):
        names[name] = SMALL
