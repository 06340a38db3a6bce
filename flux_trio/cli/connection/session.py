"""A command's connection to its instance, open while one function runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.process.groups import error_of_block, unwrapping

if TYPE_CHECKING:
    from flux_trio.client import Client

T = TypeVar("T")

SLOW_S: Final = 2.0  # a call that waits longer has a reason


def with_client(
    use: Callable[[Client], Awaitable[T]], environ: Mapping[str, str] = os.environ
) -> T:
    """Call `use` with a client of the instance that `environ` names, and return its result.

    Raises CommandError, whose cause is the error of the client, if there is no instance, if it
    refuses the connection, if the connection is lost, or if `use` raises CommandError, FluxError,
    FormatError or LocalProtocolError (a message cannot hold the value, for example an argument that
    is not UTF-8). An OSError of `use` is raised as it is.
    """
    import anyio

    from flux_trio.client import ClientError, await_instance, open_client
    from flux_trio.formats import FormatError
    from flux_trio.messages import FluxError, LocalProtocolError

    async def main() -> T:
        address = await await_instance(environ, remark)
        async with open_client(*address) as client, _printing_why(client):
            return await use(client)

    refused = (ClientError, FluxError, FormatError, LocalProtocolError)
    try:
        with unwrapping(CommandError, OSError, *refused):  # OSError: `app` says what it is
            return anyio.run(main, backend="asyncio")  # starts in half the time that Trio takes
    except refused as error:
        raise CommandError(str(error)) from error


@asynccontextmanager
async def _printing_why(client: Client) -> AsyncIterator[None]:
    """In this block, print once why the instance is slow, when a call has waited SLOW_S.

    For example, changes wait while the disk is full. A user who has canceled a job should learn
    that the cancel waits, and why.
    """
    import anyio

    with error_of_block():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_print_why, client)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


async def _print_why(client: Client) -> None:
    import anyio

    reason = ""
    while not reason:
        await anyio.sleep(SLOW_S)
        if client.statistics().calls_waiting:
            reason = await _hindrance(client)
    remark(f"waits for an answer: {reason}")


async def _hindrance(client: Client) -> str:
    from flux_trio.messages import Errno, FluxError, topics

    try:
        queues = (await client.call(topics.JOB_QUEUE_LIST))["queues"]
        named = {"name": queues[0]} if queues else {}
        return "; ".join((await client.call(topics.JOB_QUEUE_STATUS, named)).get("silent", ()))
    except FluxError as error:
        return error.text if error.errnum == Errno.EAGAIN else ""
