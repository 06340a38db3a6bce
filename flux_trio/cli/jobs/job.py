"""`flux-trio job`: one job. The commands that only read are here; the others are in `job_*`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.jobs import job_control, job_end, job_explain, job_purge, job_taskmap
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Group
from flux_trio.cli.terminal.params import DURATION, LABEL_IO, UNBUFFERED, color_option

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.group(cls=Group)
def job() -> None:
    """Inspect one job: its id, data, events and output; signal it, wait for it."""


for _command in (
    *job_control.COMMANDS,
    *job_end.COMMANDS,
    job_explain.explain,
    job_purge.purge,
    job_taskmap.taskmap,
):
    job.add_command(_command)


@job.command("id")
@click.option(
    "--to",
    "form",
    type=click.Choice(["dec", "hex", "kvs", "dothex", "words", "f58", "f58plain"]),
    default="dec",
    show_default=True,
    help="The form to print.",
)
@click.argument("jobids", metavar="[JOBID]...", nargs=-1)
def job_id(form: Any, jobids: tuple[str, ...]) -> None:
    """Convert job ids from any form to one form; without JOBID, read them from standard input.

    Exit codes: 0, 1 if an argument is not a job id, 2 for wrong usage.
    """
    from flux_trio.formats import format_fluid
    from flux_trio.process.console import id_form

    form = id_form() if form == "f58" else form
    texts = jobids or (line for line in sys.stdin if line.strip())
    for text in texts:
        click.echo(format_fluid(JOBID.convert(text, None, None), form))


@job.command()
@click.option("-b", "--base", is_flag=True, help="Print jobspec and R without later updates.")
@click.option(
    "-o", "--original", is_flag=True, help="Print the jobspec as submitted; the same as --base."
)
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("key")
def info(base: bool, original: bool, jobid: int, key: str) -> None:
    """Print what the instance stores of a job under KEY: jobspec, R, eventlog, guest.output.

    Exit codes: 0, 1 if there is no such job or key, 2 for wrong usage.
    """
    from flux_trio.cli.connection.call_each import about
    from flux_trio.messages import topics

    async def show(client: Client) -> None:
        if key in _LONG:
            async with _open_log(client, jobid, key, follow=False) as responses:
                async for response in responses:
                    click.echo(_for_reader(response["event"]))
            click.echo()
            return
        payload = {"id": jobid, "keys": [key], "current": not (base or original)}
        with about(jobid):
            click.echo(_for_reader((await client.call(topics.INFO_LOOKUP, payload))[key]))

    with_client(show)


_LONG: Final = ("eventlog", "guest.exec.eventlog", "guest.output")  # may exceed one response


def _for_reader(value: str) -> str:
    """Return JSON text without control characters if it goes to a terminal, else unchanged."""
    from flux_trio.formats import printable_json

    return printable_json(value) if sys.stdout.isatty() else value


_FORMAT = click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print events.",
)
_TIMES = click.option(
    "-T",
    "--time-format",
    "times",
    type=click.Choice(["raw", "iso", "offset", "human"]),
    default="raw",
    show_default=True,
    help="How to print times.",
)
_HUMAN = click.option("-H", "--human", is_flag=True, help="The same as -T human.")
_PATH = click.option(
    "-p",
    "--path",
    default="eventlog",
    show_default=True,
    metavar="PATH",
    help="The eventlog to read: eventlog, exec, output, guest.exec.eventlog.",
)


@job.command()
@_FORMAT
@_TIMES
@_HUMAN
@color_option("-L")
@click.option("-F", "--follow", is_flag=True, help="Print new events until the job is over.")
@_PATH
@click.argument("jobid", metavar="JOBID", type=JOBID)
def eventlog(
    *, form: str, times: str, human: bool, color: bool, follow: bool, path: str, jobid: int
) -> None:
    """Print the events of a job: timestamp, name, and the context as key=value.

    Exit codes: 0, 1 if there is no such job, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.events import EventTexts, log_path

    texts = EventTexts(form, "human" if human else times, color=color)

    async def show(client: Client) -> None:
        async with _open_log(client, jobid, log_path(path), follow=follow) as responses:
            async for response in responses:
                click.echo(texts.text(response["event"]), color=color)

    with_client(show)


@asynccontextmanager
async def _open_log(
    client: Client, jobid: int, path: str, *, follow: bool = True
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """As `watch_eventlog`; its errors name the job."""
    from flux_trio.cli.connection.call_each import about
    from flux_trio.client.jobs import watch_eventlog

    with about(jobid):
        async with watch_eventlog(client, jobid, path, follow=follow) as responses:
            yield responses


@job.command("wait-event")
@_FORMAT
@_TIMES
@_HUMAN
@color_option("-L")
@click.option("-t", "--timeout", type=DURATION, metavar="FSD", help="Give up after this time.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print the event.")
@click.option("-v", "--verbose", is_flag=True, help="Also print the events before it.")
@click.option(
    "-m",
    "--match-context",
    metavar="KEY=VAL",
    help="Wait for an event with this value in its context.",
)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Wait until the event has happened N times. [default: 1]",
)
@click.option(
    "-W",
    "--waitcreate",
    is_flag=True,
    expose_value=False,
    help="Wait for the eventlog; this is always on.",
)
@_PATH
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("name", metavar="EVENT")
def wait_event(
    *,
    form: str,
    times: str,
    human: bool,
    color: bool,
    timeout: float | None,
    quiet: bool,
    verbose: bool,
    match_context: str | None,
    count: int,
    path: str,
    jobid: int,
    name: str,
) -> None:
    """Wait until EVENT is in a job's eventlog, and print it.

    Exit codes: 0, 1 if the time is up, the job ended without the event, or there is no such job, 2
    for wrong usage.
    """
    from flux_trio.cli.terminal.events import EventTexts, log_path, matches, read_match
    from flux_trio.formats import parse_event

    try:
        match = None if match_context is None else read_match(match_context)
    except ValueError as error:
        raise CommandError(str(error)) from None
    texts = EventTexts(form, "human" if human else times, color=color)

    async def find(client: Client) -> None:
        left = count
        async with _open_log(client, jobid, log_path(path)) as responses:
            async for response in responses:
                line = response["event"]
                text = texts.text(line)
                left -= matches(parse_event(line), name, match)
                if (left == 0 and not quiet) or verbose:
                    click.echo(text, color=color)
                if left == 0:
                    return
        raise CommandError(f"event '{name}' never received")

    async def wait(client: Client) -> None:
        import anyio

        try:
            with anyio.fail_after(timeout):
                await find(client)
        except TimeoutError:
            raise CommandError(f"wait-event timeout on event '{name}'") from None

    with_client(wait)


@job.command()
@LABEL_IO
@click.option("-E", "--show-events", is_flag=True, help="Print every event on standard error.")
@click.option("-w", "--wait-event", metavar="NAME", help="End when the job has had this event.")
@UNBUFFERED
@click.option("-r", "--read-only", is_flag=True, help="Forward no signals and no input to the job.")
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.pass_context
def attach(
    ctx: click.Context,
    *,
    label_io: bool,
    show_events: bool,
    wait_event: str | None,
    read_only: bool,
    jobid: int,
) -> None:
    """Show the output of a job from its beginning, and end with its exit code.

    Exit codes, signals and standard input work as in `flux-trio run`.
    """
    from flux_trio.cli.connection.call_each import about
    from flux_trio.cli.follow.attach import attach as follow
    from flux_trio.cli.follow.standard_input import input_to_forward

    stdin = None if read_only else input_to_forward()

    async def follow_job(client: Client) -> int:
        with about(jobid):
            return await follow(
                client,
                jobid,
                label=label_io,
                show_events=show_events,
                until=wait_event,
                read_only=read_only,
                stdin=stdin,
            )

    ctx.exit(with_client(follow_job))
