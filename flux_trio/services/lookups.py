"""Many keys of the kvs asked for at once, by kvs.lookup-all. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.messages import FluxError, Response, expect_payload

LOOKUP_JOBS_MAX: Final = 1000
"""Whose R is asked for at once: some are taken in while the kvs reads the next."""


class _Values(msgspec.Struct):
    values: list[str | None]


def values_in(response: Response) -> list[str | None]:
    """The value of each key that was asked for, None where there is none. Raises FluxError."""
    if response.errnum:
        raise FluxError(response.errnum, response.error_text)
    return expect_payload(response, _Values).values
