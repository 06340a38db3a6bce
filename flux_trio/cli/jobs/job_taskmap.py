"""`flux-trio job taskmap`: the node of each task of a job (RFC 34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command

if TYPE_CHECKING:
    from flux_trio.client import Client
    from flux_trio.formats import Idset

_COUNT = click.IntRange(min=0)


@click.command(cls=Command)
@click.option("--taskids", type=_COUNT, metavar="NODEID", help="Print the tasks of that node.")
@click.option("--ntasks", type=_COUNT, metavar="NODEID", help="Print how many tasks that node has.")
@click.option("--nodeid", type=_COUNT, metavar="TASKID", help="Print the node of that task.")
@click.option(
    "--hostname", type=_COUNT, metavar="TASKID", help="Print the name of that task's node."
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["raw", "pmi", "multiline", "hosts"]),
    help="The form to print. [default: that of RFC 34]",
)
@click.argument("what", metavar="JOBID|TASKMAP")
def taskmap(
    *,
    taskids: int | None,
    ntasks: int | None,
    nodeid: int | None,
    hostname: int | None,
    form: str | None,
    what: str,
) -> None:
    """Print the task map of a job once it has resources, or convert a task map.

    A NODEID is the node's position among the nodes of the job, counted from 0.

    Exit codes: 0, 1 if there is no such job, task or node, 2 for wrong usage.
    """
    asked = [taskids, ntasks, nodeid, hostname, form]
    if len([value for value in asked if value is not None]) > 1:
        raise click.UsageError("expected one of --taskids, --ntasks, --nodeid, --hostname and --to")
    nodes, hosts = _read(what)
    if taskids is not None:
        click.echo(_tasks(nodes, taskids))
    elif ntasks is not None:
        click.echo(len(_tasks(nodes, ntasks)))
    elif nodeid is not None:
        click.echo(_node(nodes, nodeid))
    elif hostname is not None:
        click.echo(_names(hosts, "--hostname")[_node(nodes, hostname)])
    else:
        _print(form, nodes, hosts)


def _print(form: str | None, nodes: list[int], hosts: list[str]) -> None:
    import msgspec

    from flux_trio.formats import (
        format_pmi_taskmap,
        format_raw_taskmap,
        taskmap_blocks,
        tasks_by_node,
    )

    match form:
        case "raw":
            click.echo(format_raw_taskmap(nodes))
        case "pmi":
            click.echo(format_pmi_taskmap(nodes))
        case "multiline":
            for taskid, node in enumerate(nodes):
                click.echo(f"{taskid}: {node}")
        case "hosts":
            for host, tasks in zip(_names(hosts, "--to=hosts"), tasks_by_node(nodes), strict=False):
                click.echo(f"{host}: {tasks}")
        case _:
            click.echo(msgspec.json.encode(taskmap_blocks(nodes)))


def _read(what: str) -> tuple[list[int], list[str]]:
    """Return the node of each task and, for a job, the names of its nodes."""
    from flux_trio.formats import FormatError, parse_fluid, parse_taskmap

    try:
        jobid = parse_fluid(what)
    except FormatError:
        try:
            return parse_taskmap(what), []
        except FormatError as error:
            raise CommandError(f"expected a job id, or {error.expected}, got {error.got}") from None
    return with_client(lambda client: _of_job(client, jobid))


async def _of_job(client: Client, jobid: int) -> tuple[list[int], list[str]]:
    from flux_trio.cli.connection.call_each import about
    from flux_trio.cores.exec.placement import LayoutError, place_tasks
    from flux_trio.formats import Jobspec, parse_r
    from flux_trio.messages import topics

    with about(jobid):
        if not await _allocated(client, jobid):
            raise CommandError("No taskmap found for job")
        payload = {"id": jobid, "keys": ["jobspec", "R"], "current": True}
        answer = await client.call(topics.INFO_LOOKUP, payload)
    resources = parse_r(answer["R"])
    try:
        placements = place_tasks(Jobspec.parse(answer["jobspec"].encode()), resources)
    except LayoutError as error:
        raise CommandError(f"No taskmap found for job: {error}") from None
    return [place.node for place in placements], list(resources.hosts.values())


async def _allocated(client: Client, jobid: int) -> bool:
    """Wait for the alloc event or the end of the job; return whether it got resources."""
    from flux_trio.client.jobs import watch_eventlog
    from flux_trio.formats import parse_event
    from flux_trio.protocols import JobEvent

    async with watch_eventlog(client, jobid) as responses:
        async for response in responses:
            if parse_event(response["event"]).name == JobEvent.ALLOC:
                return True
    return False


def _tasks(nodes: list[int], node: int) -> Idset:
    from flux_trio.formats import tasks_by_node

    by_node = tasks_by_node(nodes)
    if node >= len(by_node):
        raise CommandError(f"No taskids for node {node}")
    return by_node[node]


def _node(nodes: list[int], taskid: int) -> int:
    if taskid >= len(nodes):
        raise CommandError(f"failed to get nodeid for task {taskid}")
    return nodes[taskid]


def _names(hosts: list[str], option: str) -> list[str]:
    if not hosts:
        raise CommandError(f"can't use {option} without a jobid")
    return hosts
