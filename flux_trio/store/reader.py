"""Reads the state file and detects values that differ from what was committed.

A damaged page, row or text raises no error to the caller: the keys that it contains are reported as
damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.cores.kvs.ops import Damaged, Swept, first_values, span
from flux_trio.cores.pages import page_size
from flux_trio.messages import Errno
from flux_trio.store.checks import is_damage, store_error
from flux_trio.store.layout import Mark, filled, key_sum, part_sum, rows_prepared, whole_pieces
from flux_trio.store.stores import StoreError

READ_KEYS_MIN: Final = 4  # of the first statement of a read
READ_KEYS_MAX: Final = 256  # per statement
LONG_CHARS: Final = 16_384  # a longer value is read by a statement of its own
SWEEP_KEYS_MAX: Final = 64  # per slice of a sweep, which takes about a millisecond
SWEEP_CHARS: Final = 1 << 20  # a slice ends after the value that exceeds this

Head: TypeAlias = tuple[int, int]  # number of parts, total of their checksums
Part: TypeAlias = tuple[int, str, int]  # number, text, checksum

_PARTS: Final = msgspec.json.Decoder(list[tuple[str, int, str, int]])
_HEADS: Final = msgspec.json.Decoder(list[tuple[str, int, int]])
_MARKS: Final = msgspec.json.Decoder(list[Mark])
_KEYS: Final = msgspec.json.Decoder(list[str])
_LISTED: Final = msgspec.json.Decoder(list[tuple[str, int]])


_STORED_ONE: Final = (
    "SELECT (SELECT json_group_array(json_array(key, parts, total)) FROM head WHERE key = ?1), "
    "(SELECT json_group_array(json_array(key, number, text, sum)) FROM part WHERE key = ?1), '[]'"
)


class Unreadable(Exception):
    """A page, row or text cannot be read; the text is the reason."""


class Reader:
    """Reads the state file at `path` over the connection `db`. Raises StoreError."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._heads_agree = True  # with the account; if false, keys are also listed by their parts

    def check_heads(self) -> str:
        """Compare the account with all heads; return the difference, or ""."""
        try:
            found = self._db.execute(
                "SELECT ifnull(sum(parts), 0), ifnull(sum(total), 0) FROM head"
            ).fetchone()
            account = self._db.execute("SELECT parts, total FROM account WHERE id = 0").fetchone()
        except sqlite3.Error as error:
            self._heads_agree = False
            return str(error)
        self._heads_agree = found == account
        if account is None:
            return "the account is missing"
        if self._heads_agree:
            return ""
        return f"expected {account[0]} parts in all, found {found[0]}"

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> list[str | Damaged | None]:
        """See `Store`. Each statement reads more keys than the one before it."""
        unique = list(dict.fromkeys(keys))  # a key may occur twice
        needed = len(dict.fromkeys(keys[:at_least]))
        read = first_values(self._read_on(unique), chars_max, needed)
        values = dict(zip(unique, read, strict=False))
        return [values[key] for key in takewhile(values.__contains__, keys)]

    def _read_on(self, keys: Sequence[str]) -> Iterator[str | Damaged | None]:
        """Yield the value of each key, long ones as they are wanted."""
        start, count = 0, READ_KEYS_MIN
        while start < len(keys):
            some = keys[start : start + min(count, page_size(READ_KEYS_MAX))]
            values = self._read(some)
            for key in some:
                yield values[key] if key in values else self._read([key])[key]
            start += len(some)
            count *= 2

    def _read(self, keys: Sequence[str]) -> dict[str, str | Damaged | None]:
        """Return the values of `keys`, without those that are better read alone.

        These are long ones, and all of them if a page is damaged.
        """
        try:
            heads, parts, long = self._stored(keys)
        except Unreadable as error:
            if len(keys) > 1:
                return {}
            return {keys[0]: Damaged(f"{keys[0]}: unreadable: {error}", keys[0])}
        return {
            key: self._value(key, heads.get(key), parts.get(key, []))
            for key in keys
            if key not in long
        }

    def _stored(
        self, keys: Sequence[str]
    ) -> tuple[dict[str, Head], dict[str, list[Part]], set[str]]:
        """Return the stored heads and parts of `keys`; one row of JSON for all of them.

        Of several keys, long values have no parts here, and their keys are the third result.
        """
        marks = rows_prepared(len(keys))
        query = _stored_query(marks) if len(keys) > 1 else _STORED_ONE
        ((heads, parts, long),) = self._select(query, filled(keys, marks if len(keys) > 1 else 1))
        try:
            by_key: dict[str, list[Part]] = {}
            for key, number, text, found in _PARTS.decode(parts):
                by_key.setdefault(key, []).append((number, text, found))
            by_head = {key: (count, total) for key, count, total in _HEADS.decode(heads)}
            return by_head, by_key, set(_KEYS.decode(long))
        except msgspec.MsgspecError as error:
            raise Unreadable(str(error)) from error

    def only_head_is_missing(self, key: str) -> bool:
        """Return whether all parts of a damaged value are valid and only its head is missing."""
        try:
            heads, parts, _ = self._stored([key])
        except Unreadable:
            return False
        found = parts.get(key, [])
        return key not in heads and len(_valid_parts(key, found)) == len(found)

    def _value(self, key: str, head: Head | None, parts: list[Part]) -> str | Damaged | None:
        if head is None and not parts:
            return None
        damage = damage_of(key, head, parts)
        if damage:
            return Damaged(f"{key}: {damage}", key, self._remains(key, parts))
        return "".join(text for _, text, _ in sorted(parts))

    def _remains(self, key: str, parts: Sequence[Part]) -> str:
        """Return the parts that are undamaged, and the undamaged pieces of the other parts."""
        keysum, remains = key_sum(key), ""
        for number, text, found in sorted(parts):
            if part_sum(keysum, number, text) == found:
                remains += text
                continue
            with suppress(Unreadable, msgspec.MsgspecError):
                query = "SELECT CAST(marks AS TEXT) FROM part WHERE number = ?"
                ((marks,),) = self._select(query, [number])
                remains += whole_pieces(keysum, number, text, _MARKS.decode(marks or "[]"))
        return remains

    def count(self, prefix: str) -> int:
        if self._heads_agree:
            query = "SELECT count(*) FROM head WHERE key > ? AND key < ?"
            with suppress(Unreadable):
                ((count,),) = self._select(query, span(prefix))
                return int(count)
        return len(self.listed(span(prefix)))

    def listed(self, bounds: tuple[str, str], reverse: bool = False, limit: int = -1) -> list[str]:
        """Return at most `limit` keys between `bounds`; by their heads if these are valid."""
        if self._heads_agree:
            try:
                return self._listed_by_heads(bounds, reverse, limit)
            except Unreadable:
                self._heads_agree = False
        keys = sorted(self._listed_by_parts(bounds, reverse, limit), reverse=reverse)
        return keys if limit < 0 else keys[:limit]

    def _listed_by_heads(self, bounds: tuple[str, str], reverse: bool, limit: int) -> list[str]:
        query = (
            "SELECT json_group_array(json_array(key, keysum)) FROM (SELECT key, keysum FROM head "
            f"WHERE key > ? AND key < ? ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT {limit})"
        )
        ((rows,),) = self._select(query, bounds)
        try:
            listed = _LISTED.decode(rows)
        except msgspec.MsgspecError as error:
            raise Unreadable(str(error)) from error
        for key, keysum in listed:
            if key_sum(key) != keysum:
                raise Unreadable(f"{key}: not what was committed")
        return [key for key, _ in listed]

    def _listed_by_parts(
        self, bounds: tuple[str, str], reverse: bool = False, limit: int = -1
    ) -> set[str]:
        """Return the first `limit` keys that have a part or a valid head.

        The query reads only the requested keys, so damage elsewhere has no effect.
        """
        keys: set[str] = set()
        rest = (
            f"WHERE key > ? AND key < ? ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT {limit}"
        )
        with suppress(Unreadable):
            rows = self._select(f"SELECT key, keysum FROM head {rest}", bounds)
            keys |= {key for key, keysum in rows if key_sum(key) == keysum}
        try:
            keys |= {
                key for (key,) in self._select(f"SELECT DISTINCT key FROM part {rest}", bounds)
            }
        except Unreadable as error:
            if not keys:
                text = f"{self._path}: the keys after {bounds[0]!r} cannot be listed: {error}"
                raise StoreError(Errno.EBADMSG, text) from error
        return keys

    def _select(self, query: str, values: Sequence[str | int | None]) -> list[tuple[Any, ...]]:
        """Return rows; Unreadable if a page or a text is damaged, StoreError otherwise."""
        try:
            return self._db.execute(query, values).fetchall()
        except (sqlite3.OperationalError, UnicodeDecodeError) as error:
            raise Unreadable(str(error)) from error
        except sqlite3.Error as error:
            if is_damage(error):
                raise Unreadable(str(error)) from error
            raise store_error(self._path, "cannot be read", error) from error

    def every_key(self) -> list[str]:
        """Return all keys, including those without a head."""
        return sorted(self._listed_by_parts(span("")))

    def sweep(self, after: str) -> Swept:
        """Read the next keys after `after` ("" for the beginning); report damaged ones."""
        keys: set[str] = set()
        damaged: list[Damaged] = []
        for table in ("head", "part"):
            try:
                keys |= self._first_keys(table, (after, span("")[1]))
            except Unreadable as error:
                self._heads_agree = False
                damaged.append(Damaged(f"a list of keys cannot be read: {error}"))
        return self._swept(sorted(keys)[: page_size(SWEEP_KEYS_MAX)], damaged)

    def _first_keys(self, table: str, bounds: tuple[str, str]) -> set[str]:
        query = (
            f"SELECT DISTINCT key FROM {table} WHERE key > ? AND key < ? "
            f"ORDER BY key LIMIT {page_size(SWEEP_KEYS_MAX)}"
        )
        return {key for (key,) in self._select(query, bounds)}

    def _swept(self, keys: list[str], damaged: list[Damaged]) -> Swept:
        chars = 0
        for n, key in enumerate(keys, start=1):
            (value,) = self.lookup([key])
            if isinstance(value, Damaged):
                damaged.append(value)
            else:
                chars += len(value or "")
            if chars > SWEEP_CHARS:
                return Swept(key, damaged, n)
        return Swept(keys[-1] if keys else None, damaged, len(keys))


@lru_cache(maxsize=64)
def _stored_query(marks: int) -> str:
    some = ", ".join(f"?{n}" for n in range(1, marks + 1))
    return (
        f"WITH long AS (SELECT key FROM part WHERE key IN ({some}) GROUP BY key "
        f"HAVING sum(length(text)) > {LONG_CHARS}) "
        "SELECT (SELECT json_group_array(json_array(key, parts, total)) FROM head "
        f"WHERE key IN ({some})), (SELECT json_group_array(json_array(key, number, text, sum)) "
        f"FROM part WHERE key IN ({some}) AND key NOT IN (SELECT key FROM long)), "
        "(SELECT json_group_array(key) FROM long)"
    )


def _valid_parts(key: str, parts: Sequence[Part]) -> list[Part]:
    """Return the parts whose checksum is right, in order."""
    keysum = key_sum(key)
    return [part for part in sorted(parts) if part_sum(keysum, *part[:2]) == part[2]]


def damage_of(key: str, head: Head | None, parts: Sequence[Part]) -> str:
    """Return the damage of the value of `key`; "" if the value is as it was committed."""
    keysum = key_sum(key)
    for number, text, found in parts:
        if part_sum(keysum, number, text) != found:
            return f"part {number} is not what was committed"
    count, total = head or (0, 0)
    if len(parts) != count:
        return f"{count} parts were committed, {len(parts)} are there"
    if sum(found for _, _, found in parts) != total:
        return "the parts are not those that were committed"
    return ""
