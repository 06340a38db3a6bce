"""Bit sets as plain integers: what formats.Idset leaves out, or does less often."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

_FEW: Final = 12  # one-bits that are found fastest one by one
_SPARSE: Final = 20  # bits from one one-bit to the next, beyond which words are passed over
_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")


def lowest(bits: int, count: int) -> int:
    """The `count` lowest one-bits of `bits`; all of them when there are fewer."""
    if count == 1:
        return bits & -bits
    if bits.bit_count() <= count:
        return bits
    short, enough = 0, bits.bit_length()  # lengths of prefixes: too few ones, at least `count`
    while enough - short > 1:
        middle = (short + enough) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < count:
            short = middle
        else:
            enough = middle
    return bits & ((1 << enough) - 1)


# Nodes share few patterns of free cores, and a hit costs a twentieth of the search.
lowest_again = lru_cache(maxsize=4096)(lowest)


def ranks_of(ranks: int) -> Sequence[int]:
    """The positions of the one-bits, ascending."""
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
