"""Many keys of the kvs asked for at once, by kvs.lookup-all and kvs.page. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flux_trio.cores.turns import Exit
from flux_trio.messages import Errno, FluxError, Response, expect_payload

LOOKUP_JOBS_MAX: Final = 1000
"""Whose R is asked for at once: some are taken in while the kvs reads the next."""


def cannot_read(what: str, error: FluxError) -> Exit:
    """A service ends, since the kvs does not tell `what`."""
    way_out = " (flux-trio fsck --repair)" if error.errnum == Errno.EBADMSG else ""
    return Exit(f"cannot read {what}: {error.text}{way_out}")


class _Values(msgspec.Struct):
    values: list[str | None]


def values_in(response: Response) -> list[str | None]:
    """The value of each key that was asked for, None where there is none. Raises FluxError."""
    if response.errnum:
        raise FluxError(response.errnum, response.error_text)
    return expect_payload(response, _Values).values


class KeysPage(msgspec.Struct, frozen=True):
    """A kvs.page request: at most `limit` keys below `prefix`, beyond `after` in that order."""

    prefix: str
    limit: int
    after: str = ""
    reverse: bool = False
    values: bool = True

    @property
    def payload(self) -> dict[str, Any]:
        return {
            "prefix": self.prefix,
            "limit": self.limit,
            "after": self.after,
            "reverse": self.reverse,
            "values": self.values,
        }


class PageAnswer(msgspec.Struct):
    """A kvs.page response; `values` is empty when they were not asked for.

    `damaged` has, by key, why a value is None, and what of it can be read.
    """

    keys: list[str]
    values: list[str | None] = []
    damaged: dict[str, tuple[str, str]] = {}

    @property
    def items(self) -> Iterator[tuple[str, str | None]]:
        """Each key with its value, None for one that is damaged."""
        return zip(self.keys, self.values, strict=True)

    def is_last(self, limit: int) -> bool:
        """Whether nothing comes after this page, which was asked for with `limit`."""
        return len(self.keys) < limit


def page_in(response: Response) -> PageAnswer:
    """The answer to a kvs.page. Raises FluxError."""
    if response.errnum:
        raise FluxError(response.errnum, response.error_text)
    return expect_payload(response, PageAnswer)
