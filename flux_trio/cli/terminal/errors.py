"""Errors of commands: one line on standard error, exit code 1."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import click


class CommandError(click.ClickException):
    """The command cannot do what the user asked; `message` says why.

    Wrong usage (an unknown option, a missing argument) is click's own error, exit code 2.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.command = command_name()

    def show(self, file: IO[Any] | None = None) -> None:
        """Write `flux-trio submit: ERROR: message`."""
        from flux_trio.formats import printable

        message = printable(self.message, keep="\n").replace("\n", "\n  ")
        click.echo(f"{self.command}: ERROR: {message}", file=file, err=file is None)


class Unusable(CommandError):
    """What the command was given cannot be used: a file, a plan, a line, an instance to join."""

    exit_code = 2


def complain(message: str) -> None:
    """Write an error of a command that goes on; ignore that standard error cannot be written."""
    with suppress(OSError):
        CommandError(message).show()


def remark(message: str) -> None:
    """Write a line that is not an error; ignore that standard error cannot be written."""
    from flux_trio.formats import printable

    with suppress(OSError):
        click.echo(f"{command_name()}: {printable(message)}", err=True)


def tell_abandoned(answer: dict[str, Any]) -> None:
    """Write a line for each task of a plugin that goes on though its plugin was removed."""
    for name in answer.get("abandoned", ()):
        remark(f"{name} goes on, and was abandoned")


def write_text(path: Path, text: str, error: type[CommandError] = CommandError) -> None:
    """Write a file that the user has named, in UTF-8. Raises `error`."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as raised:
        raise error(f"{path}: {raised.strerror}") from None


def print_text(text: str, error: type[CommandError] = CommandError) -> None:
    """Print lines on standard output. Raises `error`; nothing else is printed there then."""
    if getattr(sys.stdout, "name", None) == os.devnull:  # in place of the one that was closed
        raise error("standard output: it is closed")
    try:
        click.echo(text)
    except OSError as raised:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is still buffered goes there
        os.close(nowhere)
        raise error(f"standard output: {raised.strerror}") from None


def command_name() -> str:
    """Return the running command as it was typed: `flux-trio job attach`."""
    context = click.get_current_context(silent=True)
    return context.command_path if context is not None else "flux-trio"
