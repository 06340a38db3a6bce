"""How much one step takes of a whole, whose rest another step takes: the size of a page.

Keys of a read, jobs of a commit, rows of a response: in an instance a page is so large that most
wholes have only one. Worlds with faults make every page small, so that what works in pages works on
its second one, too. Bounds, beyond which something is refused or forgotten, are no pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_small = 0


def page_size(usual: int) -> int:
    """Return how many entries a page has that has `usual` ones in an instance."""
    return _small or usual


@contextmanager
def small_pages(size: int) -> Iterator[None]:
    """Let every page of this process have `size` entries in this block; 0: as in an instance."""
    global _small
    before, _small = _small, size
    try:
        yield
    finally:
        _small = before
