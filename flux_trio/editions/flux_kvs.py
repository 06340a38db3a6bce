"""Payloads of flux-core's services `kvs` and `kvs-watch`, as flux-core 0.88 reads and writes them.

A value is a treeobj (RFC 11). `namespace` is `primary`, or one that namespace-create has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from flux_trio.editions.codec import Codec, PayloadMessage, codec, has_key, of_other_edition
from flux_trio.editions.common import CANCEL
from flux_trio.editions.kvs import LOOKUP as LOOKUP_CLASSIC
from flux_trio.editions.kvs import VALUE, VALUES, CommitValues, KvsWords, Lookup, has_ops
from flux_trio.formats import treeobj
from flux_trio.formats.meanings import JobId, JsonObject, KvsKey
from flux_trio.messages import Errno, FluxError, Response, expect_payload, topics

PRIMARY: Final = "primary"

READDIR: Final = 1
READLINK: Final = 2
WATCH: Final = 4
WAITCREATE: Final = 8
TREEOBJ: Final = 16
APPEND: Final = 32
WATCH_FULL: Final = 64
WATCH_UNIQ: Final = 128
WATCH_APPEND: Final = 256
STREAM: Final = 512
INITIAL_SENTINEL: Final = 1024
LOOKUP_FLAGS: Final = READDIR | READLINK | TREEOBJ
WATCH_FLAGS: Final = (
    LOOKUP_FLAGS
    | WATCH
    | WAITCREATE
    | WATCH_FULL
    | WATCH_UNIQ
    | WATCH_APPEND
    | STREAM
    | INITIAL_SENTINEL
)
"""flux-core's flags of a lookup and of a watch, and APPEND of an operation (kvs.h)."""

UserId = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 32)]


class LookupAt(msgspec.Struct, frozen=True):
    """The kvs.lookup, kvs.lookup-plus and kvs-watch.lookup requests.

    `rootdir` is the treeobj of a root, in place of a namespace.
    """

    key: KvsKey  # names with dots between; "." is all of the namespace
    flags: int  # 1, 2, 16: a directory, a link, as stored; of a watch also 4, 8, 64 to 1024
    namespace: str | None = None  # primary, or of a job
    # in place of a namespace: a directory, of what is stored now; snapshots are refused
    rootdir: JsonObject | None = None
    rootseq: int | None = None  # has no meaning


class Found(msgspec.Struct, frozen=True):
    """The kvs.lookup and kvs-watch.lookup responses."""

    val: JsonObject


class FoundPlus(msgspec.Struct, frozen=True):
    """The kvs.lookup-plus response: a treeobj or an error number, and the root it is of."""

    rootseq: int
    rootref: str
    val: JsonObject | None = None
    errno: int | None = None


class Operation(msgspec.Struct, frozen=True):
    """An operation of a commit: put or append a treeobj, or unlink the key for null."""

    key: KvsKey
    flags: int
    dirent: Any


class Commit(msgspec.Struct, frozen=True):
    """The kvs.commit request."""

    namespace: str  # primary, or of a job
    flags: int  # have no meaning: each commit is made by itself
    ops: list[Operation]  # each puts, appends to (flags 32) or unlinks (dirent null) a key


class Root(msgspec.Struct, frozen=True):
    """The kvs.commit and kvs.wait-version responses: the number of commits, and their root."""

    rootseq: int
    rootref: str


class Namespace(msgspec.Struct, frozen=True):
    """The kvs.namespace-remove request."""

    namespace: str  # another than primary


class GetRoot(msgspec.Struct, frozen=True):
    """The kvs.getroot request."""

    namespace: str  # primary, or another
    flags: int = 0  # have no meaning


class NamespaceRoot(msgspec.Struct, frozen=True):
    """The kvs.getroot response."""

    owner: int
    rootseq: int
    rootref: str
    flags: int
    namespace: str


class WaitVersion(msgspec.Struct, frozen=True):
    """The kvs.wait-version request."""

    rootseq: int  # it is answered when there have been so many commits
    namespace: str  # primary, or another


class NamespaceCreate(msgspec.Struct, frozen=True):
    """The kvs.namespace-create request; -1, or 2**32 - 1, is the owner of the instance."""

    namespace: str  # the new one
    rootref: str  # of an empty directory: snapshots are not kept
    owner: UserId  # who may read and write it, besides the owner of the instance
    flags: int  # are told by namespace-list


class StoredNamespace(msgspec.Struct):
    """What the kvs knows of a namespace, as it is stored; `rootseq` counts its commits.

    `nbytes` are those that guests have written, keys among them, and `nothers` those that the owner
    has written in a guest's; an unlink gives nothing back.
    `piece` is the last one of a job's output, which has `chars` characters.
    """

    owner: int
    flags: int = 0
    rootseq: int = 0
    nbytes: int = 0
    piece: int = 0
    chars: int = 0
    nothers: int = 0

    @property
    def total(self) -> int:
        """Bytes that were written in a guest's namespace."""
        return self.nbytes + self.nothers


class NamespaceListed(msgspec.Struct, frozen=True):
    """One namespace in the kvs.namespace-list response."""

    namespace: str
    owner: int
    flags: int


class NamespaceList(msgspec.Struct, frozen=True):
    """The kvs.namespace-list response."""

    namespaces: list[NamespaceListed]


def look_up(asked: Lookup) -> dict[str, Any]:
    """Return the kvs.lookup request for a value of the namespace `primary`."""
    return {"key": asked.key, "namespace": PRIMARY, "flags": 0}


def value_of(payload: Any) -> str:
    """Return the value in a kvs.lookup response of any edition. Raises KeyError, FormatError."""
    return treeobj.text_of(payload["val"]) if "val" in payload else payload["value"]


def commit(asked: CommitValues) -> dict[str, Any]:
    """Return the kvs.commit request that writes values of the namespace `primary`."""
    return {"namespace": asked.namespace, "flags": 0, "ops": [_operation(op) for op in asked.ops]}


def put_tree(key: str, dirent: JsonObject) -> dict[str, Any]:
    """Return the kvs.commit request that puts a treeobj, such as a link, at a key of `primary`."""
    op = {"key": key, "flags": 0, "dirent": dirent}
    return {"namespace": PRIMARY, "flags": 0, "ops": [op]}


def _operation(op: Sequence[str]) -> dict[str, Any]:
    how, key, *text = op
    dirent = treeobj.val(text[0]) if text else None
    return {"key": key, "flags": APPEND if how == "append" else 0, "dirent": dirent}


def value_in(response: Response) -> str | None:
    """Return the value in the response to a `kvs.KvsWords` lookup of one key, in any words.

    Raises FluxError(EPROTO).
    """
    payload = response.payload if isinstance(response.payload, dict) else {}
    if "values" in payload:
        return VALUES.read(response).values[0]
    if "val" not in payload:
        return VALUE.read(response).value
    found = expect_payload(response, Found).val
    try:
        return treeobj.text_of(found)
    except ValueError as error:
        raise FluxError(Errno.EPROTO, f"{response.topic}: payload.val: {error}") from None


class NamespaceWatched(msgspec.Struct, frozen=True):
    """A namespace of which somebody watches keys."""

    owner: int
    rootseq: int
    rootref: str
    watchers: int


class WatchStats(msgspec.Struct, frozen=True):
    """The kvs-watch.stats-get response: how many watches there are, by namespace."""

    watchers: int
    namespaces: dict[str, NamespaceWatched]
    count: int = msgspec.field(name="namespace-count")


def _read_lookup(message: PayloadMessage) -> LookupAt:
    if has_key(message, "key") and not has_key(message, "flags", "namespace", "rootdir"):
        LOOKUP_CLASSIC.read(message)
        raise of_other_edition(message, "classic")
    return expect_payload(message, LookupAt)


def _read_commit(message: PayloadMessage) -> Commit:
    if has_ops(message, list):
        raise of_other_edition(message, "classic")
    return expect_payload(message, Commit)


LOOKUP: Final = Codec(codec(LookupAt).write, _read_lookup)
FOUND: Final = codec(Found)
FOUND_PLUS: Final = codec(FoundPlus)
COMMIT: Final = Codec(codec(Commit).write, _read_commit)
ROOT: Final = codec(Root)
NAMESPACE: Final = codec(Namespace)
GET_ROOT: Final = codec(GetRoot)
NAMESPACE_ROOT: Final = codec(NamespaceRoot)
WAIT_VERSION: Final = codec(WaitVersion)
NAMESPACE_CREATE: Final = codec(NamespaceCreate)
WATCH_STATS: Final[Codec[WatchStats]] = Codec(msgspec.to_builtins, codec(WatchStats).read)
NAMESPACE_LIST: Final[Codec[NamespaceList]] = Codec(msgspec.to_builtins, codec(NamespaceList).read)
WATCH_CANCEL: Final = CANCEL

WORDS: Final = KvsWords(
    own=topics.STORE_OWN,
    is_flux=True,
    services=(topics.KVS, topics.KVS_WATCHES, topics.STORE),
    look_up=look_up,
    look_up_own=lambda asked: (topics.STORE_OWN.lookup_all, {"keys": [asked.key]}),
    commit=commit,
)


def namespace_of(jobid: JobId) -> str:
    """Return the name of a job's own namespace of the kvs (RFC 16)."""
    return f"job-{jobid}"
