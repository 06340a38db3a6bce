"""Reading a state file for its repair: past damage to the trees that find and list what it holds.

A value is its parts, and the tree of the parts has their keys as well. So each part on a whole page
of that tree is found by its number, also when the index of keys or the heads cannot be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from flux_trio.store.checks import last_number
from flux_trio.store.reader import Head, Part, Reader, Unreadable
from flux_trio.store.stores import StoreError

NUMBERS_MAX: Final = 1 << 40  # of changes, where the account does not tell


class Salvage(Reader):
    """A reader that takes its time."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        super().__init__(db, path)
        self._numbers: dict[str, list[int]] | None = None  # of the parts of each key, once scanned
        self._lost_parts = False  # the scan has found damage: any key may lack some

    def every_key(self) -> list[str]:
        try:
            return super().every_key()
        except StoreError:  # no tree lists them
            return sorted(self._scanned())

    def lost_its_head(self, key: str) -> bool:
        if not super().lost_its_head(key):
            return False
        self._scanned()
        return not self._lost_parts

    def _stored(self, keys: Sequence[str]) -> tuple[dict[str, Head], dict[str, list[Part]]]:
        try:
            return super()._stored(keys)
        except Unreadable:
            if len(keys) > 1:
                raise
            return self._head_alone(keys[0]), {keys[0]: self._parts_alone(keys[0])}

    def _head_alone(self, key: str) -> dict[str, Head]:
        with suppress(Unreadable):
            rows = self._select("SELECT parts, total FROM head WHERE key = ?", [key])
            return dict.fromkeys([key], rows[0]) if rows else {}
        return {}

    def _parts_alone(self, key: str) -> list[Part]:
        try:
            return self._select("SELECT number, text, sum FROM part WHERE key = ?", [key])
        except Unreadable:
            parts: list[Part] = []
            for number in self._scanned().get(key, []):
                with suppress(Unreadable):
                    query = "SELECT number, text, sum FROM part WHERE number = ?"
                    parts += self._select(query, [number])
            return parts

    def _scanned(self) -> dict[str, list[int]]:
        """The numbers of all parts that can be read, by key."""
        if self._numbers is None:
            self._numbers = {}
            for number, key in self._scan():
                self._numbers.setdefault(key, []).append(number)
        return self._numbers

    def _scan(self) -> list[tuple[int, str]]:
        """Halve each range of numbers with a damaged page in it, until what is whole is read."""
        found: list[tuple[int, str]] = []
        ranges = [(0, self._last_number())]
        while ranges:
            first, last = ranges.pop()
            query = "SELECT number, key FROM part WHERE number BETWEEN ? AND ?"
            try:
                found += self._select(query, [first, last])
            except Unreadable:
                middle = (first + last) // 2
                self._lost_parts = True
                if first < last:
                    ranges += [(first, middle), (middle + 1, last)]
        return found

    def _last_number(self) -> int:
        try:
            return last_number(self._db, self._path)
        except (StoreError, sqlite3.Error):
            return NUMBERS_MAX
