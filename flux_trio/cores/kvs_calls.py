"""What services ask of the kvs, and how they read its answers. Pure.

Each function for a request returns its topic and its payload, for `ask(*look_up(key), call)`. Each
reader of an answer raises FluxError: the kvs's own error, or EPROTO for another payload.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from flux_trio.cores.pages import page_size
from flux_trio.cores.turns import Exit
from flux_trio.editions import kvs
from flux_trio.editions.common import CANCEL, Cancel
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import Errno, FluxError, Payload, Request, Response, topics
from flux_trio.messages.types import NORESPONSE

LOOKUP_JOBS_MAX: Final = 1000
"""Jobs whose values one lookup asks for: a service takes some in while the kvs reads the next."""

READ_CHARS_MAX: Final = 2 << 20
"""Characters of values that the kvs reads at once; one value, or one read without a `chars_max`,
may have more. Readers of many values give it as `chars_max` (`read_chars`): a longer answer would
have to wait until it is the only one."""
_VALUE_CHARS: Final = 512  # of a value where pages are small

Ask: TypeAlias = tuple[str, Payload]
"""The topic and the payload of a request."""


def read_chars() -> int:
    """Return READ_CHARS_MAX; a few short values where pages are small (`pages`)."""
    return page_size(READ_CHARS_MAX // _VALUE_CHARS) * _VALUE_CHARS


def look_up(key: str) -> Ask:
    return topics.KVS_LOOKUP, kvs.LOOKUP.write(kvs.Lookup(key))


def look_up_all(keys: list[str], chars_max: int | None = None) -> Ask:
    """Ask for many values; the answer ends with the value that goes beyond `chars_max`."""
    return topics.KVS_LOOKUP_ALL, kvs.LOOKUP_ALL.write(kvs.LookupAll(keys, chars_max))


def read_page(
    prefix: str, limit: int, after: str = "", *, reverse: bool = False, values: bool = True
) -> Ask:
    """Ask for at most `limit` keys below `prefix` that come after `after`; "" is the beginning.

    With `reverse` the order is backwards.
    """
    page = kvs.Page(prefix, limit, after, reverse, values)
    return topics.KVS_PAGE, kvs.PAGE.write(page)


def count_below(prefix: str) -> Ask:
    return topics.KVS_COUNT, kvs.PREFIX.write(kvs.Prefix(prefix))


def commit_ops(ops: list[KvsOp], *, wait: bool = True, frees: bool = False) -> Ask:
    """Ask for a commit of `ops`; without `wait` the kvs refuses it while its disk is full.

    With `frees` it leads to more room: the kvs may use the room that is set aside for it.
    """
    commit = kvs.Commit(ops, None if wait else False, frees or None)
    return topics.KVS_COMMIT, kvs.COMMIT.write(commit)


def watch_key(key: str) -> Ask:
    return topics.KVS_WATCH, kvs.WATCH.write(kvs.Watch(key))


def cancel_watch(matchtag: int) -> Request:
    """Return the request that ends the watch with this matchtag; it wants no response."""
    return Request(topics.KVS_CANCEL, CANCEL.write(Cancel(matchtag)), flags=NORESPONSE)


def value_in(response: Response) -> str | None:
    """Return the value that a kvs.lookup has found; None for a key that is absent."""
    if response.errnum == Errno.ENOENT:
        return None
    check(response)
    return kvs.VALUE.read(response).value


def values_in(response: Response) -> list[str | None]:
    """Return the value of each key of a kvs.lookup-all, None for a key that is absent."""
    check(response)
    return kvs.VALUES.read(response).values


def page_in(response: Response) -> kvs.KeysPage:
    check(response)
    return kvs.KEYS_PAGE.read(response)


def count_in(response: Response) -> int:
    check(response)
    return kvs.COUNT.read(response).count


def change_in(response: Response) -> kvs.Change:
    """Return the change in a response to kvs.watch."""
    check(response)
    return kvs.CHANGE.read(response)


def check(response: Response) -> None:
    """Raise FluxError if the kvs answered with an error; nothing else is in a commit's answer."""
    if response.errnum:
        raise FluxError(response.errnum, response.error_text)


def cannot_read(what: str, error: FluxError) -> Exit:
    """Return the action with which a service ends that cannot read `what` from the kvs."""
    way_out = " (flux-trio fsck --repair)" if error.errnum == Errno.EBADMSG else ""
    return Exit(f"cannot read {what}: {error.text}{way_out}")
