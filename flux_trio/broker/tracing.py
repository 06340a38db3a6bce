"""`module.trace`: streams what modules send and receive, as it happens.

Each stream is a sink of the trace with a bounded queue, so the instance never waits for a reader.
Records that do not fit are counted, and the stream reports the count in their place. With `records`
a stream has all records of the trace, of all parties and kinds, as the lines of a trace file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
import trio

from flux_trio.broker.handle import Handle
from flux_trio.editions.common import CANCEL
from flux_trio.formats import FormatError
from flux_trio.formats.glob import Glob
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Request,
    Response,
    check_new_stream,
    expect_payload,
    payload_bytes,
    respond_error,
    respond_stream,
    topics,
    unknown_stream,
)
from flux_trio.trace import Kind, Record, Trace, record_to_json

QUEUE_MAX: Final = 4096  # records that wait to be sent; further ones are only counted
QUEUE_BYTES_MAX: Final = 16 * 2**20  # their payloads as JSON; further ones are only counted
PREFIXES: Final = {Kind.SEND.value: "tx", Kind.RECV.value: "rx"}
TYPES: Final[dict[type, str]] = {Request: "request", Response: "response", Event: "event"}
NUMBERS: Final[dict[type, int]] = {Request: 1, Response: 2, Event: 4}  # RFC 3
NO_RANK: Final = -1  # flux-core's, where a message names no rank


class TraceRequest(msgspec.Struct):
    """The module.trace request: names of modules (empty: all), glob of topics, payloads or not.

    `records` asks for whole records instead; then the other keys have no effect. Flux's own
    programs send `typemask`, of the types' numbers, and read numbers.
    """

    names: list[str] = []  # of modules; none: all
    topic_glob: str = "*"  # of topics
    full: bool = False  # the payloads are told, too
    records: bool = False  # our own: whole records of the trace
    typemask: int | None = None  # 1 requests, 2 responses, 4 events, 8 control messages


class TraceStreams:
    """The open streams. `is_module` says whether a party is a module that may be traced."""

    def __init__(self, trace: Trace, is_module: Callable[[str], bool]) -> None:
        self._trace = trace
        self._is_module = is_module
        self._open: dict[tuple[str, int], trio.CancelScope] = {}

    def open(self, handle: Handle, request: Request) -> Callable[[], Awaitable[None]]:
        """Open a stream of all records from now on; return a function to run as its task.

        Raises FluxError(EPROTO) for an invalid request.
        """
        wanted = expect_payload(request, TraceRequest)
        check_new_stream(request, self._open)
        try:
            queue = _Queue(wanted, self._is_module)
        except FormatError as error:
            raise FluxError(Errno.EPROTO, f"{request.topic}: topic_glob: {error}") from None
        self._open[request.sender, request.matchtag] = trio.CancelScope()
        self._trace.add_sink(queue.put)
        return partial(self._feed, handle, request, queue)

    async def _feed(self, handle: Handle, request: Request, queue: _Queue) -> None:
        """Stream records until canceled, or until the reader is gone."""
        key = (request.sender, request.matchtag)
        try:
            with self._open[key]:
                while True:
                    for payload in await queue.next_batch():
                        handle.answer(respond_stream(request, payload))
        finally:
            self._trace.remove_sink(queue.put)
            del self._open[key]
        handle.answer(respond_error(request, Errno.ECANCELED))

    def cancel(self, request: Request) -> None:
        """End one of the sender's streams with ECANCELED; FluxError(ENOENT)."""
        matchtag = CANCEL.read(request).matchtag
        scope = self._open.get((request.sender, matchtag))
        if scope is None:
            raise unknown_stream(request, matchtag)
        scope.cancel()

    def forget(self, sender: str) -> None:
        """End the streams of `sender`, which is gone."""
        for (who, _), scope in self._open.items():
            if who == sender:
                scope.cancel()


class _Queue:
    """A sink that keeps the requested records and counts those that did not fit."""

    def __init__(self, wanted: TraceRequest, is_module: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._topics = Glob(wanted.topic_glob)
        self._is_module = is_module
        self._payloads: list[dict[str, Any]] = []
        self._bytes = 0  # of the messages in them
        self._lost = 0
        self._filled = trio.Event()

    def put(self, record: Record) -> None:
        """Keep a requested record if there is room."""
        if not self._is_wanted(record):
            return
        self._filled.set()
        if len(self._payloads) >= QUEUE_MAX:
            self._lost += 1
            return
        payload, size = _whole(record) if self._wanted.records else self._described(record)
        if payload is None or self._bytes + size > QUEUE_BYTES_MAX:
            self._lost += 1
            return
        self._payloads.append(payload)
        self._bytes += size

    async def next_batch(self) -> list[dict[str, Any]]:
        """Wait; return the payloads of all waiting records, at least one."""
        await self._filled.wait()
        payloads, self._payloads, self._bytes = self._payloads, [], 0
        lost, self._lost = self._lost, 0
        self._filled = trio.Event()
        return [*payloads, {"lost": lost}] if lost else payloads

    def _is_wanted(self, record: Record) -> bool:
        message = record.message
        topic = getattr(message, "topic", "")
        if topic.startswith(topics.MODULE_TRACE):
            return False  # tracing it would produce another record
        if self._wanted.records:
            return True
        if record.kind not in PREFIXES or type(message) not in TYPES:
            return False
        typemask = self._wanted.typemask
        if typemask is not None and not NUMBERS[type(message)] & typemask:
            return False
        names = self._wanted.names
        named = record.party in names if names else self._is_module(record.party)
        return named and self._topics.matches(topic)

    def _described(self, record: Record) -> tuple[dict[str, Any], int]:
        payload = described(record, full=self._wanted.full)
        if self._wanted.typemask is not None:
            payload |= {"type": NUMBERS[type(record.message)], "rank": NO_RANK}
            payload = {"errnum": 0, "errstr": "", **payload}
        return payload, payload["payload_size"]


def _whole(record: Record) -> tuple[dict[str, Any] | None, int]:
    """Return the payload with a whole record; None if its payload has no JSON form."""
    try:
        line = record_to_json(record)
    except (TypeError, ValueError, OverflowError, RecursionError):  # from a module in this process
        return None, 0
    return {"record": line.decode()}, len(line)


def described(record: Record, *, full: bool) -> dict[str, Any]:
    message = record.message
    assert isinstance(message, (Request, Response, Event))
    payload: dict[str, Any] = {
        "timestamp": record.t,
        "prefix": PREFIXES[record.kind],
        "name": record.party,
        "type": TYPES[type(message)],
        "topic": message.topic,
        "payload_size": payload_bytes(message),
    }
    if isinstance(message, Response):
        payload["errnum"] = message.errnum
        payload["errstr"] = message.error_text
    if full and isinstance(message.payload, dict):
        payload["payload"] = message.payload
    return payload
