"""Durations in messages."""

from __future__ import annotations

import pytest

from flux_trio.jobtap.builtins.durations import spell_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.5, "0.5s"),
        (30.0, "30s"),
        (60.0, "1m"),
        (90.0, "1.5m"),
        (3600.0, "1h"),
        (5400.0, "1.5h"),
        (86400.0, "1d"),
        (3660.0, "61m"),  # flux-core: 1h
        (100.0, "100s"),  # flux-core: 1.7m
        (86401.0, "86401s"),
    ],
)
def test_words_are_those_of_flux_core_where_they_are_exact(seconds: float, text: str) -> None:
    assert spell_duration(seconds) == text
