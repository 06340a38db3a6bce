"""What a commit is made of, what is a key or a value, and what the core asks of a store. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Never, TypeAlias

import msgspec

from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import CommonAction
from flux_trio.editions import kvs
from flux_trio.editions.codec import codec
from flux_trio.formats.meanings import KvsKey, KvsText
from flux_trio.messages import Errno, FluxError

KEY_CHARS_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 1 << 24  # of one put or append, as UTF-8
KEY_CHAR_LAST: Final = "\U0010ffff"  # above every character of a key

_NAME = r"[^.\x00-\x1f\x7f-\x9f\ud800-\udfff\U0010ffff]+"
_KEY = re.compile(rf"{_NAME}(?:\.{_NAME})*")


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put", gc=False):
    """`["put", key, text]`: the value of `key` is `text` and nothing else."""

    key: KvsKey
    text: KvsText


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append", gc=False):
    """`["append", key, text]`: `text` goes to the end of the value, which may be absent."""

    key: KvsKey
    text: KvsText


class Unlink(msgspec.Struct, frozen=True, array_like=True, tag="unlink", gc=False):
    """`["unlink", key]`: `key` and every key below it are gone, if they were there."""

    key: KvsKey


Op: TypeAlias = Put | Append | Unlink


@dataclass(frozen=True, slots=True)
class StoreOps:
    """Action: make `ops` durable, in order, as one transaction; the answer is `Stored`."""

    ops: list[Op]


@dataclass(frozen=True, slots=True)
class Stored:
    """Input: the transaction is durable, or `errnum` and `text` say why nothing of it is."""

    errnum: int = 0
    text: str = ""


class CommitOps(kvs.Commit[Op], frozen=True):
    """The kvs.commit request as this service reads it."""


class Page(kvs.Page, frozen=True, gc=False):
    """The kvs.page request as this service reads it."""

    def bounds(self) -> tuple[str, str]:
        """The keys of the page lie strictly between these two."""
        first, last = span(self.prefix)
        if not self.after:
            return first, last
        return (first, min(self.after, last)) if self.reverse else (max(self.after, first), last)


COMMIT: Final = codec(CommitOps)
PAGE: Final = codec(Page)


@dataclass(frozen=True, slots=True)
class Damaged:
    """In place of a value that is not what was committed; `text` names the key and says why."""

    text: str
    key: str = ""  # "" when it is not known
    remains: str = ""  # what of the value is as it was


@dataclass(frozen=True, slots=True)
class Swept:
    """A slice of a sweep: the next one begins `after` this key; None at the end."""

    after: str | None
    damaged: list[Damaged]
    keys: int = 0  # how many it has read


@dataclass(frozen=True, slots=True)
class PageRead:
    """The keys of a page, and a value for each; no values when they were not wanted."""

    keys: list[str]
    values: Sequence[str | Damaged | None]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Action: read the values of `keys`, list and count what is below prefixes, read `pages`.

    The answer is `Fetched`.
    """

    keys: list[str]
    prefixes: list[str]
    pages: list[Page] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)  # prefixes, whose keys are only counted


@dataclass(frozen=True, slots=True)
class Fetched:
    """Input: for each of `keys` a value, None if absent; for each of `prefixes` sorted keys."""

    values: Sequence[str | Damaged | None]
    listings: list[list[str]]
    errnum: int = 0
    text: str = ""
    pages: list[PageRead] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


KvsAction: TypeAlias = CommonAction | StoreOps | Fetch
KvsOutbox: TypeAlias = Outbox[Never, KvsAction, str]
"""The kvs asks no service, so it has no calls."""


def span(prefix: str) -> tuple[str, str]:
    """Between these two lies every key below `prefix`: "/" follows "." in code-point order."""
    return (f"{prefix}.", f"{prefix}/") if prefix else ("", KEY_CHAR_LAST)


def check_key(key: str) -> str:
    """`key` if it is one, otherwise FluxError(EINVAL)."""
    if len(key) > KEY_CHARS_MAX or not _KEY.fullmatch(key):
        raise FluxError(
            Errno.EINVAL,
            f"key {key[:80]!r}: expected names joined by periods, none empty, no control "
            f"characters, at most {KEY_CHARS_MAX} characters",
        )
    return key


def checked_bytes(ops: Sequence[Op]) -> int:
    """How long the keys and texts of `ops` are as UTF-8.

    FluxError(EMSGSIZE or EINVAL) unless each key is one and each text may be put or appended.
    """
    nbytes = _plain_bytes(ops)
    return sum(map(_checked_bytes, ops)) if nbytes is None else nbytes


def _plain_bytes(ops: Sequence[Op]) -> int | None:
    """The same for what nearly every commit is: all of it ASCII, and together no longer than one.

    None means that each is to be looked at. Keys that are joined by periods have no empty name if
    what comes of it begins and ends with none, and has no two in a row.
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
    """How long the key and the text of `op` are as UTF-8.

    FluxError(EMSGSIZE or EINVAL) unless the key is one and the text may be put or appended.
    """
    key = check_key(op.key)
    nbytes = len(key.encode())
    if isinstance(op, Unlink):
        return nbytes
    text = op.text
    if text.isascii() and len(text) <= VALUE_BYTES_MAX:  # nearly every text
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
