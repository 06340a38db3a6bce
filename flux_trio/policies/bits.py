"""Bit sets as plain integers: operations that formats.Idset lacks or does more slowly."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

_FEW: Final = 12  # up to this many one-bits, a loop over them is fastest
_SPARSE: Final = 20  # average distance of one-bits above which whole words are skipped
_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")


def lowest(bits: int, count: int) -> int:
    """Return the `count` lowest one-bits of `bits`; all of them if there are fewer."""
    if count == 1:
        return bits & -bits
    if bits.bit_count() <= count:
        return bits
    short, enough = 0, bits.bit_length()  # prefix lengths: one has too few ones, one has enough
    while enough - short > 1:
        middle = (short + enough) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < count:
            short = middle
        else:
            enough = middle
    return bits & ((1 << enough) - 1)


# Nodes share few patterns of free cores, and a cache hit costs a twentieth of the search.
lowest_cached = lru_cache(maxsize=4096)(lowest)


def ranks_of(ranks: int) -> Sequence[int]:
    """Return the positions of the one-bits, ascending."""
    count = ranks.bit_count()
    if count == 1:
        return (ranks.bit_length() - 1,)
    if count <= _FEW:
        return _one_by_one(ranks)
    start = (ranks & -ranks).bit_length() - 1
    if ranks.bit_length() - start > count * _SPARSE:
        return _by_words(ranks)
    digits = bin(ranks >> start)[:1:-1].encode().translate(_FLAGS)
    return list(compress(range(start, start + len(digits)), digits))


def _one_by_one(bits: int) -> list[int]:
    positions = []
    while bits:
        low = bits & -bits
        positions.append(low.bit_length() - 1)
        bits ^= low
    return positions


def _by_words(bits: int) -> list[int]:
    size = -(-bits.bit_length() // 64)
    words = struct.unpack(f"<{size}Q", bits.to_bytes(size * 8, "little"))
    positions = []
    for index, word in enumerate(words):
        if word:
            base = index * 64
            positions += [base + position for position in _one_by_one(word)]
    return positions
