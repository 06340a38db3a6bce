"""The ops of a commit, the checks of keys and values, and the actions for a store. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias, TypeVar, final

import msgspec

from flux_trio.cores.kvs_calls import READ_CHARS_MAX
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import CommonAction, CommonInput
from flux_trio.editions import kvs
from flux_trio.editions.codec import codec
from flux_trio.formats.meanings import KvsKey, KvsText
from flux_trio.messages import Errno, FluxError

KEY_CHARS_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 1 << 24  # of one put or append, as UTF-8
ENTRIES_MAX: Final = 10_000  # of a directory that is listed
KEY_CHAR_LAST: Final = "\U0010ffff"  # above every character of a key

ValueT = TypeVar("ValueT")

_NAME = r"[^.\x00-\x1f\x7f-\x9f\ud800-\udfff\U0010ffff]+"
_KEY = re.compile(rf"{_NAME}(?:\.{_NAME})*")


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put", gc=False):
    """`["put", key, text]`: make `text` the value of `key`."""

    key: KvsKey
    text: KvsText


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append", gc=False):
    """`["append", key, text]`: add `text` to the end of the value, which may be absent."""

    key: KvsKey
    text: KvsText


class Unlink(msgspec.Struct, frozen=True, array_like=True, tag="unlink", gc=False):
    """`["unlink", key]`: remove `key` and every key below it, if they are there."""

    key: KvsKey


Op: TypeAlias = Put | Append | Unlink


@final
class StoreOps(msgspec.Struct, frozen=True):
    """Action: make `ops` durable, in order, as one transaction; the answer is `Stored`.

    With `frees` the store may give away the room that is set aside.
    """

    ops: list[Op]
    frees: bool = False


class Stored(msgspec.Struct, frozen=True):
    """Input: the transaction is durable, or `errnum` and `text` say why it was not stored.

    `seconds` is how long it took, 0 if the store waits for no disk.
    """

    errnum: int = 0
    text: str = ""
    seconds: float = 0.0


class CommitOps(kvs.Commit[Op], frozen=True):
    """The kvs.commit request as this service reads it."""


class Page(kvs.Page, frozen=True, gc=False):
    """The kvs.page request as this service reads it."""

    def bounds(self) -> tuple[str, str]:
        """Return two texts; the keys of the page lie strictly between them."""
        first, last = span(self.prefix)
        if not self.after:
            return first, last
        return (first, min(self.after, last)) if self.reverse else (max(self.after, first), last)


COMMIT: Final = codec(CommitOps)
PAGE: Final = codec(Page)


class Damaged(msgspec.Struct, frozen=True):
    """Stands for a value that differs from the committed one; `text` names the key and says why."""

    text: str
    key: str = ""  # "" if it is not known
    remains: str = ""  # the undamaged part of the value


class Swept(msgspec.Struct, frozen=True):
    """A slice of a sweep over all keys; the next slice begins `after` this key, None at the end."""

    after: str | None
    damaged: list[Damaged]
    keys: int = 0  # number of keys read


class PageRead(msgspec.Struct, frozen=True):
    """The keys of a page, and a value for each; `values` is empty if the page wants only keys."""

    keys: list[str]
    values: Sequence[str | Damaged | None]


class TreeAsked(msgspec.Struct, frozen=True):
    """What is at a key is to be read: a value or a directory; "" is the root.

    The root's names in `hidden` are left out. A value that is `in_pieces` goes on at <key>.1,
    <key>.2 and so on.
    """

    key: KvsKey
    entries: bool = False  # those of a directory are wanted, too
    hidden: tuple[str, ...] = ()
    in_pieces: bool = False


class TreeFound(msgspec.Struct, frozen=True):
    """A value, or a directory, or neither.

    `entries` are values by name, None for a directory, if they were wanted; `is_cut` if there are
    more than may be listed.
    """

    value: str | Damaged | None = None
    is_dir: bool = False
    entries: dict[str, str | Damaged | None] = {}
    is_cut: bool = False


@final
class Fetch(msgspec.Struct, frozen=True):
    """Action: read values of `keys`, list or count keys below prefixes, read `pages` and `trees`.

    The values end with the one that goes beyond `chars_max`; the first `at_least` keys are read in
    any case. The answer is `Fetched`.
    """

    keys: list[str]
    prefixes: list[str]
    pages: list[Page] = []
    counted: list[str] = []  # prefixes, whose keys are only counted
    chars_max: int = READ_CHARS_MAX  # of all values together
    at_least: int = 1
    trees: list[TreeAsked] = []


class Fetched(msgspec.Struct, frozen=True):
    """Input: values of `keys` from the first on, None if absent; sorted keys for each prefix."""

    values: Sequence[str | Damaged | None]
    listings: list[list[str]]
    errnum: int = 0
    text: str = ""
    pages: list[PageRead] = []
    counts: list[int] = []
    trees: list[TreeFound] = []


@final
class MakeBackup(msgspec.Struct, frozen=True):
    """Action: copy the whole store to the file `path`, between rounds; the answer is `BackedUp`."""

    path: str


@final
class StopBackup(msgspec.Struct, frozen=True):
    """Action: stop the backup that is being made; its answer still comes."""


class BackedUp(msgspec.Struct, frozen=True):
    """Input: the backup is complete and durable, or `errnum` and `text` say why there is none."""

    errnum: int = 0
    text: str = ""


class DiskFree(msgspec.Struct, frozen=True):
    """Input: how many bytes are free on the disk of the store; sent when that has changed much.

    `is_last` if the room that is set aside was given away, and is not kept again yet.
    """

    nbytes: int
    is_last: bool = False


class RoomAsked(msgspec.Struct, frozen=True):
    """Answers job-manager.store-room, for the commit of a guest that waits."""

    userid: int


KvsTimer: TypeAlias = Literal["retry"]
StoreInput: TypeAlias = Stored | Fetched | Damaged | BackedUp | DiskFree
StoreAction: TypeAlias = StoreOps | Fetch | MakeBackup | StopBackup
KvsInput: TypeAlias = CommonInput[KvsTimer] | StoreInput
KvsAction: TypeAlias = CommonAction[KvsTimer] | StoreAction
KvsOutbox: TypeAlias = Outbox[RoomAsked, KvsAction, KvsTimer]


def first_values(
    values: Iterable[ValueT], chars_max: int | None, at_least: int = 1
) -> Iterator[ValueT]:
    """Yield `values` up to the one with which they go beyond `chars_max` characters.

    The first `at_least` are yielded in any case; None is no limit. No later value is made.
    """
    chars = 0
    for number, value in enumerate(values, start=1):
        yield value
        chars += len(value) if isinstance(value, str) else 0
        if chars_max is not None and chars > chars_max and number >= at_least:
            return


def span(prefix: str) -> tuple[str, str]:
    """Return two texts; every key below `prefix` lies between them ("/" follows "." in Unicode)."""
    return (f"{prefix}.", f"{prefix}/") if prefix else ("", KEY_CHAR_LAST)


def check_key(key: str) -> str:
    """Return `key`. Raises FluxError(EINVAL) if it is not a key."""
    if len(key) > KEY_CHARS_MAX or not _KEY.fullmatch(key):
        raise FluxError(
            Errno.EINVAL,
            f"key {key[:80]!r}: expected names joined by periods, none empty, no control "
            f"characters, at most {KEY_CHARS_MAX} characters",
        )
    return key


def checked_bytes(ops: Sequence[Op]) -> int:
    """Return the size of the keys and texts of `ops` in UTF-8.

    Raises FluxError, EMSGSIZE or EINVAL, for a bad key, or a text that may not be stored.
    """
    nbytes = _plain_bytes(ops)
    return sum(map(_checked_bytes, ops)) if nbytes is None else nbytes


def _plain_bytes(ops: Sequence[Op]) -> int | None:
    """Return the size, fast, for ops in ASCII whose texts together are within the bound of one
    text.

    Returns None for other ops, which must be checked one by one. The keys are joined by periods and
    checked as one text: a period at its begin or end, or two in a row, show an empty name.
    """
    keys = [op.key for op in ops]
    texts = [op.text for op in ops if type(op) is Put or type(op) is Append]
    joined = ".".join(keys)
    are_names = joined.isascii() and joined.isprintable() and ".." not in joined
    if not (joined and are_names and joined[0] != "." and joined[-1] != "."):
        return None
    nbytes = sum(map(len, texts))
    is_plain = max(map(len, keys)) <= KEY_CHARS_MAX and nbytes <= VALUE_BYTES_MAX
    if not (is_plain and all(map(str.isascii, texts))):
        return None
    return nbytes + len(joined) - (len(keys) - 1)


def _checked_bytes(op: Op) -> int:
    """Return the size of the key and the text of `op` in UTF-8. Raises as `checked_bytes` does."""
    key = check_key(op.key)
    nbytes = len(key.encode())
    if isinstance(op, Unlink):
        return nbytes
    text = op.text
    if text.isascii() and len(text) <= VALUE_BYTES_MAX:  # almost every text
        return nbytes + len(text)
    return nbytes + _text_bytes(key, text)


def _text_bytes(key: str, text: str) -> int:
    # A lone surrogate counts as the three bytes it would have.
    nbytes = len(text.encode(errors="surrogatepass"))
    if nbytes > VALUE_BYTES_MAX:
        raise FluxError(Errno.EMSGSIZE, f"{key}: {nbytes} bytes: at most {VALUE_BYTES_MAX} at once")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise FluxError(
            Errno.EINVAL, f"{key}: the text has a lone surrogate, which is no character"
        )
    return nbytes
