"""kvs.watch: streams of the changes of one key. Pure.

A watch reads its key once, and its reader is told of each change from then on. While the reader has
no credit, changes are not kept: the key is read again when the reader grants more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.ops import Append, Damaged, KvsOutbox, Op, Put, Unlink, check_key, span
from flux_trio.cores.state import Part
from flux_trio.cores.streams import Credit, Stream, StreamKey, Streams
from flux_trio.editions import kvs
from flux_trio.formats.meanings import KvsKey
from flux_trio.messages import Errno, Request, respond, respond_error, respond_stream


class KeyStream(Stream):
    """A stream about one key."""

    key: KvsKey


class Watch(KeyStream):
    """A stream of one key's changes, and what its reader knows."""

    begun: bool = False  # the key was read once
    exists: bool = False  # set once a value was sent
    sent: int = 0  # characters of the value that were sent
    behind: bool = False  # the value has changed since, without credit for it
    replaced: bool = False  # a put replaced it since: it does not begin with the sent text
    reading: bool = False  # it is read again


KeyStreamT = TypeVar("KeyStreamT", bound=KeyStream)


class StreamsByKey(Generic[KeyStreamT]):
    """Streams by their key."""

    def __init__(self) -> None:
        self._by_key: SortedDict[str, dict[StreamKey, KeyStreamT]] = SortedDict()

    def __getstate__(self) -> list[KeyStreamT]:
        return [watch for watches in self._by_key.values() for watch in watches.values()]

    def __setstate__(self, watches: list[KeyStreamT]) -> None:
        self._by_key = SortedDict()
        for watch in watches:
            self.add(watch)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, watch: KeyStreamT) -> None:
        self._by_key.setdefault(watch.key, {})[watch.stream] = watch

    def remove(self, watch: KeyStreamT) -> None:
        """Forget `watch`, if it is here."""
        others = self._by_key.get(watch.key, {})
        if others.pop(watch.stream, None) is not None and not others:
            del self._by_key[watch.key]

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def of(self, key: str) -> Iterable[KeyStreamT]:
        found: dict[StreamKey, KeyStreamT] = self._by_key.get(key, {})
        return found.values()

    def at_or_below(self, key: str) -> list[KeyStreamT]:
        """Return the watches of `key` and of the keys below it."""
        below = self._by_key.irange(*span(key), (False, False))
        return [watch for each in (key, *below) for watch in self.of(each)]


class Watches(Part):
    """The open watches; the bound on a sender's open requests also bounds them."""

    _open: Streams[Watch]
    _by_key: StreamsByKey[Watch]  # those that have read their key once

    def __init__(self, outbox: KvsOutbox, damages: Damages) -> None:
        self._outbox = outbox
        self._damages = damages
        self._open = Streams()
        self._by_key = StreamsByKey()

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, key: str) -> bool:
        """Return whether somebody follows `key`."""
        return key in self._by_key

    def count(self, key: str) -> int:
        """Return how many follow `key` or a key below it."""
        return len(self._by_key.at_or_below(key))

    def open(self, request: Request) -> Watch:
        """Return the new watch, whose key is to be read. Raises FluxError."""
        wanted = kvs.WATCH.read(request)
        key = check_key(wanted.key)
        self._open.check_new(request)
        watch = Watch(request, Credit(wanted.credit), key)
        self._open.add(watch)
        return watch

    def grant(self, request: Request) -> Watch | None:
        """kvs.watch-credit: return the watch if its key is to be read again."""
        watch = self._open.granted(request)
        self._outbox.send(respond(request))
        if watch is None or not watch.behind or watch.reading:
            return None
        watch.reading = True
        return watch

    def cancel(self, request: Request) -> None:
        """kvs.watch-cancel: end a watch with ECANCELED."""
        self.end(self._open.canceled(request), Errno.ECANCELED)
        self._outbox.send(respond(request, {}))

    def leave(self, sender: str) -> None:
        """Forget the watches of a peer that is gone."""
        for watch in self._open.of_sender(sender):
            self._forget(watch)

    def send_missing(self, watch: Watch, value: str | Damaged | None) -> None:
        """Send what the reader lacks of `value`, which the store has read."""
        if isinstance(value, Damaged):
            self._damages.report([value])
            self.end(watch, Errno.EBADMSG, value.text)
        elif not self._open.is_open(watch):
            pass
        elif not watch.begun:  # the next round's changes are the first that `value` lacks
            watch.begun = True
            self._by_key.add(watch)
            if value is not None:
                self._put(watch, value)
        elif value is not None:
            replaced = watch.replaced
            watch.behind = watch.replaced = watch.reading = False
            if replaced:
                self._put(watch, value)
            elif len(value) > watch.sent:
                self._append(watch, value[watch.sent :])

    def changed(self, ops: list[Op]) -> None:
        """Send the readers the changes by `ops`, which are durable."""
        if not self._by_key:
            return
        for op in ops:
            match op:
                case Put(key, text):
                    for watch in self._by_key.of(key):
                        self._put(watch, text)
                case Append(key, text):
                    for watch in self._by_key.of(key):
                        if watch.exists:
                            self._append(watch, text)
                        else:
                            self._put(watch, text)
                case Unlink(key):
                    for watch in [w for w in self._by_key.at_or_below(key) if w.exists]:
                        self.end(watch, Errno.ENOENT, f"{watch.key}: unlinked")

    def end(self, watch: Watch, errnum: int, text: str = "") -> None:
        """End `watch` with an error response, unless it has ended already."""
        if self._open.is_open(watch):
            self._forget(watch)
            self._outbox.send(respond_error(watch.request, errnum, text))

    def _put(self, watch: Watch, value: str) -> None:
        watch.exists = True
        if watch.behind or not watch.credit.allows(1):
            watch.behind = watch.replaced = True
            return
        watch.sent = len(value)
        self._send(watch, kvs.Change(value=value))

    def _append(self, watch: Watch, text: str) -> None:
        if watch.behind or not watch.credit.allows(1):
            watch.behind = True
            return
        watch.sent += len(text)
        self._send(watch, kvs.Change(append=text))

    def _send(self, watch: Watch, change: kvs.Change) -> None:
        watch.credit.spend()
        self._outbox.send(respond_stream(watch.request, kvs.CHANGE.write(change)))

    def _forget(self, watch: Watch) -> None:
        self._open.remove(watch)
        self._by_key.remove(watch)
