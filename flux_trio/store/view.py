"""The values as they are with pending changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flux_trio.cores.kvs.ops import Damaged, Page, PageRead, span
from flux_trio.store.pending import Pending
from flux_trio.store.reader import Reader


class View:
    """The values that `reader` reads, with the `pending` changes."""

    def __init__(self, reader: Reader | View, pending: Pending) -> None:
        self._reader = reader
        self._pending = pending

    def lookup(self, keys: Sequence[str]) -> list[str | Damaged | None]:
        pending = self._pending
        if not pending:
            return self._reader.lookup(keys)
        hidden = [pending.hides(key) for key in keys]
        shown = [key for key, is_hidden in zip(keys, hidden, strict=True) if not is_hidden]
        values = iter(self._reader.lookup(shown))
        return [
            pending.appended_to(key, None if is_hidden else next(values))
            for key, is_hidden in zip(keys, hidden, strict=True)
        ]

    def dir(self, prefix: str) -> list[str]:
        return self.listed(span(prefix))

    def page(self, page: Page) -> PageRead:
        keys = self.listed(page.bounds(), page.reverse, page.limit)
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        return len(self.dir(prefix)) if self._pending else self._reader.count(prefix)

    def every_key(self) -> list[str]:
        """Return all keys, including those without a head."""
        return self._with_added(self._not_unlinked(self._reader.every_key()), span(""))

    def only_head_is_missing(self, key: str) -> bool:
        """See `Reader`: pending changes are known whole."""
        return self._reader.only_head_is_missing(key)

    def listed(self, bounds: tuple[str, str], reverse: bool = False, limit: int = -1) -> list[str]:
        """Return at most `limit` keys between `bounds`; all of them for -1."""
        if not self._pending:
            return self._reader.listed(bounds, reverse, limit)
        found: list[str] = []
        rest = bounds
        while True:
            some = self._reader.listed(rest, reverse, limit)
            found += self._not_unlinked(some)
            if limit < 0 or len(some) < limit or len(found) >= limit:
                break
            rest = (rest[0], some[-1]) if reverse else (some[-1], rest[1])
        keys = self._with_added(found, bounds)
        if reverse:
            keys.reverse()
        return keys if limit < 0 else keys[:limit]

    def _not_unlinked(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if not self._pending.unlinks(key)]

    def _with_added(self, keys: Iterable[str], bounds: tuple[str, str]) -> list[str]:
        """Return `keys` and the pending ones between `bounds`, sorted."""
        first, last = bounds
        return sorted({*keys, *(key for key in self._pending.texts if first < key < last)})
