"""Fixtures for whoever has flux-trio installed: pytest finds this by its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from flux_trio.jobtap import Plugin
    from flux_trio.testing.harness import PluginHarness


class StartHarness(Protocol):
    """What the fixture gives: takes what `PluginHarness` takes."""

    def __call__(self, *plugins: Plugin, **options: Any) -> PluginHarness:
        """A harness that ends with the test."""


@pytest.fixture
def plugin_harness() -> Iterator[StartHarness]:
    """To start plugin harnesses with; they end with the test."""
    from flux_trio.testing.harness import PluginHarness

    with ExitStack() as stack:

        def start(*plugins: Plugin, **options: Any) -> PluginHarness:
            return stack.enter_context(PluginHarness(*plugins, **options))

        yield start
