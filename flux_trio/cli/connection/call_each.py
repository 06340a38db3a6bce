"""The same request for each of several jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from flux_trio.cli.terminal.errors import CommandError, complain
from flux_trio.cli.terminal.shown_values import shown_id
from flux_trio.messages import FluxError

if TYPE_CHECKING:
    from flux_trio.client import Client


async def call_each(
    client: Client, topic: str, jobids: Sequence[int], payload: dict[str, Any]
) -> int:
    """Send `payload` with the id of each job, all at once; print refusals in the given order.

    Returns the exit code: 1 if one of the requests was refused.
    """
    refused: dict[int, FluxError] = {}

    async def call(jobid: int) -> None:
        try:
            await client.call(topic, {"id": jobid, **payload})
        except FluxError as error:
            refused[jobid] = error

    async with anyio.create_task_group() as calls:
        for jobid in jobids:
            calls.start_soon(call, jobid)
    for jobid in jobids:
        if jobid in refused:
            complain(f"{shown_id(jobid)}: {refused[jobid]}")
    return int(bool(refused))


@contextmanager
def about(jobid: int) -> Iterator[None]:
    """Turn a FluxError in this block into a CommandError that names the job."""
    try:
        yield
    except FluxError as error:
        raise CommandError(f"{shown_id(jobid)}: {error}") from None
