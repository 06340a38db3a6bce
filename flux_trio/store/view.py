"""The values as they are with pending changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flux_trio.cores.kvs.ops import Damaged, Page, PageRead, first_values, span
from flux_trio.store.pending import Pending
from flux_trio.store.reader import Reader


class View:
    """The values that `reader` reads, with the `pending` changes."""

    def __init__(self, reader: Reader | View, pending: Pending) -> None:
        self._reader = reader
        self._pending = pending

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> list[str | Damaged | None]:
        """See `Store`."""
        if not self._pending:
            return self._reader.lookup(keys, chars_max, at_least)
        hidden = [self._pending.hides(key) for key in keys]
        shown = [key for key, is_hidden in zip(keys, hidden, strict=True) if not is_hidden]
        read = self._reader.lookup(shown, chars_max, at_least - sum(hidden[:at_least]))
        values = self._with_pending(zip(keys, hidden, strict=True), iter(read))
        return list(first_values(values, chars_max, at_least))

    def _with_pending(
        self, keys: Iterable[tuple[str, bool]], values: Iterator[str | Damaged | None]
    ) -> Iterator[str | Damaged | None]:
        """Yield the value of each key; `values` has those of the keys that are not hidden."""
        for key, is_hidden in keys:
            value = None
            if not is_hidden:
                try:
                    value = next(values)
                except StopIteration:
                    return  # it was not read, and no later one
            yield self._pending.appended_to(key, value)

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
