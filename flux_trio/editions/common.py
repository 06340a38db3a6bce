"""Payloads that several services have in common: of streams with credit, and of durations.

They are this project's own, the same in all editions.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.formats.meanings import Matchtag
from flux_trio.messages import Errno, Request, Response, respond_error

CREDIT_MAX: Final = 2**31 - 1  # of one grant, and of what is left: a larger sum counts as this

CreditKey: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=CREDIT_MAX)]
"""The type of the key `credit`; in the request that opens a stream it may be absent (None)."""


class Grant(msgspec.Struct, frozen=True):
    """The `<topic>-credit` request: the reader of a stream is ready for so many more responses."""

    matchtag: Matchtag
    credit: CreditKey


class Cancel(msgspec.Struct, frozen=True):
    """The `<topic>-cancel` request: end the sender's stream that was opened with this matchtag."""

    matchtag: Matchtag  # of the stream that is to end


GRANT: Final = codec(Grant)
CANCEL: Final = codec(Cancel)


class Histogram(msgspec.Struct, frozen=True):
    """Durations by length: how many there were for each of `bounds` (seconds), and longer ones.

    A duration is counted at the first bound that it does not exceed. `sum` is in seconds.
    """

    bounds: list[float]
    counts: list[int]
    sum: float


def canceled(stream: Request, cancel: Request) -> Response | None:
    """Return the end of a stream after a cancel.

    Flux's own programs want no answer to their cancel (RFC 6), and expect the regular end.
    """
    errnum = Errno.ECANCELED if cancel.wants_response else Errno.ENODATA
    return respond_error(stream, errnum)
