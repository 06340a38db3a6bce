"""Packed states: a number for each key in sorted arrays, in place of an object for each.

An instance may run a million jobs, and some views have to know of each that it has ended. A view
says by `packs` which of its states are as good as a number; the state of such a key takes 16 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

_MAX: Final = 2**63
# Faster than through super().
_get: Final = dict[Any, Any].get
_has: Final = dict[Any, Any].__contains__
_set: Final = dict[Any, Any].__setitem__


class Packing(NamedTuple):
    """How a view packs its states: `pack` returns a number for a state, or None if it cannot;
    `unpack` returns the state of a number.
    """

    pack: Callable[[Any], int | None]
    unpack: Callable[[int], Hashable]


class Packed(dict[Any, Any]):
    """The states of a view by key. A state that its packing can turn into a number is in an array,
    if its key is an integer.
    """

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self._packing = packing
        self._pack = packing.pack
        self._keys = array("q")
        self._numbers = array("q")

    def get(self, key: Any, default: Any = None) -> Any:
        found = _get(self, key)
        if found is not None:
            return found
        at = self._place(key)
        return default if at is None else self._packing.unpack(self._numbers[at])

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, state: Any) -> None:
        number = self._pack(state)
        if number is None or not 0 <= number < _MAX or type(key) is not int or not 0 <= key < _MAX:
            if not _has(self, key):  # nearly always it is here already
                self._remove(key)
            _set(self, key, state)
            return
        super().pop(key, None)
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            self._numbers[at] = number
        else:
            self._keys.insert(at, key)
            self._numbers.insert(at, number)

    def pop(self, key: Any, default: Any = None) -> Any:
        if _has(self, key):
            return super().pop(key)
        found = self.get(key, default)
        self._remove(key)
        return found

    def clear(self) -> None:
        super().clear()
        del self._keys[:]
        del self._numbers[:]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._place(key) is not None

    def __len__(self) -> int:
        return super().__len__() + len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        yield from self._keys

    def items(self) -> Any:
        """Yield keys and states, packed ones too."""
        return chain(super().items(), zip(self._keys, self._unpacked(), strict=True))

    def values(self) -> Any:
        """Yield the states, packed ones too."""
        return chain(super().values(), self._unpacked())

    def _unpacked(self) -> Iterator[Any]:
        return map(self._packing.unpack, self._numbers)

    def _place(self, key: object) -> int | None:
        keys = self._keys
        if not keys or type(key) is not int or key > keys[-1]:
            return None
        at = bisect_left(keys, key)
        return at if keys[at] == key else None

    def _remove(self, key: object) -> None:
        at = self._place(key)
        if at is not None:
            del self._keys[at]
            del self._numbers[at]
