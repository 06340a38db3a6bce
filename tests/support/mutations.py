"""Damage to the files of a store, one mutation at a time, each from a random generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from flux_trio.cores.kvs.ops import Damaged
from flux_trio.store.stores import Store

PAGE_BYTES: Final = 4096
WAL_HEADER_BYTES: Final = 32
FRAME_BYTES: Final = 24 + PAGE_BYTES


def _flip_bit(content: bytearray, rng: Random) -> str:
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    return f"bit {bit} of byte {at} flipped"


def _write_byte(content: bytearray, rng: Random) -> str:
    at, value = rng.randrange(len(content)), rng.randrange(256)
    content[at] = value
    return f"byte {at} is {value}"


def _zero_page(content: bytearray, rng: Random) -> str:
    at = rng.randrange(0, len(content), PAGE_BYTES)
    content[at : at + PAGE_BYTES] = bytes(len(content[at : at + PAGE_BYTES]))
    return f"{PAGE_BYTES} bytes from {at} are zero"


def _swap_pages(content: bytearray, rng: Random) -> str:
    pages = len(content) // PAGE_BYTES
    first, second = (PAGE_BYTES * rng.randrange(pages) for _ in range(2))
    one, other = (bytes(content[at : at + PAGE_BYTES]) for at in (first, second))
    content[first : first + PAGE_BYTES], content[second : second + PAGE_BYTES] = other, one
    return f"the pages at {first} and {second} are swapped"


def _truncate(content: bytearray, rng: Random) -> str:
    size = rng.randrange(len(content))
    del content[size:]
    return f"cut to {size} bytes"


def _cut_frames(content: bytearray, rng: Random) -> str:
    """Cut a write-ahead log, or a file, between two frames."""
    size = WAL_HEADER_BYTES + FRAME_BYTES * rng.randrange(max(1, len(content) // FRAME_BYTES))
    del content[size:]
    return f"cut to {size} bytes, a whole number of frames"


MUTATIONS: Final[tuple[Callable[[bytearray, Random], str], ...]] = (
    _flip_bit,
    _flip_bit,  # the most frequent damage there is
    _write_byte,
    _zero_page,
    _swap_pages,
    _truncate,
    _cut_frames,
)


def leaves(path: Path, root: int) -> list[int]:
    """The leaf pages, in the order of their keys, of an SQLite tree that has two levels."""
    start = (root - 1) * PAGE_BYTES
    page = path.read_bytes()[start : start + PAGE_BYTES]

    def number(at: int, nbytes: int) -> int:
        return int.from_bytes(page[at : at + nbytes], "big")

    cells = [number(12 + 2 * n, 2) for n in range(number(3, 2))]
    return [number(cell, 4) for cell in cells] + [number(8, 4)]


def spoil(path: Path, page: int) -> None:
    """Overwrite a page with what is none."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)


def mutate(path: Path, rng: Random) -> str:
    """Damage the file at `path`; what was done."""
    content = bytearray(path.read_bytes())
    said = rng.choice(MUTATIONS)(content, rng)
    path.write_bytes(content)
    return f"{path.name}: {said}"


def contents(store: Store) -> dict[str, str | Damaged | None]:
    """All values of a store, by key."""
    keys = store.dir("")
    return dict(zip(keys, store.lookup(keys), strict=True))
