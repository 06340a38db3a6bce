"""The options that `submit` and `run` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flux_trio.cli.errors import CommandError
from flux_trio.cli.params import BEGIN_TIME, TIME_LIMIT, URGENCY

if TYPE_CHECKING:
    from flux_trio.cli.submission import Submission
    from flux_trio.formats import Jobspec

F = TypeVar("F", bound=Callable[..., Any])

_COUNT: Final = click.IntRange(min=1)
_OPTIONS: Final = (
    click.option(
        "-n",
        "--ntasks",
        type=_COUNT,
        metavar="N",
        help="Tasks to start, 1 unless -N says otherwise.",
    ),
    click.option(
        "-c",
        "--cores-per-task",
        type=_COUNT,
        metavar="N",
        default=1,
        show_default=True,
        help="Cores for each task.",
    ),
    click.option(
        "-g",
        "--gpus-per-task",
        type=click.IntRange(min=0),
        metavar="N",
        default=0,
        show_default=True,
        help="GPUs for each task.",
    ),
    click.option(
        "-N",
        "--nodes",
        type=_COUNT,
        metavar="N",
        help="Nodes to spread the tasks over. Without -n: one task on each, nodes exclusively.",
    ),
    click.option("-x", "--exclusive", is_flag=True, help="With -N, whole nodes."),
    click.option(
        "-t",
        "--time-limit",
        type=TIME_LIMIT,
        metavar="MIN|FSD",
        help="Time limit, in minutes or with a unit: 30s, 1.5h, 2d.",
    ),
    click.option(
        "--urgency",
        type=URGENCY,
        default="default",
        metavar="N",
        help="0 to 31, hold (0), default (16) or expedite (31).",
    ),
    click.option(
        "--requires",
        multiple=True,
        metavar="QUERY",
        help="Constrain the nodes (RFC 35): properties, host:LIST, rank:IDS, and, or, not.",
    ),
    click.option(
        "--dependency",
        multiple=True,
        metavar="URI",
        help="Wait for something (RFC 26): afterok:JOBID, afterany:JOBID, singleton, ...",
    ),
    click.option(
        "--begin-time",
        type=BEGIN_TIME,
        metavar="+FSD|TIME",
        help="Wait at least until then: +1h, 15:30, 2026-11-21T15:30.",
    ),
    click.option(
        "--setattr",
        multiple=True,
        metavar="KEY[=VAL]",
        help="Set an attribute; the key is below `system` unless it begins with `user.`.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="RULE",
        help="Change the job's environment: NAME=VALUE sets, -PATTERN leaves out, PATTERN keeps.",
    ),
    click.option("--cwd", metavar="DIR", help="Working directory. [default: this one]"),
    click.option("--job-name", metavar="NAME", help="Name. [default: that of the command]"),
    click.option(
        "--flags", multiple=True, metavar="FLAG,...", help="debug, waitable or novalidate."
    ),
    click.option("-q", "--queue", metavar="NAME", help="Queue."),
    click.option("--dry-run", is_flag=True, help="Print the jobspec, submit nothing."),
    click.option(
        "--jobspec",
        "jobspec_file",
        metavar="FILE",
        help="Submit the RFC 25 jobspec (JSON) in FILE, - is standard input, and no command.",
    ),
    click.argument("command", nargs=-1, type=click.UNPROCESSED),
)


def submit_options(function: F) -> F:
    """Give a command these options."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def prepare(
    *, dry_run: bool, jobspec_file: str | None, **options: Any
) -> tuple[Submission, Jobspec]:
    """What was asked for and its jobspec; with `dry_run` it is printed and the command ends.

    Raises CommandError for what does not make a jobspec.
    """
    import msgspec

    from flux_trio.cli.submission import Submission, read_jobspec

    submission = Submission(**options)
    try:
        submission.flag_mask()
        if jobspec_file is None:
            jobspec = submission.to_jobspec(os.environ, str(Path.cwd()))
        elif submission.command:
            raise CommandError("expected --jobspec or a command, got both")
        else:
            where = "jobspec" if jobspec_file == "-" else jobspec_file
            jobspec = read_jobspec(_read(jobspec_file), where)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if dry_run:
        click.echo(msgspec.json.encode(jobspec.to_json()))
        click.get_current_context().exit()
    return submission, jobspec


def _read(path: str) -> bytes:
    try:
        with click.open_file(path, "rb") as file:
            return bytes(file.read())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
