"""Every page and slice as small as two: what works in pages works on its second one, too.

`pytest -p tests.support.small_pages` runs any test so, in its own process, but those that are about
how much one step takes. Worlds make pages small by `flux_trio.cores.pages`; here the constants
themselves are small, since tests count by them. The command has some more of them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

import flux_trio

SMALL: Final = 2
_ROOT: Final = Path(flux_trio.__file__).parent


def _asked_for() -> dict[str, set[str]]:
    """The names for which modules ask `page_size`, by module."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in _ROOT.rglob("*.py"):
        module = ".".join(("flux_trio", *path.relative_to(_ROOT).with_suffix("").parts))
        for name in re.findall(r"\bpage_size\(([A-Z_]+)\)", path.read_text(encoding="utf-8")):
            found[module].add(name)
    return found


PAGES: Final = _asked_for() | {
    "flux_trio.attach.monitor": {"SLICE"},
    "flux_trio.broker.router": {"BATCH_MAX"},  # those who import it ask
    "flux_trio.cli.follow.watching": {"AT_ONCE"},
    "flux_trio.cli.jobs.explanation": {"_ASKED_AT_ONCE"},
    "flux_trio.cli.jobs.job_purge": {"BATCH"},
    "flux_trio.cli.judge.monitoring": {"BATCH"},
    "flux_trio.trace.writing": {"BATCH", "WAITING_MAX"},
    "flux_trio.transports.share": {"SLICE_MESSAGES_MAX"},
}
"""The names of the sizes, by a module that has them."""

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
    usual = {
        (name, getattr(importlib.import_module(module), name))
        for module, names in PAGES.items()
        for name in names
    }
    for loaded in [each for name, each in sys.modules.items() if name.startswith("flux_trio.")]:
        vars(loaded).update({name: SMALL for name, size in usual if vars(loaded).get(name) == size})
