"""Reads a state file for repair, even if the B-trees that find or list the values are damaged.

A value consists of its parts, and the B-tree of the parts also has their keys. So each part on an
undamaged page of that tree can be found by its number, even if the index or the heads cannot be
read.
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

NUMBERS_MAX: Final = 1 << 40  # upper bound of part numbers if the account cannot be read


class Salvage(Reader):
    """A slow reader that scans all parts if a key cannot be found otherwise."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        super().__init__(db, path)
        self._numbers: dict[str, list[int]] | None = None  # key -> part numbers, after the scan
        self._lost_parts = False  # the scan has met damage: any key may lack parts

    def every_key(self) -> list[str]:
        try:
            return super().every_key()
        except StoreError:  # heads and index are unreadable
            return sorted(self._scanned())

    def only_head_is_missing(self, key: str) -> bool:
        if not super().only_head_is_missing(key):
            return False
        self._scanned()
        return not self._lost_parts

    def _stored(
        self, keys: Sequence[str]
    ) -> tuple[dict[str, Head], dict[str, list[Part]], set[str]]:
        try:
            return super()._stored(keys)
        except Unreadable:
            if len(keys) > 1:
                raise
            return self._head_alone(keys[0]), {keys[0]: self._parts_alone(keys[0])}, set()

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
        """Return the numbers of all readable parts, by key."""
        if self._numbers is None:
            self._numbers = {}
            for number, key in self._scan():
                self._numbers.setdefault(key, []).append(number)
        return self._numbers

    def _scan(self) -> list[tuple[int, str]]:
        """Halve each range of numbers that contains a damaged page, until the rest is read."""
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
