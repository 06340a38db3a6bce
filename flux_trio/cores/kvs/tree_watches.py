"""kvs-watch.lookup: flux-core's watches of a key. Pure.

A watch reads its key, and again after each commit that may change what it is told. So a reader sees
each value that is there between two rounds of the store; flux-core merges commits as well. The
flags say what is sent:

    WATCH                   the value after each commit that writes the key
    WATCH_UNIQ, WATCH_FULL  only if it differs from the last one
    WATCH_APPEND            what was appended; a put ends the watch with EINVAL
    STREAM                  the value once, then ENODATA
    WAITCREATE              wait for the key, or for the namespace, if it is not there
    INITIAL_SENTINEL        an empty object after what is there at the beginning

A key that goes ends the watch with ENOENT, a namespace that goes with ENOTSUP.
"""

from __future__ import annotations

from collections.abc import Sequence

from flux_trio.cores.kvs.held_requests import TreeRead
from flux_trio.cores.kvs.namespaces import Namespaces, stored_key
from flux_trio.cores.kvs.ops import KvsOutbox, Op, Put, TreeFound, Unlink
from flux_trio.cores.kvs.trees import Place, above, check_flags, normalized, tree_of, wants_entries
from flux_trio.cores.kvs.watches import KeyStream, StreamsByKey
from flux_trio.cores.state import Part
from flux_trio.cores.streams import Credit, Streams
from flux_trio.editions import flux_kvs
from flux_trio.editions.flux_kvs import (
    INITIAL_SENTINEL,
    STREAM,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_UNIQ,
)
from flux_trio.formats import treeobj
from flux_trio.formats.meanings import Json, JsonObject, KvsKey
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error, respond_stream

_NEEDS_WATCH = WATCH_FULL | WATCH_UNIQ | WATCH_APPEND | INITIAL_SENTINEL


class TreeWatch(KeyStream):
    """A watch, and what its reader knows."""

    place: Place
    flags: int
    reading: bool = False  # a read is under way, which comes after all commits until its answer
    responded: bool = False
    is_replaced: bool = False  # a put wrote the key since the last response
    sent: int = 0  # characters that were sent of a value that is appended to
    last: Json = None  # the last treeobj, if only a change is told
    owes_sentinel: bool = False
    gone: str = ""  # its namespace was removed: it ends when what was there last is told


class TreeWatches(Part):
    """The open watches; the bound on a sender's open requests also bounds them."""

    _open: Streams[TreeWatch]
    _by_key: StreamsByKey[TreeWatch]
    _due: list[TreeWatch]

    def __init__(self, outbox: KvsOutbox, namespaces: Namespaces) -> None:
        self._outbox = outbox
        self._namespaces = namespaces
        self._open = Streams()
        self._by_key = StreamsByKey()
        self._due = []  # their keys are to be read

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, key: str) -> bool:
        """Return whether somebody follows `key`."""
        return key in self._by_key

    def count(self, key: str) -> int:
        """Return how many follow `key` or a key below it."""
        return len(self._by_key.at_or_below(key))

    def open(self, request: Request) -> KvsKey:
        """Open a watch; return its key in the store. Raises FluxError."""
        asked = flux_kvs.LOOKUP.read(request)
        self._check(request, asked)
        is_there = asked.namespace in self._namespaces.by_name
        if is_there or not asked.flags & WAITCREATE or asked.namespace is None:
            place = self._namespaces.place(asked, request)
        else:
            key = normalized(asked.key)
            place = Place(asked.namespace, key, stored_key(asked.namespace, key))
        watch = TreeWatch(request, Credit(), place.stored, place, asked.flags)
        watch.owes_sentinel = bool(asked.flags & INITIAL_SENTINEL)
        self._open.add(watch)
        self._by_key.add(watch)
        if is_there:
            self._read_again(watch)
        return watch.key

    def _check(self, request: Request, asked: flux_kvs.LookupAt) -> None:
        flags = asked.flags
        check_flags(request, flags, flux_kvs.WATCH_FLAGS)
        if asked.rootdir is not None:
            raise FluxError(Errno.EPROTO, f"{request.topic}: a root does not change: no watch")
        for flag, name in ((WATCH, "watch"), (STREAM, "stream")):
            if flags & flag and not request.is_streaming:
                text = f"KVS {name} request rejected without streaming RPC flag"
                raise FluxError(Errno.EPROTO, text)
        if flags & WATCH and flags & STREAM:
            raise FluxError(Errno.EINVAL, "Cannot KVS watch and stream at the same time")
        if flags & _NEEDS_WATCH and not flags & WATCH:
            raise FluxError(Errno.EINVAL, "Must set KVS watch flag with other watch flags")
        if flags & INITIAL_SENTINEL and not flags & WATCH_APPEND:
            text = "Must set KVS watch append flag with initial sentinel flag"
            raise FluxError(Errno.EINVAL, text)
        if not request.wants_response or (request.sender, request.matchtag) in self._open:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected a matchtag of its own")

    def cancel(self, request: Request) -> None:
        """kvs-watch.cancel: end a watch with ENODATA; it may have ended already."""
        matchtag = flux_kvs.WATCH_CANCEL.read(request).matchtag
        watch = self._open.get((request.sender, matchtag))
        if watch is not None:
            self._end(watch, Errno.ENODATA)
        self._outbox.send(respond(request))

    def leave(self, sender: str) -> None:
        """Forget the watches of a peer that is gone."""
        for watch in self._open.of_sender(sender):
            self._forget(watch)

    def pop_due(self) -> list[TreeRead]:
        """Return the reads that are due."""
        due, self._due = self._due, []
        reads = []
        for watch in due:
            if self._open.is_open(watch):
                watch.reading = True
                asked = self._namespaces.asked(watch.place, watch.flags)
                reads.append(
                    TreeRead(watch.request, [asked], watch.place, watch.flags, watch.stream)
                )
        return reads

    def changed(self, ops: Sequence[Op]) -> None:
        """Read again what `ops`, which are durable, may have changed."""
        if not self._by_key:
            return
        for op in ops:
            for watch in self._by_key.at_or_below(op.key) if isinstance(op, Unlink) else ():
                self._read_again(watch)
            for watch in list(self._by_key.of(op.key)):
                watch.is_replaced |= isinstance(op, Put)
                self._read_again(watch)
            for key in ("", *above(op.key)):
                is_piece = bool(self._namespaces.of_output(key))
                for watch in list(self._by_key.of(key)):
                    if is_piece or wants_entries(watch.flags) or not watch.responded:
                        self._read_again(watch)

    def created(self, namespace: str) -> None:
        """Read for the watches that wait for a namespace."""
        for watch in self._open.all_open():
            if watch.place.namespace == namespace:
                try:
                    self._namespaces.of(namespace, watch.request)
                except FluxError as error:
                    self._end(watch, error.errnum, error.text)
                else:
                    self._read_again(watch)

    def removed(self, namespace: str, text: str) -> None:
        """End the watches of a namespace that is removed."""
        for watch in self._open.all_open():
            if watch.place.namespace != namespace:
                continue
            if watch.reading or watch in self._due:
                watch.gone = text
            else:
                self._end(watch, Errno.ENOTSUP, text)

    def _read_again(self, watch: TreeWatch) -> None:
        """Read it in the next round, unless a read is under way: a round reads after it commits."""
        if not watch.reading and watch not in self._due:
            self._due.append(watch)

    def read(self, read: TreeRead, found: TreeFound) -> None:
        """Tell a reader what was read, if it is to be told."""
        assert read.watch is not None
        watch = self._open.get(read.watch)
        if watch is None or watch.request is not read.request:
            return
        watch.reading = False
        self._take(watch, found)
        if watch.gone and self._open.is_open(watch):
            self._end(watch, Errno.ENOTSUP, watch.gone)

    def _take(self, watch: TreeWatch, found: TreeFound) -> None:
        try:
            val = tree_of(found, watch.place.key, watch.flags)
        except FluxError as error:
            waits = error.errnum == Errno.ENOENT and watch.flags & WAITCREATE
            if waits and not watch.responded:
                self._send_sentinel(watch)
            else:
                self._end(watch, error.errnum, error.text)
            return
        self._tell(watch, val)

    def failed(self, read: TreeRead, errnum: int, text: str) -> None:
        """End a watch whose key cannot be read."""
        assert read.watch is not None
        watch = self._open.get(read.watch)
        if watch is not None and watch.request is read.request:
            self._end(watch, errnum, text)

    def _tell(self, watch: TreeWatch, val: JsonObject) -> None:
        flags, replaced = watch.flags, watch.is_replaced
        watch.is_replaced = False
        if flags & WATCH_APPEND:
            self._tell_appended(watch, val, replaced=replaced)
            return
        if flags & (WATCH_UNIQ | WATCH_FULL):
            if watch.responded and val == watch.last:
                return
            watch.last = val
        self._send(watch, val)
        if flags & STREAM:
            self._end(watch, Errno.ENODATA)
        elif not flags & WATCH:
            self._forget(watch)

    def _tell_appended(self, watch: TreeWatch, val: JsonObject, *, replaced: bool) -> None:
        if not treeobj.is_of_type(val, "val"):
            text = f"{treeobj.kind_of(val)} cannot be watched with WATCH_APPEND"
            self._end(watch, Errno.EISDIR, text)
            return
        text = treeobj.text_of(val)
        if watch.responded and (replaced or len(text) < watch.sent):
            overwritten = "value of key watched with WATCH_APPEND overwritten"
            self._end(watch, Errno.EINVAL, overwritten)
            return
        if not watch.responded or len(text) > watch.sent:
            self._send(watch, treeobj.val(text[watch.sent :]) if watch.sent else val)
            watch.sent = len(text)
        self._send_sentinel(watch)

    def _send(self, watch: TreeWatch, val: JsonObject) -> None:
        watch.responded = True
        answer = respond_stream if watch.request.is_streaming else respond
        found = flux_kvs.FOUND.write(flux_kvs.Found(val))
        self._outbox.send(answer(watch.request, found))

    def _send_sentinel(self, watch: TreeWatch) -> None:
        if watch.owes_sentinel:
            watch.owes_sentinel = False
            self._outbox.send(respond_stream(watch.request, {}))

    def _end(self, watch: TreeWatch, errnum: int, text: str = "") -> None:
        self._forget(watch)
        self._outbox.send(respond_error(watch.request, errnum, text))

    def _forget(self, watch: TreeWatch) -> None:
        self._open.remove(watch)
        self._by_key.remove(watch)
