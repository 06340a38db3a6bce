"""Credit: how many more responses the reader of a stream is ready for. Pure.

A stream whose source can wait (a job's output, an eventlog, a listing, a key of the kvs) has an
optional request key `credit`. The service sends that many responses, then holds back the rest at
its source until the reader grants more by `<topic>-credit` {matchtag, credit}. The response that
ends the stream, an error or ENODATA, needs no credit. A request without the key sets no bound: its
reader is sent everything at once, and is disconnected when too much waits for it.

A service keeps one `Credit` for each open stream and sends no more than `allows` says. Streams that
are fed by events (journal, dmesg, subscriptions) have no credit: their source cannot wait.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from flux_trio.messages import Request, expect_payload

CREDIT_MAX: Final = 2**31 - 1  # of one grant, and of what is left: a larger sum counts as this

CreditKey: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=CREDIT_MAX)]
"""The type of the key `credit`; in the request that opens a stream it may be absent (None)."""


class _Grant(msgspec.Struct):
    matchtag: int
    credit: CreditKey


class Credit(msgspec.Struct):
    """What is left of one stream's credit; None when its request set no bound."""

    left: int | None = None

    def allows(self, wanted: int) -> int:
        """How many of `wanted` responses may be sent now."""
        return wanted if self.left is None else min(wanted, self.left)

    def spend(self, count: int = 1) -> None:
        """Count responses that were sent; there must have been credit for them."""
        if self.left is not None:
            assert count <= self.left, f"{count} responses sent with credit for {self.left}"
            self.left -= count

    def add(self, more: int) -> None:
        """Take a grant; it changes nothing for a stream without a bound."""
        if self.left is not None:
            self.left = min(self.left + more, CREDIT_MAX)


def read_grant(request: Request) -> tuple[tuple[str, int], int]:
    """The (sender, matchtag) of the stream that `<topic>-credit` is about, and how much it adds.

    Raises FluxError(EPROTO). A stream that has ended meanwhile is no error: grants cross its end.
    """
    grant = expect_payload(request, _Grant)
    return (request.sender, grant.matchtag), grant.credit
