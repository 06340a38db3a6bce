"""What the scheduler's core and a broker of flux-core say to each other: which message goes where.

RFC 27 and 28 pass as they are, with matchtags of the bridge's own. In other shapes are:

- the kvs: treeobjs there, texts here, and one lookup there reads one key;
- the return of a job manager: here the event service-back, there nothing tells of it, so that the
  bridge asks for it until there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from flux_trio.attach import kvs
from flux_trio.editions import kvs as our_kvs
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import (
    ROLE_OWNER,
    Calls,
    Errno,
    Event,
    FluxError,
    Message,
    Request,
    Response,
    expect_payload,
    topics,
)

TAGS_AFTER: Final = 1 << 31
"""Matchtags up to it are of the handle, which may have calls of its own."""
PING_MANAGER: Final = f"{topics.JOB_MANAGER}.ping"


class Passed(msgspec.Struct, frozen=True):
    """Answers a request of the core that has another matchtag there."""

    matchtag: int


class Values(msgspec.Struct):
    """The answers so far to a kvs.lookup-all of the core."""

    matchtag: int
    keys: list[str]
    found: dict[str, str | None] = {}
    is_over: bool = False
    """An error was the answer."""


class ValueRead(msgspec.Struct, frozen=True):
    """Answers the lookup of one of the keys of `values`."""

    key: str
    values: Values


class ManagerSought(msgspec.Struct, frozen=True):
    """Answers a ping of the job manager."""


Call: TypeAlias = Passed | ValueRead | ManagerSought


class SchedBridge:
    """Gives messages of the core to the broker, and back."""

    def __init__(self) -> None:
        self._calls: Calls[Call] = Calls(TAGS_AFTER)
        self._lacks_manager = False  # the core waits for its return

    def from_core(self, message: Request | Response | Event) -> Iterator[Message]:
        """Yield what goes to the broker."""
        if not isinstance(message, Request) or not message.matchtag:
            yield message
            return
        match message.topic:
            case topics.KVS_LOOKUP_ALL:
                yield from self._look_up(message)
            case topics.KVS_COMMIT:
                payload = _commit_payload(our_kvs.COMMIT.read(message).ops)
                yield self._passed(msgspec.structs.replace(message, payload=payload))
            case _:
                yield self._passed(message)

    def from_broker(self, message: Message) -> Iterator[Message]:
        """Yield what goes to the core."""
        if not isinstance(message, Response):
            yield message
            return
        match self._calls.match(message):
            case Passed(matchtag):
                if message.topic == topics.SCHED_HELLO and message.errnum == Errno.ENOSYS:
                    self._lacks_manager = True
                yield msgspec.structs.replace(message, matchtag=matchtag)
            case ValueRead(key, values):
                yield from self._value_read(key, values, message)
            case ManagerSought() if message.errnum != Errno.ENOSYS and self._lacks_manager:
                self._lacks_manager = False
                back = {"service": topics.JOB_MANAGER}
                yield Event(topics.SERVICE_BACK_EVENT, back, rolemask=ROLE_OWNER)
            case _:
                pass

    def seek_manager(self) -> Iterator[Message]:
        """Yield a request that finds out whether there is a job manager again, if none is known."""
        if self._lacks_manager:
            yield Request(PING_MANAGER, {}, self._calls.open(ManagerSought()))

    def _passed(self, request: Request) -> Request:
        matchtag = self._calls.open(Passed(request.matchtag))
        return msgspec.structs.replace(request, matchtag=matchtag)

    def _look_up(self, request: Request) -> Iterator[Request]:
        values = Values(request.matchtag, our_kvs.LOOKUP_ALL.read(request).keys)
        for key in values.keys:
            asked = {"key": key, "namespace": kvs.PRIMARY, "flags": 0}
            yield Request(topics.KVS_LOOKUP, asked, self._calls.open(ValueRead(key, values)))

    def _value_read(self, key: str, values: Values, response: Response) -> Iterator[Response]:
        if values.is_over:
            return
        try:
            values.found[key] = _value_in(response)
        except FluxError as error:
            values.is_over = True
            topic = topics.KVS_LOOKUP_ALL
            yield Response(topic, f"{key}: {error.text}", error.errnum, values.matchtag)
            return
        if len(values.found) == len(values.keys):
            payload = our_kvs.VALUES.write(our_kvs.Values([values.found[k] for k in values.keys]))
            yield Response(topics.KVS_LOOKUP_ALL, payload, 0, values.matchtag)


def _value_in(response: Response) -> str | None:
    """Return the text that a kvs.lookup has found, None for a key that is absent."""
    if response.errnum == Errno.ENOENT:
        return None
    if response.errnum:
        raise FluxError(response.errnum, response.error_text)
    try:
        return kvs.text_of(expect_payload(response, kvs.Found).val)
    except ValueError as error:
        raise FluxError(Errno.EPROTO, f"{response.topic}: val: {error}") from None


def _commit_payload(ops: list[KvsOp]) -> dict[str, object]:
    """Return the payload of a commit in which the last operation on a key counts."""
    return kvs.commit_payload({key: text[0] if text else None for _, key, *text in ops})
