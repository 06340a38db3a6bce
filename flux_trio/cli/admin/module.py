"""`flux-trio module`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, tell_abandoned
from flux_trio.cli.terminal.examples import Group

if TYPE_CHECKING:
    from flux_trio.client import Client

_LIST_FORMAT: Final = "{name:<25} {idle:>5.0f} {status:<8} {waiting:>5} {services}"
_TYPES: Final = ("request", "response", "event")  # of messages


@click.group(cls=Group)
def module() -> None:
    """Manage the services of a running instance."""


@module.command("list")
def list_modules() -> None:
    """List the loaded modules.

    Idle is the number of seconds since a module last received or sent a message, Recvq the number
    of messages that wait for it, Service the service names that it has registered.

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.columns import Field, FieldsRow, Layout

    fields = {
        "name": Field("Module", lambda each: each["name"]),
        "idle": Field("Idle", lambda each: each["idle"]),
        "status": Field("Status", lambda each: each["status"]),
        "waiting": Field("Recvq", lambda each: each["waiting"]),
        "services": Field("Service", lambda each: ",".join(each["services"])),
    }
    loaded = with_client(_loaded).values()
    Layout(_LIST_FORMAT, fields).print([FieldsRow(fields, each) for each in loaded])


_EXEC = click.option("--exec", "as_process", is_flag=True, help="Run it in a process of its own.")


@module.command()
@_EXEC
@click.argument("name")
@click.argument("args", nargs=-1)
def load(name: str, args: tuple[str, ...], as_process: bool) -> None:
    """Start a module, and wait until it serves.

    NAME is one of flux-trio's, or with a slash the file of a module of flux-core, such as
    ./sched-simple.py or ./sched.so. flux-core's own loader runs the file; so `flux` must be on the
    instance's PATH. Of flux-trio's modules sched (mode=limited=N), job-exec (kill-timeout=FSD),
    job-ingest and resource (noverify) have ARGS, which stand above the configuration.

    Exit codes: 0, 1 if the module is unknown, is already loaded, has no such argument or does not
    start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    if "/" in name:
        wanted: dict[str, Any] = {"path": os.path.abspath(name), "args": args}  # noqa: PTH100 - no link is resolved
    else:
        wanted = {"name": name, "args": args, "exec": as_process}
    _change(topics.MODULE_LOAD, wanted)


@module.command()
@_EXEC
@click.option("-f", "--force", is_flag=True, help="Start the module if it is not loaded.")
@click.argument("name", shell_complete=completing.module)
@click.argument("args", nargs=-1)
def reload(name: str, args: tuple[str, ...], as_process: bool, force: bool) -> None:
    """Stop a module and start it again; see `module remove`.

    Without ARGS it has those that it had; see `module load`.

    Exit codes: 0, 1 if the module is not loaded or does not start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    is_new = force and name not in with_client(_loaded)
    topic = topics.MODULE_LOAD if is_new else topics.MODULE_RELOAD
    _change(topic, {"name": name, "args": args, "exec": as_process})


@module.command()
@click.option("-f", "--force", is_flag=True, help="Succeed if the module is not loaded.")
@click.argument("name", shell_complete=completing.module)
def remove(name: str, force: bool) -> None:
    """Stop a module, and wait until its tasks have ended or were abandoned.

    Only a task of a plugin is abandoned: if it goes on 5 seconds after it was cancelled. It is
    named on standard error.

    Exit codes: 0, 1 if the module is not loaded, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    if not force or name in with_client(_loaded):
        _change(topics.MODULE_REMOVE, {"name": name})


@module.command()
@click.argument("name", shell_complete=completing.module)
def kill(name: str) -> None:
    """Make a module crash, for a test; a process of its own gets SIGKILL.

    Exit codes: 0, 1 if the module is not loaded, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_KILL, {"name": name})


@module.command()
@click.option("-p", "--parse", "path", metavar="KEY.KEY...", help="Print only this value.")
@click.argument("name", shell_complete=completing.module)
def stats(name: str, path: str | None) -> None:
    """Print the statistics of a module, as JSON.

    Exit codes: 0, 1 if the module is not loaded or has no value at KEY.KEY..., 2 for wrong usage.
    """
    import json

    stats: Any = with_client(lambda client: _stats(client, name))
    for key in path.split(".") if path else ():
        if not isinstance(stats, dict) or key not in stats:
            raise CommandError(f"{path}: there is no {key!r} in the statistics of {name}")
        stats = stats[key]
    click.echo(json.dumps(stats, indent=2))


async def _stats(client: Client, name: str) -> dict[str, Any]:
    """Ask the service that has the module's name, or else the module's first service."""
    from flux_trio.messages import topics

    loaded = await _loaded(client)
    if name not in loaded:
        raise CommandError(f"module {name} is not loaded")
    services = loaded[name]["services"]
    if not services:
        raise CommandError(f"module {name} has no service to ask")
    service = name if name in services else services[0]
    return await client.call(f"{service}.{topics.STATS_METHOD}")


async def _loaded(client: Client) -> dict[str, dict[str, Any]]:
    """Return the loaded modules by name."""
    from flux_trio.messages import topics

    modules: list[dict[str, Any]] = (await client.call(topics.MODULE_LIST))["modules"]
    return {each["name"]: each for each in modules}


@module.command()
@click.option("-f", "--full", is_flag=True, help="Also print payloads, as JSON.")
@click.option(
    "-T", "--topic", metavar="GLOB", default="*", help="Print only messages whose topic matches."
)
@click.option(
    "-t",
    "--type",
    "types",
    metavar="TYPE,...",
    default=",".join(_TYPES),
    help="Print only messages of these types: request, response, event.",
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
def trace(names: tuple[str, ...], full: bool, topic: str, types: str) -> None:
    """Print the messages that modules send and receive, until interrupted.

    Without NAME, the messages of all modules. Each line has the time, the module, tx or rx, the
    type (> request, < response, e event), the topic and the size of the payload. A named module may
    be loaded later.

    Exit codes: 1 if the instance does not answer, 2 for wrong usage. Ctrl-C ends the command.
    """
    chosen = set(types.split(","))
    if unknown := chosen.difference(_TYPES):
        raise CommandError(f"--type: expected {', '.join(_TYPES)}, got {unknown.pop()!r}")
    with_client(lambda client: _trace(client, names, full, topic, chosen))


async def _trace(
    client: Client, names: tuple[str, ...], full: bool, topic: str, types: set[str]
) -> None:
    from flux_trio.cli.admin.trace_lines import trace_line
    from flux_trio.messages import topics

    wanted = {"names": list(names), "topic_glob": topic, "full": full}
    width = max(map(len, names), default=0)
    async with client.stream(topics.MODULE_TRACE, wanted) as responses:
        async for response in responses:
            if "lost" in response or response["type"] in types:
                click.echo(trace_line(response, width))


def _change(topic: str, payload: dict[str, Any]) -> None:
    tell_abandoned(with_client(lambda client: client.call(topic, payload)))
