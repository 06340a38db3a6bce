"""Print once on standard error why a command waits, when the instance is slow to answer.

For example, changes wait while the disk is full. A user who has canceled a job should learn that
the cancel waits, and why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from flux_trio.cli.terminal.errors import remark
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.process.groups import error_of_block

if TYPE_CHECKING:
    from flux_trio.client import Client

SLOW_S: Final = 2.0


@asynccontextmanager
async def printing_why(client: Client) -> AsyncIterator[None]:
    """In this block, print why the instance does not answer once a call has waited SLOW_S."""
    with error_of_block():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_print_why, client)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


async def _print_why(client: Client) -> None:
    reason = ""
    while not reason:
        await anyio.sleep(SLOW_S)
        if client.statistics().calls_waiting:
            reason = await _hindrance(client)
    remark(f"waits for an answer: {reason}")


async def _hindrance(client: Client) -> str:
    try:
        queues = (await client.call(topics.JOB_QUEUE_LIST))["queues"]
        named = {"name": queues[0]} if queues else {}
        return "; ".join((await client.call(topics.JOB_QUEUE_STATUS, named)).get("silent", ()))
    except FluxError as error:
        return error.text if error.errnum == Errno.EAGAIN else ""
