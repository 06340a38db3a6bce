"""Reads what is at a key as flux-core sees it: a value, or a directory with one level of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flux_trio.cores.kvs.ops import (
    ENTRIES_MAX,
    KEY_CHAR_LAST,
    VALUE_BYTES_MAX,
    Damaged,
    Page,
    TreeAsked,
    TreeFound,
)
from flux_trio.cores.pages import page_size
from flux_trio.store.stores import Store

PAGE_KEYS: Final = 64  # of a directory, read at once


def read_trees(store: Store, asked: Sequence[TreeAsked]) -> list[TreeFound]:
    """Read values, or directories. Raises StoreError."""
    keys = [each.key for each in asked if each.key]
    values = dict(zip(keys, store.lookup(keys), strict=True))
    return [_read_tree(store, each, values.get(each.key)) for each in asked]


def _read_tree(store: Store, asked: TreeAsked, value: str | Damaged | None) -> TreeFound:
    key = asked.key
    if value is not None:
        return TreeFound(_with_pieces(store, key, value) if asked.in_pieces else value)
    if not asked.entries:
        is_dir = not key or bool(store.page(Page(key, 1, values=False)).keys)
        return TreeFound(is_dir=is_dir)
    names: dict[str, bool] = {}
    for name, is_value in _names_in(store, key, frozenset(asked.hidden)):
        if len(names) == ENTRIES_MAX:
            return TreeFound(is_dir=True, is_cut=True)
        names.setdefault(name, is_value)
    start = f"{key}." if key else ""
    with_value = [start + name for name, is_value in names.items() if is_value]
    values = store.lookup(with_value, VALUE_BYTES_MAX)
    if len(values) < len(with_value):
        return TreeFound(is_dir=True, is_cut=True)
    found = dict(zip(with_value, values, strict=True))
    entries = {name: found.get(start + name) for name in names}
    return TreeFound(is_dir=not key or bool(names), entries=entries)


def _names_in(store: Store, key: str, hidden: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Yield each name below `key`, and whether it is that of a value; what is deeper is skipped."""
    start = f"{key}." if key else ""
    after, limit = "", page_size(PAGE_KEYS)
    while True:
        keys = store.page(Page(key, limit, after, values=False)).keys
        for each in keys:
            if each <= after:
                continue  # in a directory that was yielded
            name, dot, _ = each.removeprefix(start).partition(".")
            after = f"{start}{name}.{KEY_CHAR_LAST}" if dot else each
            if name not in hidden:
                yield name, not dot
        if len(keys) < limit:
            return


def _with_pieces(store: Store, key: str, value: str | Damaged) -> str | Damaged:
    """Return a value with all its pieces; Damaged if one is."""
    whole = value
    number = 1
    while isinstance(whole, str):
        (piece,) = store.lookup([f"{key}.{number}"])
        if piece is None:
            return whole
        whole = piece if isinstance(piece, Damaged) else whole + piece
        number += 1
    return whole
