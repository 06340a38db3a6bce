"""`flux-trio job`: one job, closely."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.errors import CommandError
from flux_trio.cli.params import DURATION, JOBID
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.group()
def job() -> None:
    """Look at one job: its id, data, events and output."""


@job.command("id")
@click.option(
    "--to",
    "form",
    type=click.Choice(["dec", "hex", "kvs", "dothex", "f58", "f58plain"]),
    default="dec",
    show_default=True,
    help="The form to print.",
)
@click.argument("jobids", metavar="[JOBID]...", nargs=-1)
def job_id(form: Any, jobids: tuple[str, ...]) -> None:
    """Convert job ids from any form to one; without JOBID those on standard input.

    Exit codes: 0, 1 if one is not a job id, 2 for wrong usage.
    """
    from flux_trio.formats import format_fluid

    texts = jobids or (line for line in sys.stdin if line.strip())
    for text in texts:
        click.echo(format_fluid(JOBID.convert(text, None, None), form))


@job.command()
@click.option("--base", is_flag=True, help="Print jobspec and R without later updates.")
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("key")
def info(base: bool, jobid: int, key: str) -> None:
    """Print what the instance keeps of a job under KEY: jobspec, R, eventlog, guest.output.

    Exit codes: 0, 1 if there is no such job or key, 2 for wrong usage.
    """
    click.echo(with_client(lambda client: _lookup(client, jobid, key, current=not base)))


async def _lookup(client: Client, jobid: int, key: str, *, current: bool = False) -> str:
    from flux_trio.messages import topics

    payload = {"id": jobid, "keys": [key], "current": current}
    with _about(jobid):
        return str((await client.call(topics.INFO_LOOKUP, payload))[key])


@contextmanager
def _about(jobid: int) -> Iterator[None]:
    """What the instance refuses inside is told with the job's id."""
    from flux_trio.formats import format_fluid
    from flux_trio.messages import FluxError

    try:
        yield
    except FluxError as error:
        raise CommandError(f"{format_fluid(jobid, 'f58')}: {error}") from None


_FORMAT = click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print events.",
)


@job.command()
@_FORMAT
@click.argument("jobid", metavar="JOBID", type=JOBID)
def eventlog(form: str, jobid: int) -> None:
    """Print the events of a job: timestamp, name, and the context as key=value.

    Exit codes: 0, 1 if there is no such job, 2 for wrong usage.
    """
    text = with_client(lambda client: _lookup(client, jobid, "eventlog"))
    for line in text.splitlines():
        _print_event(line, form)


def _print_event(line: str, form: str) -> None:
    from flux_trio.cli.events import event_text

    click.echo(line if form == "json" else event_text(line))


@job.command("wait-event")
@_FORMAT
@click.option("-t", "--timeout", type=DURATION, metavar="FSD", help="Give up after this time.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print the event.")
@click.option("-m", "--match-context", metavar="KEY=VAL", help="Wait for one with that value.")
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("name", metavar="EVENT")
def wait_event(
    form: str, timeout: float | None, quiet: bool, match_context: str | None, jobid: int, name: str
) -> None:
    """Wait until a job has had an event, and print it.

    Exit codes: 0, 1 if time is up, the job is over without the event, or there is no such job, 2
    for wrong usage.
    """
    from flux_trio.cli.events import read_match

    try:
        match = None if match_context is None else read_match(match_context)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def wait(client: Client) -> str:
        import anyio

        try:
            with _about(jobid), anyio.fail_after(timeout):
                return await _wait_event(client, jobid, name, match)
        except TimeoutError:
            raise CommandError(f"wait-event timeout on event '{name}'") from None

    line = with_client(wait)
    if not quiet:
        _print_event(line, form)


async def _wait_event(client: Client, jobid: int, name: str, match: tuple[str, str] | None) -> str:
    from flux_trio.cli.events import matches
    from flux_trio.formats import parse_event
    from flux_trio.messages import topics

    payload = {"id": jobid, "path": "eventlog"}
    async with client.stream(topics.INFO_WATCH, payload) as responses:
        async for response in responses:
            line = str(response["event"])
            if matches(parse_event(line), name, match):
                return line
    raise CommandError(f"event '{name}' never received")


@job.command()
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.pass_context
def attach(ctx: click.Context, jobid: int) -> None:
    """Show the output of a job from its beginning, and end as it does.

    Exit codes and signals are those of `flux-trio run`.
    """
    from flux_trio.cli.attach import attach as follow

    async def follow_job(client: Client) -> int:
        with _about(jobid):
            return await follow(client, jobid)

    ctx.exit(with_client(follow_job))
