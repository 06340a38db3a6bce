"""Packed states: a number for each key in sorted arrays, in place of an object for each.

An instance may run a million jobs, and some views have to know of each that it has ended. A view
says by `packs` which of its states are as good as a number; the state of such a key takes 16 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from typing import Any, Final, NamedTuple

_MAX: Final = 2**63


class Packing(NamedTuple):
    """How a view packs its states: `pack` returns a number for a state, or None if it cannot;
    `unpack` returns the state of a number.
    """

    pack: Callable[[Any], int | None]
    unpack: Callable[[int], Hashable]


class Packed(MutableMapping[Any, Any]):
    """The states of a view by key. A state that its packing can turn into a number is in an array,
    if its key is an integer.
    """

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._pack = packing.pack
        self.unpacked: dict[Any, Any] = {}
        """The states that are no numbers."""
        self._keys = array("q")
        self._numbers = array("q")

    def get(self, key: Any, default: Any = None) -> Any:
        found = self.unpacked.get(key)
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
            if key not in self.unpacked:  # nearly always it is there already
                self._remove(key)
            self.unpacked[key] = state
            return
        self.unpacked.pop(key, None)
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            self._numbers[at] = number
        else:
            self._keys.insert(at, key)
            self._numbers.insert(at, number)

    def __delitem__(self, key: Any) -> None:
        if key in self.unpacked:
            del self.unpacked[key]
        elif not self._remove(key):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self.unpacked) + len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        yield from self.unpacked
        yield from self._keys

    def _place(self, key: object) -> int | None:
        keys = self._keys
        if not keys or type(key) is not int or key > keys[-1]:
            return None
        at = bisect_left(keys, key)
        return at if keys[at] == key else None

    def _remove(self, key: object) -> bool:
        """Remove a packed state; return whether there was one."""
        at = self._place(key)
        if at is not None:
            del self._keys[at]
            del self._numbers[at]
        return at is not None
