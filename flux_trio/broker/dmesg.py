"""`log.dmesg` and `log.clear`: the instance's log, readable by the instance owner.

A stream has the entries in the ring and, with `follow`, every later entry; ENODATA ends it. An
entry has `timestamp` (seconds since the Unix epoch), `level` (0-7, severities of RFC 5424), `party`
and `text`. In an instance with a native door it is a line of RFC 5424, as Flux's own programs read
it, unless the request wants `entries`; they also write lines by `log.append`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.broker.handle import Handle
from flux_trio.broker.log import LogBook, LogEntry
from flux_trio.editions.common import CANCEL, canceled
from flux_trio.messages import (
    FluxError,
    Level,
    Payload,
    Request,
    check_new_stream,
    check_owner,
    end_of_stream,
    expect_payload,
    respond,
    respond_error,
    respond_stream,
    topics,
    unknown_method,
    unknown_stream,
)


class DmesgRequest(msgspec.Struct):
    """The log.dmesg request: whether to wait for new entries, and whether to skip old ones.

    `entries` asks for objects where the answers would be lines.
    """

    follow: bool = False  # the stream goes on with new entries
    nobacklog: bool = False  # entries that are there are left out
    entries: bool = False  # our own: objects where the answers would be lines


class _Follower(NamedTuple):
    request: Request
    as_lines: bool


_LINE: Final = re.compile(
    r"<(?P<priority>\d{1,3})>1 \S+ \S+ (?P<app>\S+) \S+ \S+ (?:-|\[.*?\]) ?(?P<text>.*)", re.DOTALL
)
_LEVEL_SHIFT: Final = 3  # flux-core has the level where RFC 5424 has the facility


class LogService:
    """Answers requests for `book`, through `handle`; `as_lines` as Flux's programs read them."""

    def __init__(self, book: LogBook, handle: Handle, *, as_lines: bool) -> None:
        self._book = book
        self._handle = handle
        self._as_lines = as_lines
        self._followers: dict[tuple[str, int], _Follower] = {}
        self.methods = {
            topics.LOG_DMESG: self._dmesg,
            topics.LOG_DMESG_CANCEL: self._cancel,
            topics.LOG_CANCEL: self._cancel,
            topics.LOG_APPEND: self._append,
            topics.LOG_CLEAR: self._clear,
            topics.stats_of(topics.LOG): self._stats,
            topics.disconnect_of(topics.LOG): self._forget,
        }
        book.sinks.append(self._on_entry)

    def close(self) -> None:
        self._book.sinks.remove(self._on_entry)

    def serve(self, request: Request) -> None:
        try:
            method = self.methods.get(request.topic)
            if method is None:
                raise unknown_method(topics.LOG, request.topic.removeprefix(f"{topics.LOG}."))
            if method != self._forget:
                check_owner(request)
            method(request)
        except FluxError as error:
            self._handle.answer(respond_error(request, error.errnum, error.text))

    def _dmesg(self, request: Request) -> None:
        wanted = expect_payload(request, DmesgRequest)
        check_new_stream(request, self._followers)
        as_lines = self._as_lines and not wanted.entries
        if not wanted.nobacklog:
            for entry in self._book:
                self._handle.answer(respond_stream(request, _shown(entry, as_lines=as_lines)))
        if wanted.follow:
            self._followers[request.sender, request.matchtag] = _Follower(request, as_lines)
        else:
            self._handle.answer(end_of_stream(request))

    def _cancel(self, request: Request) -> None:
        matchtag = CANCEL.read(request).matchtag
        follower = self._followers.pop((request.sender, matchtag), None)
        if follower is None:
            raise unknown_stream(request, matchtag)
        self._handle.answer(canceled(follower.request, request))
        self._handle.answer(respond(request))

    def _append(self, request: Request) -> None:
        """log.append: a line of RFC 5424; what is none is written as it is."""
        text = request.payload if isinstance(request.payload, str) else ""
        line = _LINE.fullmatch(text)
        if line is None:
            entry = LogEntry(self._handle.now(), Level.INFO, request.sender, text)
        else:
            level = min(int(line["priority"]) >> _LEVEL_SHIFT, Level.DEBUG)
            entry = LogEntry(self._handle.now(), level, line["app"], line["text"])
        self._book.write(entry)
        self._handle.answer(respond(request))

    def _clear(self, request: Request) -> None:
        self._book.clear()
        self._handle.answer(respond(request))

    def _stats(self, request: Request) -> None:
        """log.stats-get: the entries that dmesg has, and those written since the start."""
        stats = {"ring-used": len(self._book), "count": self._book.written}
        self._handle.answer(respond(request, stats))

    def _forget(self, request: Request) -> None:
        sender = request.sender
        self._followers = {key: each for key, each in self._followers.items() if key[0] != sender}

    def _on_entry(self, entry: LogEntry) -> None:
        for request, as_lines in list(self._followers.values()):
            self._handle.answer(respond_stream(request, _shown(entry, as_lines=as_lines)))


def _shown(entry: LogEntry, *, as_lines: bool) -> Payload:
    return _line(entry) if as_lines else _payload(entry)


def _line(entry: LogEntry) -> str:
    """Return an entry as a line of RFC 5424; the host is the rank, as in flux-core's."""
    time = datetime.fromtimestamp(entry.t, UTC).isoformat(timespec="microseconds")
    time = time.replace("+00:00", "Z")
    return f"<{int(entry.level) << _LEVEL_SHIFT}>1 {time} 0 {entry.party} - - - {entry.text}"


def _payload(entry: LogEntry) -> dict[str, Any]:
    return {
        "timestamp": entry.t,
        "level": int(entry.level),
        "party": entry.party,
        "text": entry.text,
    }
