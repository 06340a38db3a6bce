"""Durations in the words of flux-core's messages."""

from __future__ import annotations

from typing import Final

from flux_trio.formats import format_duration, parse_duration

_UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("m", 60.0))


def spell_duration(seconds: float) -> str:
    """Return the duration in its largest unit with two digits: 90 is `1.5m`.

    If two digits are not exact, return it exactly: 3660 is `61m`, which flux-core rounds to `1h`.
    """
    unit, scale = next((each for each in _UNITS if seconds >= each[1]), ("s", 1.0))
    text = f"{seconds / scale:.2g}{unit}"
    return text if parse_duration(text) == seconds else format_duration(seconds)
