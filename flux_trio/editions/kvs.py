"""Payloads of the kvs that are this project's own, and how an edition asks the kvs (`KvsWords`).

In the edition *classic* the service `kvs` has them all. In *current* the service `store` has those
that flux-core has not, and `kvs` speaks as in `flux_kvs`. `cores/kvs_calls.py` writes the requests
and reads the answers for all services.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from flux_trio.editions.codec import Codec, PayloadMessage, codec, of_other_edition
from flux_trio.editions.common import CreditKey, Histogram
from flux_trio.formats.meanings import JobId, KvsKey, KvsOp
from flux_trio.messages import Payload, expect_payload, topics

OpT = TypeVar("OpT")

PAGE_KEYS_MAX: Final = 10_000  # of one kvs.page


class Guest(NamedTuple):
    """`[id, owner, over]`: a job in whose guest namespace a commit writes, at its place.

    If there is no such namespace yet, `owner` gets it. With `over` it is removed.
    """

    id: JobId
    owner: int
    over: bool


class Commit(msgspec.Struct, Generic[OpT], frozen=True):
    """The kvs.commit request; with `wait` false it is refused while the disk is full.

    With `frees` it makes room, and may use the room that is set aside. `guests` are in *current*
    alone.
    """

    ops: list[OpT]
    wait: bool | None = None
    frees: bool | None = None
    guests: list[Guest] | None = None


class CommitValues(msgspec.Struct, frozen=True):
    """A commit that needs nothing which only this project has: values of `namespace`."""

    ops: list[KvsOp]
    namespace: str = "primary"


class Lookup(msgspec.Struct, frozen=True):
    """The kvs.lookup request."""

    key: KvsKey


class LookupOwn(msgspec.Struct, frozen=True):
    """A lookup of one key that only this project has."""

    key: KvsKey


class Value(msgspec.Struct, frozen=True):
    """The kvs.lookup response."""

    value: str


class LookupAll(msgspec.Struct, frozen=True):
    """The kvs.lookup-all request. The answer ends with the value that goes beyond `chars_max`."""

    keys: list[KvsKey]
    chars_max: int | None = None


class Values(msgspec.Struct, frozen=True):
    """The kvs.lookup-all response: a value for each key, null for a key that is absent."""

    values: list[str | None]


class Prefix(msgspec.Struct, frozen=True):
    """The kvs.dir and kvs.count requests, about the keys below `prefix`; "" means all keys."""

    prefix: KvsKey


class CountBelow(Prefix, frozen=True):
    """The kvs.count request."""


class Keys(msgspec.Struct, frozen=True):
    """The kvs.dir response."""

    keys: list[str]


class Count(msgspec.Struct, frozen=True):
    """The kvs.count response."""

    count: int


class Page(msgspec.Struct, frozen=True, gc=False):
    """The kvs.page request: some of the keys below `prefix`, in order, and their values.

    It asks for at most `limit` keys that sort after `after`; "" is the beginning. With `reverse`
    the order is backwards: the keys sort before `after`, and "" is the end.
    """

    prefix: KvsKey
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_KEYS_MAX)] = PAGE_KEYS_MAX
    after: KvsKey = ""
    reverse: bool = False
    values: bool = True


class KeysPage(msgspec.Struct, frozen=True):
    """The kvs.page response; without `values` if the request does not want them.

    `damaged` says for a key whose value is null why it cannot be read, and what is left of it.
    """

    keys: list[str]
    values: list[str | None] | None = None
    damaged: dict[str, list[str]] | None = None

    @property
    def items(self) -> Iterator[tuple[str, str | None]]:
        """Each key with its value, None for a damaged value."""
        return zip(self.keys, self.values or (), strict=True)

    def is_last(self, limit: int) -> bool:
        """Return whether this answer to a request with `limit` is the last page."""
        return len(self.keys) < limit


class Watch(msgspec.Struct, frozen=True):
    """The kvs.watch request."""

    key: KvsKey
    credit: CreditKey | None = None


class Change(msgspec.Struct, frozen=True):
    """A kvs.watch response: the whole value, or what was appended to it."""

    value: str | None = None
    append: str | None = None


class Backup(msgspec.Struct, frozen=True):
    """The kvs.backup request: the path of a new file, in the file system of the service."""

    path: str


class Damage(msgspec.Struct, frozen=True):
    """The event kvs-damaged; the key is "" if it is not known."""

    key: str
    text: str


class HeldStats(msgspec.Struct, frozen=True):
    """Requests that wait for room on the disk, and the bytes of their keys and texts."""

    requests: int
    bytes: int


class Stats(msgspec.Struct, frozen=True):
    """What kvs.stats-get counts beside requests; the durations are those of transactions."""

    waiting: int
    watches: int
    damaged: int
    held: HeldStats
    commit_seconds: Histogram


def _read_lookup(message: PayloadMessage) -> Lookup:
    """Read what *current* asks in more keys, too, where it is the same: a value of `primary`."""
    payload = message.payload if isinstance(message.payload, dict) else {}
    is_value = payload.get("namespace", "primary") == "primary" and not payload.get("flags")
    if not is_value or "rootdir" in payload:
        raise of_other_edition(message, "current")
    return expect_payload(message, Lookup)


def has_ops(message: PayloadMessage, kind: type[dict[str, Any]] | type[list[Any]]) -> bool:
    """Return whether an operation of a kvs.commit request is an object, or an array; not empty."""
    ops = message.payload.get("ops") if isinstance(message.payload, dict) else None
    return isinstance(ops, list) and any(op and isinstance(op, kind) for op in ops)


def check_is_classic(message: PayloadMessage) -> None:
    """Raise FluxError(EPROTO) for a kvs.commit request of the edition *current*."""
    if has_ops(message, dict):
        raise of_other_edition(message, "current")


COMMIT: Final[Codec[Commit[KvsOp]]] = codec(Commit)
LOOKUP: Final = Codec(codec(Lookup).write, _read_lookup)
VALUE: Final = codec(Value)
LOOKUP_ALL: Final = codec(LookupAll)
VALUES: Final = codec(Values)
PREFIX: Final = codec(Prefix)
KEYS: Final = codec(Keys)
COUNT: Final = codec(Count)
PAGE: Final = codec(Page)
KEYS_PAGE: Final = codec(KeysPage)
WATCH: Final = codec(Watch)
BACKUP: Final = codec(Backup)
CHANGE: Final = codec(Change)
DAMAGE: Final = codec(Damage)


class KvsWords(msgspec.Struct, frozen=True):
    """How an edition asks the kvs: where what only we have is, and the payloads of the rest."""

    own: topics.StoreTopics
    is_flux: bool  # `kvs` and `kvs-watch` speak as in `flux_kvs`
    services: tuple[str, ...]
    look_up: Callable[[Lookup], dict[str, Any]]  # of one value
    look_up_own: Callable[[LookupOwn], tuple[str, Payload]]
    commit: Callable[[CommitValues], dict[str, Any]]


CLASSIC_WORDS: Final = KvsWords(
    own=topics.KVS_OWN,
    is_flux=False,
    services=(topics.KVS,),
    look_up=lambda asked: {"key": asked.key},
    look_up_own=lambda asked: (topics.KVS_LOOKUP, {"key": asked.key}),
    commit=lambda asked: {"ops": asked.ops},
)
