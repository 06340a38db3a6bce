"""The options of `submit`, `run` and `bulksubmit`, in the order in which they were given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import LABEL_IO, UNBUFFERED

if TYPE_CHECKING:
    from flux_trio.cli.submit.submission import Submission
    from flux_trio.client import Job
    from flux_trio.formats import Jobspec

F = TypeVar("F", bound=Callable[..., Any])
Options = tuple[Callable[[F], F], ...]

_ORDER: Final = "flux_trio.order"  # key in the context's meta: the options in the given order
_RULES: Final = {
    "env": "",
    "env_remove": "-",
    "env_file": "^",
}  # prefix that makes an --env rule of each


class SubmitCommand(Command):
    """A command in which the first word that is not an option begins the job's command.

    It remembers the order of its options, because the order of --env, --env-remove and --env-file
    matters.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, and note the order of the options."""
        given = list(args)
        left = super().parse_args(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(args=given)
        ctx.meta[_ORDER] = [param.name for param in order]
        return left


def _text(*names: str, metavar: str, help: str) -> Callable[[F], F]:  # noqa: A002 - click's name
    return click.option(*names, metavar=metavar, help=help)


def _texts(*names: str, metavar: str, help: str) -> Callable[[F], F]:  # noqa: A002 - click's name
    return click.option(*names, metavar=metavar, help=help, multiple=True)


_SIZE: Final[Options[Any]] = (
    _text("-N", "--nodes", metavar="N", help="Nodes. Without -n: whole nodes, one task on each."),
    click.option("-x", "--exclusive", is_flag=True, help="With -N, allocate whole nodes."),
    _text(
        "-n", "--ntasks", metavar="N", help="Tasks to start. [default: 1, or one per node with -N]"
    ),
    _text("-c", "--cores-per-task", metavar="N", help="Cores for each task. [default: 1]"),
    _text("-g", "--gpus-per-task", metavar="N", help="GPUs for each task. [default: 0]"),
    _text("--cores", metavar="N", help="Total cores; not with -n, -c or -g."),
    _text("--tasks-per-node", metavar="N", help="Tasks on each node; not with -n, -c or -g."),
    _text("--tasks-per-core", metavar="N", help="Tasks on each core; not with -n, -c or -g."),
    _text("--gpus-per-node", metavar="N", help="With -N, GPUs of each node."),
)
_JOB: Final[Options[Any]] = (
    _text(
        "-t",
        "--time-limit",
        metavar="MIN|FSD",
        help="Time limit, in minutes or with a unit: 30s, 1.5h, 2d. 0 is none, or the default of "
        "the queue.",
    ),
    click.option(
        "--urgency",
        default="default",
        metavar="N",
        help="0 to 31, hold (0), default (16) or expedite (31).",
    ),
    _text("--job-name", metavar="NAME", help="Name. [default: that of the command]"),
    click.option("-q", "--queue", metavar="NAME", help="Queue.", shell_complete=completing.queue),
    _text("-B", "--bank", metavar="NAME", help="Bank, for accounting."),
    _texts(
        "--requires",
        metavar="QUERY",
        help="Constrain the nodes (RFC 35): properties, host:LIST, rank:IDS, and, or, not.",
    ),
    _texts(
        "--dependency",
        metavar="URI",
        help="Wait for a dependency (RFC 26): afterok:JOBID, afterany:JOBID, singleton, ...",
    ),
    _texts(
        "--begin-time",
        metavar="+FSD|TIME",
        help="Start no earlier than TIME: +1h, 15:30, 2026-11-21T15:30, tomorrow morning.",
    ),
    _texts("-o", "--setopt", metavar="KEY[=VAL]", help="Set a shell option of the job."),
    _texts(
        "-S",
        "--setattr",
        metavar="KEY[=VAL]",
        help="Set an attribute; the key is below `system` unless it begins with `user.` or a dot. "
        "^KEY=FILE takes the JSON in a file.",
    ),
    _texts(
        "--env",
        metavar="RULE",
        help="Change the job's environment: NAME=VALUE sets, -PATTERN removes, PATTERN keeps, "
        "^FILE reads rules.",
    ),
    _texts("--env-remove", metavar="PATTERN", help="Remove variables from the job's environment."),
    _texts("--env-file", metavar="FILE", help="Read rules for the environment from a file."),
    _text("--input", metavar="FILE", help="Standard input of the tasks. [default: no file]"),
    _text(
        "--output",
        metavar="FILE",
        help="Write standard output to FILE, relative to the job's directory. {{id}}, {{name}}, "
        "{{task.id}}, {{node.name}} and so on in FILE are replaced.",
    ),
    _text("--error", metavar="FILE", help="Write standard error to FILE. [default: as --output]"),
    _text("--cwd", metavar="DIR", help="Working directory. [default: this one]"),
    _text(
        "--signal",
        metavar="[SIG][@TIME]",
        help="Send SIG (USR1) to the job TIME (60s) before its time limit: USR2@5m, @90s, TERM.",
    ),
    _text(
        "--taskmap",
        metavar="SCHEME[:VALUE]",
        help="Distribute the tasks over the nodes: cyclic, cyclic:2, manual:TASKMAP (RFC 34). "
        "[default: in blocks]",
    ),
    _texts(
        "--rlimit",
        metavar="RULE,...",
        help="Which resource limits of this process the tasks get: -PATTERN removes, PATTERN adds, "
        "NAME=VALUE sets. [default: all except memlock, ofile, msgqueue, nice, rtprio, rttime and "
        "sigpending]",
    ),
    _texts("--flags", metavar="FLAG,...", help="Flags of the job: debug, waitable or novalidate."),
    click.option("--debug", is_flag=True, help="The same as --flags=debug."),
    click.option("--dry-run", is_flag=True, help="Print the jobspec without submitting it."),
    click.option("--quiet", is_flag=True, help="Do not print job ids."),
    click.option(
        "-v", "--verbose", count=True, help="Print more on standard error; -vv prints all."
    ),
    LABEL_IO,
    UNBUFFERED,
)
# Any words; a shell completes them with file names.
_WORDS: Final = click.Path(readable=False)
_COMMAND: Final[Options[Any]] = (click.argument("command", nargs=-1, type=_WORDS),)
_FILE: Final[Options[Any]] = (
    click.option(
        "--jobspec",
        "jobspec_file",
        metavar="FILE",
        help="Submit the RFC 25 jobspec (JSON) in FILE instead of a command; - is standard input.",
    ),
)
_BULK: Final[Options[Any]] = (
    _text(
        "--cc", metavar="IDSET", help="Submit a copy of the job for each id; FLUX_JOB_CC is its id."
    ),
    _text("--bcc", metavar="IDSET", help="As --cc, but FLUX_JOB_CC is not set."),
    click.option("--wait", is_flag=True, help="Wait until all jobs are over."),
    _text("--wait-event", metavar="NAME", help="Wait until all jobs have had an event."),
    click.option("--watch", is_flag=True, help="Show the output of all jobs, and wait for them."),
    click.option("--progress", is_flag=True, help="Show a progress bar on a terminal."),
    click.option("--jps", is_flag=True, help="With --progress, show jobs per second."),
    _text("--log", metavar="FILE", help="Write ids, output and errors to FILE."),
    _text("--log-stderr", metavar="FILE", help="Write errors to FILE."),
)


def run_options(function: F) -> F:
    """Add the options of a job that runs in the foreground."""
    return _add(function, (*_SIZE, *_JOB, *_FILE, *_COMMAND))


def submit_options(function: F) -> F:
    """Add the options of a job, or of copies of it."""
    return _add(function, (*_SIZE, *_JOB, *_BULK, *_FILE, *_COMMAND))


def bulksubmit_options(function: F) -> F:
    """Add the options of many jobs."""
    return _add(function, (*_SIZE, *_JOB, *_BULK, *_COMMAND))


def _add(function: F, options: Options[Any]) -> F:
    for add in reversed(options):
        function = add(function)
    return function


def read_submission(options: dict[str, Any]) -> Submission:
    """Build the submission from the options of the running command.

    Removes its options from `options`; the others stay, and `label_io`, which is an option of both.
    """
    from dataclasses import fields

    from flux_trio.cli.submit.submission import Submission

    rules = {name: list(options.pop(name)) for name in _RULES}
    order = click.get_current_context().meta[_ORDER]
    env = tuple(_RULES[name] + rules[name].pop(0) for name in order if name in rules)
    names = {field.name for field in fields(Submission)} & set(options) - {"label_io"}
    of_job = {name: options.pop(name) for name in names}
    return Submission(env=env, label_io=options.get("label_io", False), **of_job)


def tell_ignored(submission: Submission) -> None:
    """Write a line that names the shell options which have no effect here, if there are any."""
    if names := submission.ignored_options():
        remark(f"ignored, since they have no effect here: shell options {', '.join(names)}")


async def tell_default(job: Job) -> None:
    """Write a line if a default has replaced the `--time-limit` of 0 of a new job.

    What the job has got says so, wherever defaults are filled in: in the jobspec that is stored,
    or by an event before the job is validated. The queues' table is the instance's (33.tools.1).
    """
    from flux_trio.cli.terminal.columns import short_duration
    from flux_trio.protocols import JobEvent

    updates: dict[str, Any] = {}
    async with aclosing(job.events()) as events:
        async for event in events:
            if event.name == JobEvent.JOBSPEC_UPDATE:
                updates |= event.context or {}
            elif event.name == JobEvent.VALIDATE:
                break
    found = await job.info()
    queue = updates.get("attributes.system.queue", found.get("queue"))
    if default := updates.get("attributes.system.duration", found.get("duration")):
        where = f" of queue {queue}" if queue else ""
        text = f"--time-limit: 0 is no limit of its own: the default{where} applies, "
        remark(text + short_duration(default))


def read_jobspec_file(submission: Submission, path: str) -> Jobspec:
    """Return the jobspec in a file. Raises CommandError."""
    from flux_trio.cli.submit.submission import read_jobspec

    if submission.command:
        raise CommandError("expected --jobspec or a command, got both")
    try:
        with click.open_file(path, "rb") as file:
            return read_jobspec(bytes(file.read()), "jobspec" if path == "-" else path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None


def make_jobspec(submission: Submission, path: str | None = None) -> Jobspec:
    """Return the jobspec of a submission, or that in the file at `path`. Raises CommandError."""
    import os
    import time

    from flux_trio.cli.submit.resource_limits import current_limits

    try:
        submission.flag_mask()
        submission.urgency_number()
        if path is not None:
            return read_jobspec_file(submission, path)
        # the current directory may be gone
        cwd, limits = submission.cwd or str(Path.cwd()), current_limits()
        return submission.to_jobspec(os.environ, cwd, time.time(), limits)
    except ValueError as error:
        raise CommandError(str(error)) from None


def with_input(jobspec: Jobspec) -> Jobspec:
    """Return the jobspec with input from commands (`service`), unless it sets an input."""
    from flux_trio.formats import Jobspec, apply_update

    place = "system.shell.options.input.stdin"
    if jobspec.attribute(place) is not None:
        return jobspec
    service = {"type": "service"}
    return Jobspec.parse(apply_update(jobspec.to_json(), f"attributes.{place}", service))


def print_jobspec(jobspec: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(jobspec))
