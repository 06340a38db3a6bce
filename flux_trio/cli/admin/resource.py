"""`flux-trio resource`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Group
from flux_trio.cli.terminal.params import NO_HEADER, format_option

if TYPE_CHECKING:
    from flux_trio.cli.admin.resource_rows import Resources
    from flux_trio.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_INCLUDE = click.option(
    "-i",
    "--include",
    metavar="RANKS|HOSTS",
    help="Show only these nodes.",
    shell_complete=completing.hosts,
)
_QUEUE = click.option(
    "-q",
    "--queue",
    metavar="NAME,...",
    help="Show only these queues.",
    shell_complete=completing.queues,
)
_STATES = click.option("-s", "--states", metavar="STATE,...", help="Show only these states.")
_LAYOUT = format_option("fields")
_SKIP_EMPTY = click.option(
    "--skip-empty/--no-skip-empty", default=None, help="Whether to omit lines without nodes."
)
_FORCE = click.option(
    "-f",
    "--force",
    count=True,
    help="Replace the reason of targets that are drained already; -ff also the time.",
)
_UPDATE = click.option(
    "-u", "--update", is_flag=True, help="Keep the reason of targets that are drained already."
)
_MODES: Final = {0: None, 1: "overwrite"}  # by the number of --force; from two on:
_FORCED_MODE: Final = "force-overwrite"


@click.group(cls=Group)
def resource() -> None:
    """Show the resources of the instance; drain nodes, and mark them down or up."""


@resource.command("list")
@_STATES
@_QUEUE
@_INCLUDE
@_LAYOUT
@NO_HEADER
@_SKIP_EMPTY
def list_resources(
    states: str | None,
    queue: str | None,
    include: str | None,
    layout: str | None,
    no_header: bool,
    skip_empty: bool | None,
) -> None:
    """List how many nodes, cores and gpus are free, allocated and down.

    Other states are up and all. The fields of a FORMAT are those of flux-resource(1).

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.cli.admin.resource_rows import (
        LIST_FIELDS,
        LIST_FORMATS,
        LIST_STATES,
        LISTED,
        list_rows,
    )
    from flux_trio.cli.terminal.named_formats import choose_layout

    wanted = _read_states(states, LIST_STATES) or LISTED
    columns = choose_layout(layout, "flux-resource-list", LIST_FORMATS, LIST_FIELDS)
    resources = _look(include, queue)
    empty = include is not None if skip_empty is None else skip_empty
    rows = list_rows(resources, wanted, columns.fields, skip_empty=empty)
    columns.print(rows, header=not no_header)


@resource.command()
@_STATES
@_QUEUE
@_INCLUDE
def info(states: str | None, queue: str | None, include: str | None) -> None:
    """Print how many nodes, cores and gpus there are, in one line.

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    part = _in_states(states, include, queue)
    counts = ((part.nnodes, "Node"), (part.ncores, "Core"), (part.ngpus, "GPU"))
    click.echo(", ".join(f"{n} {name}{'' if n == 1 else 's'}" for n, name in counts))


@resource.command("R")
@_STATES
@_QUEUE
@_INCLUDE
def print_r(states: str | None, queue: str | None, include: str | None) -> None:
    """Print resources as an RFC 20 object.

    Exit codes: 0, 1 if no node matches or the instance does not answer, 2 for wrong usage.
    """
    import msgspec

    found = _in_states(states, include, queue)
    if not found:
        raise CommandError("no node matches, and R must have at least one")
    click.echo(msgspec.json.encode(found.to_json()))


@resource.command()
@_STATES
@_QUEUE
@_INCLUDE
@_LAYOUT
@NO_HEADER
@click.option("--skip-empty", is_flag=True, help="Omit lines without nodes, also with -s.")
def status(
    states: str | None,
    queue: str | None,
    include: str | None,
    layout: str | None,
    no_header: bool,
    skip_empty: bool,
) -> None:
    """List which nodes are avail, excluded, draining and drained; * marks offline nodes.

    An offline node is down; `-o long` shows the reason.

    Other states are allocated, all, drain (draining and drained), online and offline.

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.cli.admin.resource_rows import (
        STATUS_FIELDS,
        STATUS_FORMATS,
        STATUS_SHOWN,
        STATUS_STATES,
        status_rows,
    )
    from flux_trio.cli.terminal.named_formats import choose_layout

    known = (*STATUS_STATES, "all", "drain", "online", "offline")
    wanted = list(_read_states(states, known) or STATUS_SHOWN)
    if "drain" in wanted:
        wanted += ["draining", "drained"]
    columns = choose_layout(layout, "flux-resource-status", STATUS_FORMATS, STATUS_FIELDS)
    empty = skip_empty or states is None
    rows = status_rows(_look(include, queue), wanted, columns.fields, skip_empty=empty)
    columns.print(rows, header=not no_header)


@resource.command()
@_FORCE
@_UPDATE
@_QUEUE
@_INCLUDE
@_LAYOUT
@NO_HEADER
@click.argument("targets", shell_complete=completing.hosts, required=False)
@click.argument("reason", nargs=-1)
def drain(
    *,
    force: int,
    update: bool,
    queue: str | None,
    include: str | None,
    layout: str | None,
    no_header: bool,
    targets: str | None,
    reason: tuple[str, ...],
) -> None:
    """Start no more jobs on TARGETS (ranks or hosts), for REASON; without TARGETS, list drains.

    Jobs that run there go on: a target is draining until they end, then drained.

    Exit codes: 0, 1 if a target does not exist or is drained already, 2 for wrong usage.
    """
    from flux_trio.cli.admin.resource_rows import DRAIN_FORMATS, STATUS_FIELDS, drain_rows
    from flux_trio.cli.terminal.named_formats import choose_layout
    from flux_trio.messages import Errno, topics

    if targets is not None:
        if _change(topics.RESOURCE_DRAIN, targets, force, update, reason) == Errno.EEXIST:
            remark("Use --force to overwrite existing drain reason")
            click.get_current_context().exit(1)
        return
    columns = choose_layout(layout, "flux-resource-drain", DRAIN_FORMATS, STATUS_FIELDS)
    columns.print(drain_rows(_look(include, queue), columns.fields), header=not no_header)


@resource.command()
@_FORCE
@_UPDATE
@click.argument("targets", shell_complete=completing.hosts)
@click.argument("reason", nargs=-1)
def undrain(force: int, update: bool, targets: str, reason: tuple[str, ...]) -> None:
    """Let jobs start on TARGETS again. REASON is written to the resource eventlog.

    Exit codes: 0, 1 if a target does not exist or is not drained, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    if _change(topics.RESOURCE_UNDRAIN, targets, force, update, reason):
        click.get_current_context().exit(1)


@resource.command("down")
@click.argument("targets", shell_complete=completing.hosts)
@click.argument("reason", nargs=-1)
def put_down(targets: str, reason: tuple[str, ...]) -> None:
    """Mark TARGETS (ranks or hosts) as down, for REASON.

    Jobs that run there end with an exception, and no job starts there until the targets are up
    again. To let the jobs go on, use drain.

    Exit codes: 0, 1 if a target does not exist, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    payload = {"targets": targets} | ({"reason": " ".join(reason)} if reason else {})
    with_client(lambda client: client.call(topics.RESOURCE_DOWN, payload))


@resource.command("up")
@click.argument("targets", shell_complete=completing.hosts)
def bring_up(targets: str) -> None:
    """Mark TARGETS (ranks or hosts), which are down, as up again.

    If a check command is configured, its next run may mark them as down again.

    Exit codes: 0, 1 if a target does not exist or is not down, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    with_client(lambda client: client.call(topics.RESOURCE_UP, {"targets": targets}))


def _change(topic: str, targets: str, force: int, update: bool, reason: tuple[str, ...]) -> int:
    """Drain or undrain. Returns EEXIST, after printing the error, if refused so; else 0."""
    from flux_trio.cli.terminal.errors import complain
    from flux_trio.messages import Errno, FluxError

    if force and update:
        raise CommandError("Only one of --force and --update may be specified")
    mode = "update" if update else _MODES.get(force, _FORCED_MODE)
    payload: dict[str, Any] = {"targets": targets}
    payload |= {"reason": " ".join(reason)} if reason else {}
    payload |= {"mode": mode} if mode else {}

    async def send(client: Client) -> int:
        try:
            await client.call(topic, payload)
        except FluxError as error:
            if error.errnum != Errno.EEXIST:
                raise
            complain(str(error))
            return error.errnum
        return 0

    return with_client(send)


def _read_states(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the states that --states names; an empty tuple means the default states."""
    wanted = tuple(text.split(",")) if text else ()
    if text == "help":
        remark(f"valid states: {','.join(known)}")
        click.get_current_context().exit()
    for state in wanted:
        if state not in known:
            raise CommandError(
                f"Invalid resource state {state} specified; valid states: {','.join(known)}"
            )
    return wanted


def _in_states(states: str | None, include: str | None, queue: str | None) -> Any:
    from flux_trio.cli.admin.resource_rows import LIST_STATES

    first, *more = _read_states(states, LIST_STATES) or ("all",)
    resources = _look(include, queue)
    part = resources.state(first)
    for state in more:
        part = part.union(resources.state(state))
    return part


def _look(include: str | None, queues: str | None) -> Resources:
    """Return the resources, restricted to the nodes of `include` and of `queues` if given."""
    from flux_trio.cli.admin.resource_rows import fetch_with_queues

    resources = with_client(fetch_with_queues)
    option = "--queue"
    try:
        if queues is not None:
            resources = resources.of_queues(queues.split(","))
        option = "--include"
        return resources if include is None else resources.restrict(include)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None
