"""How much one step takes of a whole, whose rest another step takes: the size of a page.

Keys of a read, jobs of a commit, rows of a response: in an instance a page is so large that most
wholes have only one. Worlds with faults make every page small, so that what works in pages works on
its second one, too. Bounds, beyond which something is refused or forgotten, are no pages.
"""

from __future__ import annotations

_small = 0


def page_size(usual: int) -> int:
    """Return how many entries a page has that has `usual` ones in an instance."""
    return _small or usual


class small_pages:  # noqa: N801 - it is used as a block, and entered at each step of a world
    """Let every page of this process have `size` entries in this block; 0: as in an instance."""

    __slots__ = ("_before", "_size")

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        global _small
        self._before, _small = _small, self._size

    def __exit__(self, *_error: object) -> None:
        global _small
        _small = self._before
