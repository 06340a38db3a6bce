"""`flux-trio job`: commands that act on jobs: raise, raiseall, kill, killall, urgency, memo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import SIGNAL, STATES, URGENCY, USER_OR_ALL

if TYPE_CHECKING:
    from flux_trio.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_NOTE: Final = "flux_trio.note"  # the words after `--`, in the context's meta


def _severity(default: int) -> Callable[[F], F]:
    return click.option(
        "-s",
        "--severity",
        type=click.IntRange(0, 7),
        default=default,
        show_default=True,
        metavar="N",
        help="The severity: 0 is fatal, 7 is the mildest.",
    )


_USER = click.option(
    "-u",
    "--user",
    type=USER_OR_ALL,
    metavar="USER",
    help="The owner of the jobs, or `all`. [default: you]",
)
_FORCE = click.option("-f", "--force", is_flag=True, help="Do it; without -f, only count.")
_SIGNAL = click.option(
    "-s",
    "--signal",
    type=SIGNAL,
    default="SIGTERM",
    metavar="SIG",
    help="The signal. [default: SIGTERM]",
)


class _NotedCommand(Command):
    """A command that takes the words after `--` as a note."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`; keep the others as the note."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_NOTE] = " ".join(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("raise", cls=_NotedCommand)
@click.option("-m", "--message", metavar="NOTE", help="The reason.")
@_severity(0)
@click.option(
    "-t", "--type", "kind", default="cancel", show_default=True, metavar="TYPE", help="The type."
)
@click.argument("words", metavar="JOBID... [NOTE]...", nargs=-1, required=True)
@click.pass_context
def raise_exception(
    ctx: click.Context, message: str | None, severity: int, kind: str, words: tuple[str, ...]
) -> None:
    """Raise an exception on jobs. The note begins at the first word that is not a job id, or at --.

    Exit codes: 0, 1 if it was refused for a job, 2 for wrong usage.
    """
    from flux_trio.cli.connection.call_each import call_each
    from flux_trio.messages import topics

    jobids, note = _split(words, ctx.meta.get(_NOTE))
    if note is not None and message is not None:
        raise CommandError("Do not set note on command line and with --message")
    payload = {"severity": severity, "type": kind, "note": message or note or ""}
    ctx.exit(with_client(lambda client: call_each(client, topics.JOB_RAISE, jobids, payload)))


def _split(words: tuple[str, ...], note: str | None) -> tuple[list[int], str | None]:
    """Return the job ids at the beginning, and the words after them as a note."""
    from flux_trio.formats import FormatError, parse_fluid

    jobids: list[int] = []
    for place, word in enumerate(words):
        try:
            jobids.append(parse_fluid(word))
        except FormatError as error:
            if not jobids:
                raise CommandError(f"JOBID: {error}") from None
            rest = " ".join([*words[place:], *([note] if note else [])])
            return jobids, rest
    return jobids, note


@click.command(cls=Command)
@_severity(7)
@_USER
@click.option(
    "-S",
    "--states",
    type=STATES,
    metavar="STATE,...",
    help="Only jobs in these states. [default: active]",
)
@_FORCE
@click.argument("kind", metavar="TYPE")
@click.argument("note", nargs=-1)
def raiseall(
    *,
    severity: int,
    user: int | None,
    states: int | None,
    force: bool,
    kind: str,
    note: tuple[str, ...],
) -> None:
    """Raise an exception of TYPE on all jobs of one user, or of all users.

    Exit codes: 0, 1 if it was refused, 2 for wrong usage.
    """
    payload = {"dry_run": not force, "severity": severity, "type": kind, "note": " ".join(note)}
    answer = with_client(lambda client: raise_on_all(client, states, user, payload))
    _report(answer, force, "Raised exception on {count} jobs ({errors} errors)")


@click.command(cls=Command)
@_SIGNAL
@click.argument("jobids", metavar="JOBID...", nargs=-1, required=True, type=JOBID)
@click.pass_context
def kill(ctx: click.Context, signal: int, jobids: tuple[int, ...]) -> None:
    """Send a signal to the processes of running jobs.

    Exit codes: 0, 1 if it was refused for a job, 2 for wrong usage.
    """
    from flux_trio.cli.connection.call_each import call_each
    from flux_trio.messages import topics

    payload = {"signum": signal}
    ctx.exit(with_client(lambda client: call_each(client, topics.JOB_KILL, jobids, payload)))


@click.command(cls=Command)
@_SIGNAL
@_USER
@_FORCE
def killall(signal: int, user: int | None, force: bool) -> None:
    """Send a signal to all running jobs of one user, or of all users.

    Exit codes: 0, 1 if it was refused, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    payload = {"dry_run": not force, "signum": signal}
    answer = with_client(lambda client: _ask_all(client, topics.JOB_KILLALL, user, payload))
    _report(answer, force, "Signaled {count} jobs ({errors} errors)")


async def raise_on_all(
    client: Client, states: int | None, user: int | None, payload: dict[str, Any]
) -> dict[str, Any]:
    """Raise an exception on the jobs in `states`, by default the active ones, of a user."""
    from flux_trio.messages import topics
    from flux_trio.protocols import ACTIVE

    mask = int(ACTIVE) if states is None else states
    return await _ask_all(client, topics.JOB_RAISEALL, user, {**payload, "states": mask})


async def _ask_all(
    client: Client, topic: str, user: int | None, payload: dict[str, Any]
) -> dict[str, Any]:
    """Ask for what `payload` says, about the jobs of `user`, or one's own for None."""
    from flux_trio.cli.connection.job_query import userid_or_own

    return await client.call(topic, payload | {"userid": await userid_or_own(client, user)})


def _report(answer: dict[str, Any], force: bool, done: str) -> None:
    if not answer["count"]:
        remark("Command matched 0 jobs")
    elif force:
        remark(done.format(**answer))
    else:
        remark(f"Command matched {answer['count']} jobs (-f to confirm)")


@click.command(cls=Command)
@click.option("-v", "--verbose", is_flag=True, help="Print the old urgency.")
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("urgency", metavar="N", type=URGENCY)
def urgency(verbose: bool, jobid: int, urgency: int) -> None:
    """Change the urgency of a pending job: 0 to 31, hold (0), default (16) or expedite (31).

    Exit codes: 0, 1 if it was refused, 2 for wrong usage.
    """
    from flux_trio.cli.connection.call_each import about
    from flux_trio.messages import topics

    async def change(client: Client) -> int:
        with about(jobid):
            payload = {"id": jobid, "urgency": urgency}
            return int((await client.call(topics.JOB_URGENCY, payload))["old_urgency"])

    old = with_client(change)
    if verbose:
        names = {0: "job held", 31: "job expedited"}
        click.echo(f"old urgency: {names.get(old, old)}", err=True)


@click.command(cls=Command)
@click.argument("jobid", metavar="JOBID", type=JOBID)
@click.argument("notes", metavar="KEY=VALUE...", nargs=-1, required=True)
def memo(jobid: int, notes: tuple[str, ...]) -> None:
    """Add notes to a job. VALUE is JSON, or else text; null removes a note, - is standard input.

    Notes are stored in the job's eventlog and listed as {user.KEY}. A key may contain dots.

    Exit codes: 0, 1 if it was refused, 2 for wrong usage.
    """
    from flux_trio.cli.connection.call_each import about
    from flux_trio.formats import apply_update
    from flux_trio.messages import topics

    content: dict[str, Any] = {}
    try:
        for note in notes:
            key, value = _read_note(note)
            content = apply_update(content, key, value)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def send(client: Client) -> None:
        with about(jobid):
            await client.call(topics.JOB_MEMO, {"id": jobid, "memo": content})

    with_client(send)


def _read_note(note: str) -> tuple[str, Any]:
    """Return a key and its value. Raises ValueError."""
    from flux_trio.cli.terminal.values import check_dotted_key, read_json_or_text
    from flux_trio.messages.values import UnfitError, check_object

    key, equals, text = note.partition("=")
    if not equals:
        raise ValueError(f"no value for key={key}")
    check_dotted_key(key, note)
    text = sys.stdin.read() if text == "-" else text
    value = read_json_or_text(key, text)
    try:
        check_object({key: value})
    except UnfitError:  # such as an integer of more than 64 bits
        return key, text
    return key, value


COMMANDS: Final = (raise_exception, raiseall, kill, killall, urgency, memo)
