"""Waiting for what may be slow: nothing is cut off, and somebody is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from flux_trio.process.groups import error_of_block


@asynccontextmanager
async def telling_if_slow(after_s: float, tell: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tell` once if the block takes longer than `after_s` seconds; the block goes on."""

    async def tell_later() -> None:
        await trio.sleep(after_s)
        tell()

    with error_of_block():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_later)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
