"""Editions answer questions by name."""

from __future__ import annotations

import pytest

from flux_trio.editions import CLASSIC, EDITIONS


def test_editions_are_found_by_their_own_name() -> None:
    assert {name: edition.name for name, edition in EDITIONS.items()} == {"classic": "classic"}


def test_edition_is_a_value_that_nobody_changes() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        CLASSIC.hello_needs_no_start_outstanding = False  # type: ignore[misc]  # that is the point
