"""The changes that are in the journal and not yet in the tables of values, combined by key."""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeAlias, cast

import msgspec

from flux_trio.cores.kvs.ops import Append, Damaged, Put
from flux_trio.store.journal import Commit

BYTES_MAX: Final = 3 << 20  # of commits; more of them cost memory, and save little work
KEYS_MAX: Final = 65_536  # with changes; the same


Some: TypeAlias = str | list[str]
"""One text, or several: a list for each text would give the garbage collector much to do."""


class Slice(msgspec.Struct, frozen=True):
    """Some of the changes, to be written in one transaction; see `Pending`."""

    unlinked: list[str]
    replaced: list[str]
    texts: dict[str, Some]
    number: int  # of the part before the first of `texts`
    is_last: bool

    @property
    def changes(self) -> int:
        return len(self.unlinked) + len(self.texts)


class Pending:
    """Changes of the tables of values: first `unlinked`, then `replaced` and `texts`.

    `texts` are to be appended, in pieces, to each key. The tables' values of the keys `replaced`
    are to be removed before, and those of the keys `unlinked` with all keys below them.

    `first` is the number of the change before all of these, `number` that of the last. The changes
    are written in slices, `done` of them so far. The order of `unlinked` and `texts` depends on the
    commits alone: `journal.py` stores `done`, so that another order would need another layout.
    """

    def __init__(self, number: int) -> None:
        self.first = self.number = number
        self.done = 0
        self.unlinked: dict[str, None] = {}
        self.replaced: set[str] = set()
        self.texts: dict[str, Some] = {}
        self._unnamed: list[str] = []  # the keys of `texts` that are not in `_below` yet
        self._below: dict[str, Some] = {}  # the names of `texts` and above, by the name above
        self._nbytes = 0

    def __bool__(self) -> bool:
        return bool(self.texts or self.unlinked)

    def fills(self, times: int) -> bool:
        """Return whether the changes are more than `times` as many as there should be."""
        count = len(self.texts) + len(self.unlinked)
        return self._nbytes > times * BYTES_MAX or count > times * KEYS_MAX

    def add(self, commit: Commit) -> None:
        """Apply the changes of `commit`."""
        self.number = commit.number
        self._nbytes += commit.nbytes
        texts = self.texts
        for op in commit.ops:
            key = op.key
            if type(op) is Append:  # isinstance of a Struct costs four times as much
                there = texts.get(key)
                if there is None:
                    texts[key] = op.text
                    self._unnamed.append(key)
                elif type(there) is list:
                    there.append(op.text)
                else:
                    texts[key] = [cast("str", there), op.text]
            elif type(op) is Put:
                if key not in texts:
                    self._unnamed.append(key)
                texts[key] = op.text
                self.replaced.add(key)
            else:
                self._unlink(key)

    def _add_name(self, key: str) -> None:
        while key:
            above = key.rpartition(".")[0]
            there = self._below.get(above)
            if there is None:
                self._below[above] = key
                key = above
                continue
            if isinstance(there, str):
                there = self._below[above] = [there]
            there.append(key)
            return

    def _unlink(self, key: str) -> None:
        for name in self._unnamed:  # only now: most commits unlink nothing
            self._add_name(name)
        self._unnamed.clear()
        self.unlinked[key] = None
        gone = [key]
        while gone:
            name = gone.pop()
            self.texts.pop(name, None)
            self.replaced.discard(name)
            names = self._below.pop(name, ())
            gone += [names] if isinstance(names, str) else names

    # Writing

    def next_slice(self, changes_max: int) -> Slice:
        unlinked = list(islice(self.unlinked, changes_max))
        keys = list(islice(self.texts, changes_max - len(unlinked)))
        return Slice(
            unlinked,
            [key for key in keys if key in self.replaced],
            {key: self.texts[key] for key in keys},
            self.number - len(self.texts),  # a change writes at most one part
            len(unlinked) + len(keys) == len(self.unlinked) + len(self.texts),
        )

    def forget(self, some: Slice) -> None:
        """Remove `some`, which is in the tables now."""
        for key in some.unlinked:
            del self.unlinked[key]
        for key in some.texts:
            del self.texts[key]
        self.replaced.difference_update(some.replaced)
        self.done += some.changes

    # Reading

    def hides(self, key: str) -> bool:
        """Return whether the tables' value of `key` is replaced or unlinked."""
        return key in self.replaced or self.unlinks(key)

    def unlinks(self, key: str) -> bool:
        """Return whether the tables' value of `key` is unlinked, with or without a key above."""
        while key and self.unlinked:
            if key in self.unlinked:
                return True
            key = key.rpartition(".")[0]
        return False

    def appended_to(self, key: str, value: str | Damaged | None) -> str | Damaged | None:
        """Return `value` followed by the pending texts of `key`."""
        pieces = self.texts.get(key)
        if pieces is None:
            return value
        text = "".join(pieces)  # the same for one piece
        if isinstance(value, Damaged):
            return msgspec.structs.replace(value, remains=value.remains + text)
        return (value or "") + text
