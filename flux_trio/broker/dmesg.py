"""`log.dmesg` and `log.clear`: the instance's log, readable by the instance owner.

A stream has the entries in the ring and, with `follow`, every later entry; ENODATA ends it. An
entry has `timestamp` (seconds since the Unix epoch), `level` (0-7, severities of RFC 5424), `party`
and `text`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.broker.handle import Handle
from flux_trio.broker.log import LogBook, LogEntry
from flux_trio.editions.common import CANCEL
from flux_trio.messages import (
    Errno,
    FluxError,
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
    """The log.dmesg request: whether to wait for new entries, and whether to skip old ones."""

    follow: bool = False
    nobacklog: bool = False


class LogService:
    """Answers requests for `book`, through `handle`."""

    def __init__(self, book: LogBook, handle: Handle) -> None:
        self._book = book
        self._handle = handle
        self._followers: dict[tuple[str, int], Request] = {}
        self.methods = {
            topics.LOG_DMESG: self._dmesg,
            topics.LOG_DMESG_CANCEL: self._cancel,
            topics.LOG_CLEAR: self._clear,
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
        if not wanted.nobacklog:
            for entry in self._book:
                self._handle.answer(respond_stream(request, _payload(entry)))
        if wanted.follow:
            self._followers[request.sender, request.matchtag] = request
        else:
            self._handle.answer(end_of_stream(request))

    def _cancel(self, request: Request) -> None:
        matchtag = CANCEL.read(request).matchtag
        follower = self._followers.pop((request.sender, matchtag), None)
        if follower is None:
            raise unknown_stream(request, matchtag)
        self._handle.answer(respond_error(follower, Errno.ECANCELED))
        self._handle.answer(respond(request))

    def _clear(self, request: Request) -> None:
        self._book.clear()
        self._handle.answer(respond(request))

    def _forget(self, request: Request) -> None:
        sender = request.sender
        self._followers = {key: each for key, each in self._followers.items() if key[0] != sender}

    def _on_entry(self, entry: LogEntry) -> None:
        for request in list(self._followers.values()):
            self._handle.answer(respond_stream(request, _payload(entry)))


def _payload(entry: LogEntry) -> dict[str, Any]:
    return {
        "timestamp": entry.t,
        "level": int(entry.level),
        "party": entry.party,
        "text": entry.text,
    }
