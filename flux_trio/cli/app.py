"""The `flux-trio` command: the names of its commands, each imported on its first use."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import click

from flux_trio._version import __version__
from flux_trio.cli.terminal.examples import Group
from flux_trio.process.collector import IMPORTING, collecting_at
from flux_trio.process.console import UTF8_MODE, fill_standard_descriptors
from flux_trio.process.groups import holds

HEADINGS: Final = {
    "An instance": {"start": "instance", "shell": "instance", "demo": "instance"},
    "Jobs": {
        "submit": "submit",
        "bulksubmit": "submit",
        "run": "submit",
        "cancel": "jobs",
        "update": "jobs",
        "jobs": "jobs",
        "job": "jobs",
        "watch": "follow",
        "top": "jobs",
    },
    "Queues and nodes": {"queue": "admin", "resource": "admin", "housekeeping": "admin"},
    "Plugins and policies": {"jobtap": "admin", "simulate": "lab"},
    "Judging and faults": {
        "check": "judge",
        "view": "judge",
        "exercise": "lab",
        "fuzz": "lab",
        "replay": "lab",
    },
    "Administration": {
        "config": "admin",
        "module": "admin",
        "dmesg": "admin",
        "stats": "admin",
        "token": "admin",
        "fsck": "admin",
        "backup": "admin",
        "restore": "admin",
    },
    "A live flux-core": {"attach": "attach"},
    "Help": {"help": "terminal", "completion": "terminal"},
}
"""The commands of each kind of reader, in the order of a new user, and the folder of each."""

COMMANDS: Final = {name: folder for names in HEADINGS.values() for name, folder in names.items()}


class LazyGroup(Group):
    """A group that imports a command when it is used.

    The command NAME is the attribute NAME of the module `flux_trio.cli.FOLDER.NAME`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order in which a new user needs them."""
        return list(COMMANDS)

    def headings(self, ctx: click.Context) -> dict[str, list[str]]:  # noqa: ARG002
        """Return the names of the commands, by kind of reader."""
        return {heading: list(names) for heading, names in HEADINGS.items()}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"flux_trio.cli.{COMMANDS[cmd_name]}.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return a command and its words; an unknown name gets those that it is like."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, None, COMMANDS, ctx) from None

    def main(self, args: Any = None, *more: Any, **kwargs: Any) -> Any:
        """Read the arguments, by default those of this process, and run the command."""
        if args is None:
            _begin_again_in_utf8()
        try:
            with collecting_at(IMPORTING):
                return super().main(args, *more, **kwargs)
        finally:
            _drop_what_cannot_be_written()

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options; `--help` and `--version` write their output here."""
        _open_closed_streams()
        _escape_what_cannot_be_shown()
        with _errors_shown(), _output_refused():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; ctrl-C ends this process by SIGINT, so that a shell's loop ends too.

        Below Trio a KeyboardInterrupt is in a group.
        """
        try:
            with _errors_shown(), _output_refused():
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
        except (KeyboardInterrupt, BaseExceptionGroup) as error:
            if not holds(error, KeyboardInterrupt):
                raise
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _errors_shown() -> Iterator[None]:
    """Write errors here: an error that cannot be written has its exit code all the same."""
    try:
        yield
    except click.ClickException as error:
        with suppress(OSError):
            _show(error)
        raise click.exceptions.Exit(error.exit_code) from None


def _show(error: click.ClickException) -> None:
    """Write wrong usage in a line, as other errors are written; it names the help to look into."""
    if isinstance(error, click.UsageError) and not isinstance(
        error, click.exceptions.NoArgsIsHelpError
    ):
        command = error.ctx.command_path if error.ctx is not None else "flux-trio"
        click.echo(f"{command}: ERROR: {error.format_message()} (see {command} --help)", err=True)
    else:
        error.show()


@contextmanager
def _output_refused() -> Iterator[None]:
    """Report output that cannot be written as an error of one line.

    If the reader is gone (EPIPE), click ends the command silently.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from flux_trio.cli.terminal.errors import CommandError

        if error.errno == errno.ENOENT and error.filename is None:  # only getcwd(2) says this
            raise CommandError("the current directory is gone: change to another") from None
        raise CommandError(f"{error.filename or 'standard output'}: {error.strerror}") from None


def _begin_again_in_utf8() -> None:
    """Run this process in UTF-8 mode if its locale has another encoding.

    The words of a job's command and its variables travel as UTF-8, and the files that we read are
    UTF-8, in each locale. Python's own mode for this can only be chosen before it starts.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, *UTF8_MODE, *sys.orig_argv[1:]])


def _drop_what_cannot_be_written() -> None:
    """Let text that a full disk has refused go nowhere: Python would try again, and exit by 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the shell closed (`<&-`, `>&-`)."""
    fill_standard_descriptors()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _escape_what_cannot_be_shown() -> None:
    """Let standard output show a character that its encoding lacks by its number.

    Standard error does so already.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flux-trio")
def main() -> None:
    """Run a Flux instance, submit jobs to it, and inspect them.

    Commands connect to the instance that FLUX_TRIO_URI and FLUX_TRIO_TOKEN name, else to the
    instance whose state directory is FLUX_TRIO_STATEDIR, else to the one that `flux-trio start`
    runs by default.
    """
