"""How often Python looks for reference cycles: thresholds of `gc.set_threshold`.

Python's default is to look after 700 new objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SERVING: Final = (20_000, 2, 50)
"""For an instance, which creates hardly any reference cycles, but many small objects: with Python's
default the collector took a third of the time. With higher thresholds than these, requests wait for
single long collections."""

IMPORTING: Final = (100_000, 10, 10)
"""For a process that starts. Its imports create objects that stay, up to 90,000 for `flux-trio
start`; with Python's default the collector looked through them several times, and a command or a
shell host took a tenth longer to start."""


@contextmanager
def collecting_at(thresholds: tuple[int, int, int]) -> Iterator[None]:
    """Set the thresholds for this block."""
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Raise the thresholds to SERVING for this block, unless they are at least that high."""
    before = gc.get_threshold()
    with collecting_at(SERVING if 0 < before[0] < SERVING[0] else before):
        yield
