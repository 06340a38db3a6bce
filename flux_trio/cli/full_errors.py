"""Errors that a response had no room for: the log has all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux_trio.cli.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.client import Client


async def call_in_full(client: Client, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
    """One request of the owner's; CommandError with the whole text of an error that is cut off."""
    from flux_trio.formats import printable
    from flux_trio.messages import MORE, FluxError

    try:
        return await client.call(topic, payload)
    except FluxError as error:
        if not error.text.endswith(MORE):
            raise
        begin = printable(error.text.removesuffix(MORE))  # as the log has it
        raise CommandError(await _logged(client, begin) or error.text) from None


async def _logged(client: Client, begin: str) -> str | None:
    """The last line of the log that begins so."""
    from flux_trio.messages import topics

    wanted = {"follow": False, "nobacklog": False}
    found = None
    cancel = topics.LOG_DMESG_CANCEL
    async with client.stream(topics.LOG_DMESG, wanted, cancel_topic=cancel) as entries:
        async for entry in entries:
            if entry["text"].startswith(begin):
                found = str(entry["text"])
    return found
