"""A command's connection to its instance, open while one function runs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.process.groups import unwrapping

if TYPE_CHECKING:
    from flux_trio.client import Client

T = TypeVar("T")


def with_client(
    use: Callable[[Client], Awaitable[T]], environ: Mapping[str, str] = os.environ
) -> T:
    """Call `use` with a client of the instance that `environ` names, and return its result.

    Raises CommandError if there is no instance, if it refuses the connection, if the connection is
    lost, or if `use` raises CommandError, FluxError, FormatError or LocalProtocolError (a message
    cannot hold the value, for example an argument that is not UTF-8). An OSError of `use` is raised
    as it is.
    """
    import anyio

    from flux_trio.cli.connection.slow_answers import printing_why
    from flux_trio.client import ClientError, await_instance, open_client
    from flux_trio.formats import FormatError
    from flux_trio.messages import FluxError, LocalProtocolError

    async def main() -> T:
        address = await await_instance(environ)
        async with open_client(*address) as client, printing_why(client):
            return await use(client)

    refused = (ClientError, FluxError, FormatError, LocalProtocolError)
    try:
        with unwrapping(CommandError, OSError, *refused):  # OSError: `app` says what it is
            return anyio.run(main, backend="asyncio")  # starts in half the time that Trio takes
    except refused as error:
        raise CommandError(str(error)) from None
