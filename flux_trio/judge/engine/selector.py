"""Selectors: which records a rule or view reads; and functions that read a record's content."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias, TypeVar

from flux_trio.judge.engine.view import Key, Mark, Seen, Selector, Trait, Value
from flux_trio.messages import Message, Request, Response, topics
from flux_trio.trace import Kind, Record

MessageType: TypeAlias = Literal["request", "response", "event"]

T = TypeVar("T")

ANY_TOPIC: Final = "*"
CANCEL: Final = "-cancel"
ANY_CANCEL: Final = f"*{CANCEL}"
ANY_DISCONNECT: Final = "*.disconnect"

LOOKUP_TOPICS: Final = topics.LOOKUPS
# The kinds of records as strings: access to a member of Kind takes longer than most rules.
SEND: Final[str] = Kind.SEND.value
RECV: Final[str] = Kind.RECV.value
EVENT: Final[str] = Kind.EVENT.value
MODULE: Final[str] = Kind.MODULE.value
STATE: Final[str] = Kind.STATE.value
HOOK: Final[str] = Kind.HOOK.value
BROKER: Final = "broker"
"""The party that answers in the place of a service that is gone, or whose inbox is full."""
COUNTERS: Final[str] = Kind.COUNTERS.value
INSTANCE: Final[str] = Kind.INSTANCE.value
CLOCK: Final[str] = Kind.CLOCK.value
FAULT: Final[str] = Kind.FAULT.value

OWN: Final = object()


def sent(type_: MessageType, *topics: str, mark: Mark | None = None) -> list[Selector]:
    """Select sends of messages of this type and these topics."""
    return [Selector(Kind.SEND.value, type_, topic, mark) for topic in topics]


def received(type_: MessageType, *topics: str, mark: Mark | None = None) -> list[Selector]:
    """Select receipts of messages of this type and these topics."""
    return [Selector(Kind.RECV.value, type_, topic, mark) for topic in topics]


def while_live(view: object, *selectors: Iterable[Selector]) -> list[Selector]:
    """Return these selectors, limited to times at which a view has a state."""
    return [selector._replace(live=view) for group in selectors for selector in group]


def logged(*names: str, mark: Mark | None = None) -> list[Selector]:
    """Select events of job eventlogs by name; ANY_TOPIC selects all."""
    return [Selector(EVENT, "", name, mark) for name in names]


def noted(kind: Kind) -> list[Selector]:
    """Select all records of a kind that has neither messages nor events."""
    return [Selector(kind.value, "", ANY_TOPIC)]


def called(*hooks: str) -> list[Selector]:
    """Select calls of plugins by the hook's topic."""
    return [Selector(HOOK, "", hook) for hook in hooks]


def no_key(_record: Record) -> Key:
    """Return the same key for all records: for rules and views with a single state."""
    return ()


class _Read:
    """The payload, job id and name of a record."""

    __slots__ = ("jobid", "name", "payload", "record")

    def __init__(self, record: Record | None) -> None:
        found = None if record is None else record.data
        if record is not None and record.message is not None:
            found = getattr(record.message, "payload", None)
        self.record = record
        self.payload: dict[str, Any] = found if isinstance(found, dict) else {}
        jobid = self.payload.get("id")
        self.jobid: int | None = jobid if type(jobid) is int else None
        self.name: str | None = None
        """None until it is asked for: few messages have a name."""


_latest = _Read(None)
"""A cache of the latest record, which many rules read.

Another thread may judge another trace: what is cached is replaced as a whole, and never changed.
"""


def _read(record: Record) -> _Read:
    global _latest
    _latest = read = _Read(record)
    return read


def name_of(record: Record) -> str:
    """Return the name of the event of a record."""
    read = _latest
    if read.record is not record:
        read = _read(record)
    name = read.name
    if name is None:
        name = read.name = str(read.payload.get("name"))
    return name


def job_id(record: Record) -> int | None:
    """Return the job id of a message or eventlog event, or None if it has no id."""
    read = _latest
    return (read if read.record is record else _read(record)).jobid


def payload(record: Record) -> dict[str, Any]:
    """Return the payload object of a message, or the data of another record; {} if there is
    none.
    """
    read = _latest
    return (read if read.record is record else _read(record)).payload


def rpc(record: Record) -> Key | None:
    """Return client, topic and matchtag of a message's RPC; None without a matchtag."""
    message = record.message
    if isinstance(message, (Request, Response)) and message.matchtag:
        return (message.routes[0] if message.routes else "", message.topic, message.matchtag)
    return None


def message(record: Record) -> Message:
    """Return the message of a record that has one."""
    assert record.message is not None
    return record.message


def request_of(record: Record) -> Request:
    """Return the request of a record that has one."""
    assert isinstance(record.message, Request)
    return record.message


def response_of(record: Record) -> Response:
    """Return the response of a record that has one."""
    assert isinstance(record.message, Response)
    return record.message


def topic_of(record: Record) -> str:
    """Return the topic of a record's message, or ""."""
    return getattr(record.message, "topic", "")


def errnum(record: Record) -> int:
    """Return the errnum of a response, 0 for any other record."""
    message = record.message
    return message.errnum if type(message) is Response else 0


def once(read: Callable[[Record], T]) -> Callable[[Record], T]:
    """Cache the result for the latest record, because many rules read the same in turn."""
    latest: tuple[Record | None, Any] = (None, None)

    def cached(record: Record) -> T:
        nonlocal latest
        found = latest  # replaced as a whole, since another thread may judge another trace
        if found[0] is not record:
            latest = found = (record, read(record))
        result: T = found[1]
        return result

    return functools.wraps(read)(cached)


# --- errors


def _errnum(record: Record, _seen: Seen) -> Value:
    found: Any = record.message
    errnum: int = found.errnum
    return errnum


ERRNUM: Final = Trait(
    "errnum", (*sent("response", ANY_TOPIC), *received("response", ANY_TOPIC)), _errnum
)
ERROR: Final = Mark(ERRNUM, bool)
"""Marks responses with an error number."""
