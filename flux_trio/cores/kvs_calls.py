"""What services ask of the kvs, and how they read its answers. Pure.

Each function for a request returns a value, for `ask_kvs(look_up(key), call)`: the outbox knows the
edition, whose words the request is in. Each reader of an answer raises FluxError: the kvs's own
error, or EPROTO for another payload.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from flux_trio.cores.pages import page_size
from flux_trio.cores.turns import Exit
from flux_trio.editions import flux_kvs, kvs
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

Ask: TypeAlias = (
    kvs.Lookup
    | kvs.LookupOwn
    | kvs.LookupAll
    | kvs.CommitValues
    | kvs.Commit[KvsOp]
    | kvs.Page
    | kvs.CountBelow
    | kvs.Watch
)
"""What a service asks of the kvs; `written` is the request in the words of an edition."""


def written(ask: Ask, words: kvs.KvsWords) -> tuple[str, Payload]:
    """Return the topic and the payload of a request."""
    match ask:
        case kvs.Lookup():
            return topics.KVS_LOOKUP, words.look_up(ask)
        case kvs.LookupOwn():
            return words.look_up_own(ask)
        case kvs.CommitValues():
            return topics.KVS_COMMIT, words.commit(ask)
        case kvs.Commit():
            return words.own.commit, kvs.COMMIT.write(ask)
        case kvs.LookupAll():
            return words.own.lookup_all, kvs.LOOKUP_ALL.write(ask)
        case kvs.Page():
            return words.own.page, kvs.PAGE.write(ask)
        case kvs.CountBelow():
            return words.own.count_below, kvs.PREFIX.write(ask)
        case kvs.Watch():
            return words.own.watch, kvs.WATCH.write(ask)
        case _:
            assert_never(ask)


def read_chars() -> int:
    """Return READ_CHARS_MAX; a few short values where pages are small (`pages`)."""
    return page_size(READ_CHARS_MAX // _VALUE_CHARS) * _VALUE_CHARS


def look_up(key: str) -> Ask:
    return kvs.Lookup(key)


def look_up_own(key: str) -> Ask:
    """Ask for a value that only this project has, such as a piece of output."""
    return kvs.LookupOwn(key)


def look_up_all(keys: list[str], chars_max: int | None = None) -> Ask:
    """Ask for many values; the answer ends with the value that goes beyond `chars_max`."""
    return kvs.LookupAll(keys, chars_max)


def read_page(
    prefix: str, limit: int, after: str = "", *, reverse: bool = False, values: bool = True
) -> Ask:
    """Ask for at most `limit` keys below `prefix` that come after `after`; "" is the beginning.

    With `reverse` the order is backwards.
    """
    return kvs.Page(prefix, limit, after, reverse, values)


def count_below(prefix: str) -> Ask:
    return kvs.CountBelow(prefix)


def commit_values(ops: list[KvsOp], namespace: str = flux_kvs.PRIMARY) -> Ask:
    """Ask for a commit of values that outsiders may know, such as R."""
    return kvs.CommitValues(ops, namespace)


def commit_ops(
    ops: list[KvsOp],
    *,
    wait: bool = True,
    frees: bool = False,
    guests: list[kvs.Guest] | None = None,
) -> Ask:
    """Ask for a commit of `ops`, which may be in our indices, or in the namespaces of `guests`.

    Without `wait` the kvs refuses it while its disk is full. With `frees` it leads to more room:
    the kvs may use the room that is set aside for it.
    """
    return kvs.Commit(ops, None if wait else False, frees or None, guests)


def watch_key(key: str) -> Ask:
    return kvs.Watch(key)


def cancel_watch(matchtag: int, words: kvs.KvsWords) -> Request:
    """Return the request that ends the watch with this matchtag; it wants no response."""
    return Request(words.own.cancel, CANCEL.write(Cancel(matchtag)), flags=NORESPONSE)


def value_in(response: Response) -> str | None:
    """Return the value that a lookup has found, in whose words ever; None for an absent key."""
    if response.errnum == Errno.ENOENT:
        return None
    check(response)
    return flux_kvs.value_in(response)


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
