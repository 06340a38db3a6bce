"""Every instance of a test speaks the edition *current*, unless the test says which one.

`pytest -p tests.support.current` runs any test so. It is loaded before the rest of flux-trio, which
then has the other edition where it would have its default. Tests that are marked `classic` are
about what the current edition has otherwise: they are skipped.
"""

from __future__ import annotations

import sys

import pytest

import flux_trio.editions

assert "flux_trio.config" not in sys.modules, "expected to be loaded first, by -p"
flux_trio.editions.CLASSIC = flux_trio.editions.CURRENT  # type: ignore[misc]  # that is the point


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("classic")) is not None:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
