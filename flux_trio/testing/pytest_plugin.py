"""Fixtures of flux-trio; pytest finds this module by its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from flux_trio.jobtap import Plugin
    from flux_trio.testing.harness import PluginHarness


class StartHarness(Protocol):
    """The value of the fixture: takes the arguments of `PluginHarness`."""

    def __call__(self, *plugins: Plugin, **options: Any) -> PluginHarness:
        """Return an entered harness, which ends with the test."""


@pytest.fixture
def plugin_harness() -> Iterator[StartHarness]:
    """Starts plugin harnesses, which end with the test."""
    from flux_trio.testing.harness import PluginHarness

    with ExitStack() as stack:

        def start(*plugins: Plugin, **options: Any) -> PluginHarness:
            return stack.enter_context(PluginHarness(*plugins, **options))

        yield start
