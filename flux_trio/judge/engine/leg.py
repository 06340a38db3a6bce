"""Legs: which records a rule or view is about, and how their content is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from flux_trio.messages import Message, Request, Response, topics
from flux_trio.trace import Kind, Record

if TYPE_CHECKING:
    from flux_trio.judge.engine.trait import Mark

MessageType: TypeAlias = Literal["request", "response", "event"]
Key: TypeAlias = Hashable

T = TypeVar("T")

ANY_TOPIC: Final = "*"
ANY_CANCEL: Final = "*-cancel"
ANY_DISCONNECT: Final = "*.disconnect"

LOOKUP_TOPICS: Final = (topics.KVS_LOOKUP, topics.KVS_LOOKUP_ALL)
# The kinds of records: asking Kind for a member takes longer than most rules.
SEND: Final[str] = Kind.SEND.value
RECV: Final[str] = Kind.RECV.value
EVENT: Final[str] = Kind.EVENT.value
MODULE: Final[str] = Kind.MODULE.value
STATE: Final[str] = Kind.STATE.value
HOOK: Final[str] = Kind.HOOK.value
COUNTERS: Final[str] = Kind.COUNTERS.value

OWN: Final = object()


class Leg(NamedTuple):
    """Which records: the kind, and for messages the type and topic.

    `topic` may have a star for anything; for topics of the execution service, whose name is its
    own, it is "<exec>.start". `mark` narrows it to records with some values of a trait. A record is
    passed over while `live`, a view, has nothing that is live; OWN is what the rule or view keeps
    itself.
    """

    kind: str
    type: str = ""
    topic: str = ""
    mark: Mark | None = None
    live: Any = None


def sent(type_: MessageType, *topics: str, mark: Mark | None = None) -> list[Leg]:
    """The moments a party sends such a message."""
    return [Leg(Kind.SEND.value, type_, topic, mark) for topic in topics]


def received(type_: MessageType, *topics: str, mark: Mark | None = None) -> list[Leg]:
    """The moments a party takes such a message up."""
    return [Leg(Kind.RECV.value, type_, topic, mark) for topic in topics]


def while_live(view: object, *legs: Iterable[Leg]) -> list[Leg]:
    """These legs, while a view has something that is live."""
    return [leg._replace(live=view) for group in legs for leg in group]


def logged(*names: str, mark: Mark | None = None) -> list[Leg]:
    """Events of job eventlogs, by name; ANY_TOPIC for all."""
    return [Leg(EVENT, "", name, mark) for name in names]


def noted(kind: Kind) -> list[Leg]:
    """Records of a kind that has neither messages nor events."""
    return [Leg(kind.value, "", ANY_TOPIC)]


def called(*hooks: str) -> list[Leg]:
    """The moments a plugin is asked, by the hook's topic."""
    return [Leg(HOOK, "", hook) for hook in hooks]


def no_key(_record: Record) -> Key:
    """One state for all records: for rules that keep none, or one."""
    return ()


class _Read:
    """What has been read of the latest record: every rule about it asks for the same."""

    __slots__ = ("jobid", "name", "payload", "record")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.payload: dict[str, Any] = {}
        self.jobid: int | None = None
        self.name = ""

    def read(self, record: Record) -> _Read:
        if record.message is None:
            self.payload = record.data or {}
        else:
            found = getattr(record.message, "payload", None)
            self.payload = found if isinstance(found, dict) else {}
        self.name = str(self.payload.get("name"))
        jobid = self.payload.get("id")
        self.jobid = jobid if type(jobid) is int else None
        self.record = record
        return self


_latest: Final = _Read()


def name_of(record: Record) -> str:
    """The name of the event that a record tells of."""
    return (_latest if _latest.record is record else _latest.read(record)).name


def job_id(record: Record) -> int | None:
    """The job a message or eventlog event is about; None when it does not say."""
    return (_latest if _latest.record is record else _latest.read(record)).jobid


def payload(record: Record) -> dict[str, Any]:
    """The payload object of a message, or the data of another record; {} when there is none."""
    return (_latest if _latest.record is record else _latest.read(record)).payload


def rpc(record: Record) -> Key | None:
    """The RPC a message belongs to: client, topic and matchtag; None without a matchtag."""
    message = record.message
    if isinstance(message, (Request, Response)) and message.matchtag:
        return (message.routes[0] if message.routes else "", message.topic, message.matchtag)
    return None


def message(record: Record) -> Message:
    """The message of a record that is known to have one."""
    assert record.message is not None
    return record.message


def topic_of(record: Record) -> str:
    """The topic of a message; "" for what has none."""
    return getattr(record.message, "topic", "")


def errnum(record: Record) -> int:
    """The errnum of a response, 0 for anything else."""
    return record.message.errnum if isinstance(record.message, Response) else 0


def once(read: Callable[[Record], T]) -> Callable[[Record], T]:
    """Remember what was read of the latest record: many rules ask for the same in turn."""
    latest: list[Any] = [None, None]

    def remembered(record: Record) -> T:
        if latest[0] is not record:
            latest[:] = [record, read(record)]
        found: T = latest[1]
        return found

    return functools.wraps(read)(remembered)
