"""The prompt of `flux-trio replay --step`: reads commands from a terminal or a pipe."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, BinaryIO, Final, Protocol

import click

from flux_trio.cli.lab.replay_commands import (
    COMMANDS,
    QUIT,
    Command,
    Next,
    Refused,
    Shown,
    Unfit,
    print_rest,
    show_state,
)
from flux_trio.cli.lab.replaying import UNREADABLE, Ended, HandReplay
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.lab.stories.by_hand import NeverReached, Stopped

if TYPE_CHECKING:
    from flux_trio.lab import Outcome

PUT_RIGHT: Final = "--- from here on everything is put right"


class WrongLine(CommandError):
    """A line of a pipe is no command that can be obeyed."""

    exit_code = UNREADABLE


# --- where commands come from


class Source(Protocol):
    """Where commands come from."""

    is_used: bool
    """Whether a command has come."""

    def read(self) -> str | None:
        """Return the next command; None if there is none any more."""

    def refuse(self, text: str) -> None:
        """Say that the last command cannot be obeyed."""


class Terminal:
    """Commands that somebody types; a wrong one is told, and the next one is asked for."""

    is_used = True

    def read(self) -> str:
        """Return the next command; ctrl-D ends the replay, as `q`, and ctrl-C the process."""
        while True:
            click.echo(">", nl=False)
            try:
                # the blank is of the prompt that readline knows, and writes again with the line
                return input(" ").strip()
            except EOFError:
                click.echo()
                return QUIT
            except UnicodeError:
                self.refuse("expected a command as UTF-8 text, got other bytes")

    def refuse(self, text: str) -> None:
        click.echo(text)


class Pipe:
    """Commands of a script, one a line; a wrong one ends the replay."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self._nlines = 0
        self.is_used = False

    def read(self) -> str | None:
        self._nlines += 1
        try:
            line = self._lines.readline()
        except UnicodeError:
            self.refuse("expected a command as UTF-8 text, got other bytes")
        except OSError:  # standard input cannot be read, as below nohup
            line = ""
        if not line:
            return None
        self.is_used = True
        click.echo(f"> {line.strip()}")
        return line.strip()

    def refuse(self, text: str) -> None:
        """Raise WrongLine."""
        raise WrongLine(f"line {self._nlines}: {text}")


def source_of_commands(trace: BinaryIO | None = None) -> Source | None:
    """Return the terminal, if the output is shown there, or the pipe that standard input is.

    If the trace comes from standard input (`/dev/stdin`), there are no commands there.
    """
    if sys.stdin is None or (trace is not None and _is_stdin(trace)):
        return None
    if not sys.stdin.isatty():
        return Pipe(sys.stdin)
    return Terminal() if sys.stdout.isatty() else None


def _is_stdin(file: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(file.fileno(), sys.stdin.fileno())
    except OSError:  # one of them has no descriptor, as in tests
        return False


# --- the prompt


class Prompt:
    """Reads commands and obeys them; see `Table`."""

    def __init__(self, source: Source) -> None:
        self.held: list[Stopped] = []
        self.stopped: Stopped | None = None
        self._source = source
        self._is_asking = True  # there may be further commands
        self._game: Shown | None = None
        self._hand: HandReplay | None = None
        self._why_not = "expected a world, got a recorded trace: what has happened is not changed"

    @property
    def game(self) -> Shown:
        """What is looked at."""
        assert self._game is not None
        return self._game

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that can be obeyed now."""
        return tuple(each for each in COMMANDS if self._hand is not None or each.only_looks)

    @property
    def hand(self) -> HandReplay:
        """The world that is played by hand."""
        assert self._hand is not None
        return self._hand

    def goes_on(self, game: Shown) -> bool:
        """Ask after a turn what to do; return whether to go on. A world by hand always does."""
        return self._hand is not None or self._ask(game) is not Next.QUIT

    def play(self, hand: HandReplay) -> Outcome | None:
        """Play a world by hand; then put everything right, play to the end, and return the outcome.

        Returns None if the replay was ended before.
        """
        self._hand = hand
        try:
            if self._play_by_hand(hand) is Next.QUIT:
                return None
            self._hand = None
            self._why_not = "expected a world by hand, got one in which everything is put right"
            if self._source.is_used:
                click.echo(PUT_RIGHT)
            return hand.outcome()
        except Ended:
            return None

    def _play_by_hand(self, hand: HandReplay) -> Next:
        """Play turn by turn, until somebody wants to go on from rest, to the end, or not at all."""
        while (following := self._ask(hand.replay)) is Next.STEP and not hand.is_at_rest:
            try:
                if not hand.step():
                    print_rest(self)
            except NeverReached as error:
                self._source.refuse(str(error))
        return following

    def _ask(self, game: Shown) -> Next:
        """Obey commands until one says how to go on."""
        self._game = game
        while self._is_asking and (line := self._source.read()) is not None:
            try:
                following = self._obey(line)
            except (Refused, ValueError) as error:
                if hasattr(error, "__notes__"):  # a property of the user has raised it
                    raise
                self._source.refuse(str(error))
                continue
            if following is not Next.ASK:
                self._is_asking = following is not Next.END
                return following
        self._is_asking = False
        return Next.END

    def _obey(self, line: str) -> Next:
        words = line.split()
        if not words:
            return Next.STEP
        if words[0] in self.game.states and not words[1:]:
            show_state(self.game, words[0])
            return Next.ASK
        for command in COMMANDS:
            name = command.name.split()
            if words[: len(name)] == name:
                if self._hand is None and not command.only_looks:
                    raise Refused(self._why_not)
                try:
                    return command.do(self, words[len(name) :])
                except Unfit:
                    raise Refused(f"expected {command.usage}, got {line}") from None
        modules = ", ".join(self.game.states)
        raise Refused(f"expected one of {modules}, or a command, see help: got {line}")
