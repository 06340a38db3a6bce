"""`flux-trio module`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.errors import CommandError
from flux_trio.cli.full_errors import call_in_full
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client

_LIST_FORMAT: Final = "{name:<25} {idle:>5.0f} {status:<8} {waiting:>5} {services}"
_HEADINGS: Final = {
    "name": "Module",
    "idle": "Idle",
    "status": "Status",
    "waiting": "Recvq",
    "services": "Service",
}


@click.group()
def module() -> None:
    """Manage the services of a running instance."""


@module.command("list")
def list_modules() -> None:
    """List the loaded modules.

    Idle is the time in seconds since a module last took up or sent a message, Recvq what waits for
    it, Service the names it holds.

    Exit codes: 0, 1 if there is no answer, 2 for wrong usage.
    """
    from flux_trio.cli.columns import Layout
    from flux_trio.messages import topics

    loaded = with_client(lambda client: client.call(topics.MODULE_LIST))["modules"]
    rows = [{**each, "services": ",".join(each["services"])} for each in loaded]
    for line in Layout(_LIST_FORMAT, _HEADINGS).lines(rows):
        click.echo(line)


_EXEC = click.option("--exec", "as_process", is_flag=True, help="In a process of its own.")


@module.command()
@_EXEC
@click.argument("name")
def load(name: str, as_process: bool) -> None:
    """Start a module, and wait until it serves.

    Exit codes: 0, 1 if it is not known, loaded already or does not start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_LOAD, {"name": name, "exec": as_process})


@module.command()
@_EXEC
@click.argument("name")
def reload(name: str, as_process: bool) -> None:
    """Stop a module and start it again.

    Exit codes: 0, 1 if it is not loaded or does not start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_RELOAD, {"name": name, "exec": as_process})


@module.command()
@click.argument("name")
def remove(name: str) -> None:
    """Stop a module, and wait until nothing of it is left.

    Exit codes: 0, 1 if it is not loaded, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_REMOVE, {"name": name})


@module.command()
@click.argument("name")
def kill(name: str) -> None:
    """Make a module crash, to see what happens; its own process gets SIGKILL.

    Exit codes: 0, 1 if it is not loaded, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_KILL, {"name": name})


@module.command()
@click.argument("name")
def stats(name: str) -> None:
    """Print the statistics of a module, as JSON.

    Exit codes: 0, 1 if it is not loaded or keeps none, 2 for wrong usage.
    """
    import json

    click.echo(json.dumps(with_client(lambda client: _stats(client, name)), indent=2))


async def _stats(client: Client, name: str) -> dict[str, Any]:
    """Answered by the service of the module's name, or by the one it has."""
    from flux_trio.messages import topics

    loaded = {each["name"]: each for each in (await client.call(topics.MODULE_LIST))["modules"]}
    if name not in loaded:
        raise CommandError(f"module {name} is not loaded")
    services = loaded[name]["services"]
    if not services:
        raise CommandError(f"module {name} has no service to ask")
    service = name if name in services else services[0]
    return await client.call(f"{service}.{topics.STATS_METHOD}")


@module.command()
@click.option("-f", "--full", is_flag=True, help="Also print payloads, as JSON.")
@click.option("-T", "--topic", metavar="GLOB", default="*", help="Only messages of these topics.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def trace(names: tuple[str, ...], full: bool, topic: str) -> None:
    """Print the messages that modules send and receive, until interrupted.

    Of all modules if none is named. Each line has the time, the module, tx or rx, the type (>
    request, < response, e event), the topic and the size of the payload. A module need not be
    loaded yet.

    Exit codes: 1 if there is no answer, 2 for wrong usage; ctrl-C is what ends it.
    """
    with_client(lambda client: _trace(client, names, full, topic))


async def _trace(client: Client, names: tuple[str, ...], full: bool, topic: str) -> None:
    from flux_trio.cli.trace_lines import trace_line
    from flux_trio.messages import topics

    wanted = {"names": list(names), "topic_glob": topic, "full": full}
    width = max(map(len, names), default=0)
    async with client.stream(topics.MODULE_TRACE, wanted) as responses:
        async for told in responses:
            click.echo(trace_line(told, width))


def _change(topic: str, payload: dict[str, Any]) -> None:
    with_client(lambda client: call_in_full(client, topic, payload))
