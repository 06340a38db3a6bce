"""`flux-trio resource`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.cli.resource_rows import Resources
    from flux_trio.client import Client


@click.group()
def resource() -> None:
    """Look at the resources of the instance, and take nodes out of use."""


@resource.command("list")
def list_resources() -> None:
    """List how many nodes, cores and gpus are free, allocated and down.

    Exit codes: 0, 1 if there is no answer, 2 for wrong usage.
    """
    from flux_trio.cli.resource_rows import LIST_FORMAT, LIST_HEADINGS, list_rows

    _, resources = with_client(_fetch)
    _print(LIST_FORMAT, LIST_HEADINGS, list_rows(resources))


@resource.command()
@click.argument("targets", required=False)
@click.argument("reason", nargs=-1)
def drain(targets: str | None, reason: tuple[str, ...]) -> None:
    """Give TARGETS (ranks or hosts) no more jobs, for REASON; without TARGETS list the drained.

    Jobs that run there go on: the target is draining, then drained.

    Exit codes: 0, 1 if a target is not there or drained already, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    if targets is None:
        _list_drained()
        return
    payload = {"targets": targets, **({"reason": " ".join(reason)} if reason else {})}
    with_client(lambda client: client.call(topics.RESOURCE_DRAIN, payload))


@resource.command()
@click.argument("targets")
def undrain(targets: str) -> None:
    """Let jobs run on TARGETS again.

    Exit codes: 0, 1 if a target is not there or not drained, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    with_client(lambda client: client.call(topics.RESOURCE_UNDRAIN, {"targets": targets}))


def _list_drained() -> None:
    from flux_trio.cli.resource_rows import DRAIN_FORMAT, DRAIN_HEADINGS, drain_rows

    status, resources = with_client(_fetch)
    _print(DRAIN_FORMAT, DRAIN_HEADINGS, drain_rows(status, resources))


def _print(form: str, headings: Mapping[str, str], rows: Sequence[dict[str, object]]) -> None:
    from flux_trio.cli.columns import Layout

    for line in Layout(form, headings).lines(rows):
        click.echo(line)


async def _fetch(client: Client) -> tuple[dict[str, Any], Resources]:
    """The resource.status response, and the resources with what jobs hold of them."""
    from flux_trio.cli.resource_rows import Resources
    from flux_trio.messages import USERID_UNKNOWN, topics
    from flux_trio.protocols import RUNNING

    status = await client.call(topics.RESOURCE_STATUS)
    running = {
        "max_entries": 0,
        "states": int(RUNNING),
        "userid": USERID_UNKNOWN,
        "queues": [],  # of all queues
    }
    jobs = (await client.call(topics.LIST_LIST, running))["jobs"]
    return status, Resources.read(status, await _held(client, [job["id"] for job in jobs]))


async def _held(client: Client, jobids: list[int]) -> list[str]:
    """R of each job, asked for at once; a job that has just ended may have none."""
    import anyio

    from flux_trio.messages import Errno, FluxError, topics

    held = []

    async def look_up(jobid: int) -> None:
        try:
            answer = await client.call(topics.INFO_LOOKUP, {"id": jobid, "keys": ["R"]})
        except FluxError as error:
            if error.errnum != Errno.ENOENT:
                raise
        else:
            held.append(answer["R"])

    async with anyio.create_task_group() as tasks:
        for jobid in jobids:
            tasks.start_soon(look_up, jobid)
    return held
