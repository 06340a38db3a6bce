"""RFC 22 idset strings, and the sets of ids that they describe.

A set is one Python integer used as a bit set: union and intersection of 100,000 ranks take
microseconds, and sets hash and compare by value. `parse` also accepts the form in brackets; `str`
prints the form without them. The empty set is the empty string: RFC 22 does not say so, but RFC 28
needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from operator import lt
from typing import Final, final

import msgspec

from flux_trio.formats.errors import FormatError

IDS_MAX: Final = 1 << 22
"""All ids are below this: twice the cores of 16,384 nodes of 128. The widest set takes 512 KiB."""

_IDSET = 'an idset such as "0-3,7"'
_BOUND = f"ids from 0 to {IDS_MAX - 1}"
_FEW = 256  # up to this many ids, one shift each is faster than a pass over every bit
_FLAGS = bytes.maketrans(b"01", b"\x00\x01")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[int]).decode


@final
class Idset:
    """An immutable set of ids from 0 to `IDS_MAX - 1`; iterates in ascending order."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = 0

    @classmethod
    def from_bits(cls, bits: int) -> Idset:
        """Return the positions of the one-bits of `bits`; FormatError if negative or too wide."""
        if bits < 0 or bits.bit_length() > IDS_MAX:
            raise FormatError(f"a bit set of at most {IDS_MAX} bits", bits)
        return _wrap(bits)

    @classmethod
    def of(cls, ids: Iterable[int]) -> Idset:
        """Return the set of `ids`, in any order, with repetitions; FormatError out of range."""
        unique = sorted(set(ids))
        if unique and not 0 <= unique[0] <= unique[-1] < IDS_MAX:
            raise FormatError(_BOUND, unique[0] if unique[0] < 0 else unique[-1])
        return _wrap(_bits_of(unique))

    @classmethod
    def parse(cls, text: object) -> Idset:
        """Parse `text` strictly as RFC 22 requires; FormatError."""
        return _wrap(_bits_of_edges(_checked_edges(text)))

    @classmethod
    def parse_below(cls, text: object, end: int) -> Idset:
        """Parse `text` as `parse` does, and leave out the ids from `end` on.

        A set takes memory by its greatest id, however short its text is.
        """
        return _wrap(_bits_of_edges(_cut(_checked_edges(text), end)))

    @property
    def bits(self) -> int:
        """Return the bit set: bit i is one if the set contains i."""
        return self._bits

    def first(self) -> int:
        """Return the smallest id; ValueError if the set is empty."""
        if not self._bits:
            raise ValueError("an empty idset has no first id")
        return (self._bits & -self._bits).bit_length() - 1

    def last(self) -> int:
        """Return the largest id; ValueError if the set is empty."""
        if not self._bits:
            raise ValueError("an empty idset has no last id")
        return self._bits.bit_length() - 1

    def is_disjoint(self, other: Idset) -> bool:
        return not self._bits & other._bits

    def brackets(self) -> str:
        """Return `str(self)`, in square brackets if it has a comma or range, for users to read."""
        text = str(self)
        return text if not text or text.isdecimal() else f"[{text}]"

    def __str__(self) -> str:
        bits = self._bits
        if not bits & (bits - 1):  # one id, as in most jobs, or an empty set
            return str(bits.bit_length() - 1) if bits else ""
        closing = bits & ~(bits >> 1) & (bits << 1)  # last ids of runs of two or more
        values = [*_positions(bits & ~(bits << 1)), *(-last for last in _positions(closing))]
        values.sort(key=abs)  # two ascending halves: a merge
        return _encode(values)[1:-1].decode().replace(",-", "-")

    def __repr__(self) -> str:
        return f"Idset({str(self)!r})"

    def __iter__(self) -> Iterator[int]:
        return _positions(self._bits)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __bool__(self) -> bool:
        return self._bits != 0

    def __contains__(self, id_: int) -> bool:
        return id_ >= 0 and self._bits >> id_ & 1 == 1

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Idset) else NotImplemented

    def __hash__(self) -> int:
        return hash((Idset, self._bits))

    def __le__(self, other: Idset) -> bool:
        return not self._bits & ~other._bits

    def __or__(self, other: Idset) -> Idset:
        return _wrap(self._bits | other._bits)

    def __and__(self, other: Idset) -> Idset:
        return _wrap(self._bits & other._bits)

    def __sub__(self, other: Idset) -> Idset:
        return _wrap(self._bits & ~other._bits)

    def __xor__(self, other: Idset) -> Idset:
        return _wrap(self._bits ^ other._bits)


def _wrap(bits: int) -> Idset:
    idset = Idset()
    idset._bits = bits
    return idset


def _edges(text: object) -> list[int]:
    """Return the numbers of an idset string in order; a negative number closes a range.

    For speed, msgspec reads them as JSON: "0-3,7" as [0,-3,7]. JSON also refuses leading zeroes and
    empty elements. A later 0 is out of order anyway, so -0 needs no special case.
    """
    if not isinstance(text, str):
        raise FormatError(_IDSET, text)
    inner = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    marks = inner.encode().translate(None, b"0123456789") if inner.isascii() else b"?"
    if marks.strip(b",-") or b"--" in marks:  # a foreign character, or a range such as 1-2-3
        raise FormatError(_IDSET, text)
    try:
        return _decode(f"[{inner.replace('-', ',-')}]")
    except msgspec.DecodeError:
        raise FormatError(_IDSET, text) from None


def _checked_edges(text: object) -> list[int]:
    """Return the edges of an idset string, which ascend and are below `IDS_MAX`."""
    edges = _edges(text)
    if len(edges) == 1 and edges[0] < IDS_MAX:
        return edges
    ids = [abs(edge) for edge in edges]
    if not all(map(lt, ids, ids[1:])):
        raise FormatError("an idset in ascending order, each id once", text)
    if ids and ids[-1] >= IDS_MAX:
        raise FormatError(_BOUND, text)
    return edges


def _cut(edges: list[int], end: int) -> list[int]:
    """Return the edges below `end`; a range that goes further ends before it."""
    kept = [edge for edge in edges if abs(edge) < end]
    following = edges[len(kept) : len(kept) + 1]
    if following and following[0] < 0 and kept and kept[-1] < end - 1:
        kept.append(1 - end)
    return kept


def _bits_of_edges(edges: list[int]) -> int:
    if len(edges) == 1:
        return 1 << edges[0]
    return _bits_of_ranges(edges) if min(edges, default=0) < 0 else _bits_of(edges)


def _bits_of_ranges(edges: list[int]) -> int:
    """Return the bits of ascending ids and ranges; the bits of [a, b] are 2**(b+1) - 2**a."""
    firsts = [edge for edge in edges if edge >= 0]
    followers = [*edges[1:], 0]
    lasts = [abs(edge) for edge, after in zip(edges, followers, strict=True) if after >= 0]
    return (_bits_of(lasts) << 1) - _bits_of(firsts)


def _bits_of(ids: list[int]) -> int:
    """Return the bit set of `ids`, which must ascend."""
    if len(ids) <= _FEW:
        bits = 0
        for id_ in ids:
            bits |= 1 << id_
        return bits
    digits = bytearray(b"0") * (ids[-1] + 1)
    for id_ in ids:
        digits[id_] = 49  # "1"
    digits.reverse()
    return int(digits, 2)


def _positions(bits: int) -> Iterator[int]:
    """Yield the positions of the one-bits of `bits`, ascending."""
    if bits.bit_count() <= _FEW:
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest
    else:
        digits = bin(bits)[:1:-1].encode()
        yield from compress(range(len(digits)), digits.translate(_FLAGS))
