"""The prompt of `flux-trio replay --step`: obeys commands, of a terminal or of a pipe.

Most commands interfere with a world that is played by hand. Those of `LOOKING` look and go on: they
are also for the turns of a trace, and for those after everything was put right.
"""

from __future__ import annotations

import cmd
import os
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import IO, TYPE_CHECKING, BinaryIO, Final, cast

import click

from flux_trio.cli.lab.replay_words import (
    LOOKING,
    USAGES,
    Refused,
    Unfit,
    no_more,
    one_module,
    read_message,
    read_nth,
    read_seconds,
    read_state,
    usage_of,
)
from flux_trio.cli.lab.replaying import Ended, HandReplay, Shown, on_their_way, show_state
from flux_trio.cli.terminal.errors import Unusable
from flux_trio.lab.stories.by_hand import AtTime, InState, Logged, NeverReached, Stopped, Until

if TYPE_CHECKING:
    from flux_trio.lab import Outcome

PUT_RIGHT: Final = "--- from here on everything is put right"
NOT_UTF8: Final = "expected a command as UTF-8 text, got other bytes"

_EOF: Final = "EOF"  # what `cmd` makes of the end of the commands


class Next(Enum):
    """What happens after a command that ends the asking."""

    STEP = "the next turn is played"
    END = "all is played to the end, without further commands"
    QUIT = "nothing more is played"


class Script:
    """The commands of a pipe, one a line."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self.nlines = 0

    def readline(self) -> str:
        """Return the next line, "" after the last one. Raises Unusable if it is not UTF-8."""
        self.nlines += 1
        try:
            return self._lines.readline()
        except UnicodeError:
            raise Unusable(f"line {self.nlines}: {NOT_UTF8}") from None
        except OSError:  # standard input cannot be read, as below nohup
            return ""


class Prompt(cmd.Cmd):
    """Reads commands and obeys them, those of a terminal or of `script`.

    A command `NAME WORDS` is the method `do_NAME(WORDS)`; it returns True to end the asking. On a
    terminal a wrong command is told, and the next one is asked for; a wrong one of a script ends
    the replay.
    """

    prompt = "> "
    identchars = f"{cmd.IDENTCHARS}-."  # of names of modules, too

    def __init__(self, script: Script | None = None) -> None:
        super().__init__(stdin=cast("IO[str]", script))
        self._script = script
        if script is not None:
            self.use_rawinput = False
            self.prompt = ""  # a command is shown when it was read
        self._is_used = False  # a command has come
        self._is_asking = True  # there may be further commands
        self._following = Next.END
        self._game: Shown | None = None
        self._hand: HandReplay | None = None
        self._held: list[Stopped] = []  # where the world has stopped at messages that are held
        self._stopped: Stopped | None = None  # where it has stopped last
        self._why_not = "expected a world, got a recorded trace: what has happened is not changed"

    @property
    def game(self) -> Shown:
        """What is looked at."""
        assert self._game is not None
        return self._game

    @property
    def hand(self) -> HandReplay:
        """The world that is played by hand; commands of LOOKING may have none."""
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
            if self._is_used:
                click.echo(PUT_RIGHT)
            return hand.outcome()
        except Ended:
            return None

    def _play_by_hand(self, hand: HandReplay) -> Next:
        """Play turn by turn, until somebody wants to go on from rest, to the end, or not at all."""
        while (following := self._ask(hand.replay)) is Next.STEP and not hand.is_at_rest:
            try:
                if not hand.step():
                    self._print_rest()
            except NeverReached as error:
                self._refuse(str(error))
        return following

    def _ask(self, game: Shown) -> Next:
        """Obey commands until one says how to go on."""
        self._game = game
        while self._is_asking:
            try:
                self.cmdloop()
            except UnicodeError:  # of a terminal
                self._refuse(NOT_UTF8)
                continue
            self._is_asking = self._following is not Next.END
            return self._following
        return Next.END

    def _go(self, following: Next, words: str = "") -> bool:
        no_more(words)
        self._following = following
        return True

    def _refuse(self, text: str) -> None:
        """Say that the last command cannot be obeyed. Raises Unusable for one of a script."""
        if self._script is not None:
            raise Unusable(f"line {self._script.nlines}: {text}")
        click.echo(text)

    # --- what `cmd` calls

    def onecmd(self, line: str) -> bool:
        """Obey a command; return whether the asking ends."""
        line = line.strip()
        if line != _EOF:
            self._is_used = True
            if self._script is not None:
                click.echo(f"> {line}")
        try:
            name, *_ = line.split() or [""]
            if self._hand is None and hasattr(self, f"do_{name}") and name not in {*LOOKING, _EOF}:
                raise Refused(self._why_not)
            return bool(super().onecmd(line))
        except Unfit:
            self._refuse(f"expected {usage_of(line)}, got {line}")
        except (Refused, ValueError) as error:
            if hasattr(error, "__notes__"):  # a property of the user has raised it
                raise
            self._refuse(str(error))
        return False

    def emptyline(self) -> bool:
        """Play the next turn."""
        return self._go(Next.STEP)

    def default(self, line: str) -> None:
        """Show the state of a module. Raises Refused if there is none of this name."""
        if line not in self.game.states:
            modules = ", ".join(self.game.states)
            raise Refused(f"expected one of {modules}, or a command, see help: got {line}")
        show_state(self.game, line)

    def do_EOF(self, _: str) -> bool:  # noqa: N802 - its name in `cmd`
        """End the replay at ctrl-D, as `q`; after the last command of a script play to the end."""
        if self._script is not None:
            return self._go(Next.END)
        click.echo()
        return self._go(Next.QUIT)

    def completenames(self, text: str, line: str, _begin: int, end: int) -> list[str]:
        """Return the commands and modules that begin so."""
        commands = dict.fromkeys(usage.split()[0] for usage in USAGES)
        return _completions(text, line[:end], [*commands, *self.game.states])

    def completedefault(self, text: str, line: str, _begin: int, end: int) -> list[str]:
        """Return the modules that begin so."""
        return _completions(text, line[:end], self.game.states)

    # --- the commands

    def do_step(self, words: str) -> bool:
        return self._go(Next.STEP, words)

    def do_run(self, words: str) -> None:
        no_more(words)
        try:
            self.hand.run()
        except NeverReached as error:
            raise Refused(f"expected rest: {error}") from None
        self._print_rest()

    def do_stop(self, words: str) -> None:
        match words.split():
            case ["event", name, "job", job, *nth] if len(nth) <= 1:
                self._run_until(Logged(name, self._place(job), *map(read_nth, nth)))
            case ["event", name, *nth] if len(nth) <= 1:
                self._run_until(Logged(name, None, *map(read_nth, nth)))
            case ["state", job, name]:
                self._run_until(InState(self._place(job), read_state(name)))
            case ["at", seconds]:
                self._run_until(AtTime(read_seconds(seconds)))
            case [topic, *more] if topic not in {"event", "state", "at"}:
                self._run_until(read_message(topic, more))
            case _:
                raise Unfit

    def do_hold(self, words: str) -> None:
        stopped = self._act_on_message(words, Stopped.hold)
        if stopped not in self._held:
            self._held.append(stopped)

    def do_release(self, words: str) -> None:
        no_more(words)
        held = [each for each in self._held if each.flights]
        if not held:
            raise Refused("expected a message that is held by hand, got none")
        for each in held:
            click.echo("\n".join(on_their_way(each)))
            each.release()
        self._held.clear()

    def do_delay(self, words: str) -> None:
        seconds = read_seconds(words)
        self._act_on_message("", lambda stopped: stopped.delay(seconds))

    def do_drop(self, words: str) -> None:
        self._act_on_message(words, Stopped.drop)

    def do_duplicate(self, words: str) -> None:
        self._act_on_message(words, Stopped.duplicate)

    def do_crash(self, words: str) -> None:
        self.hand.crash(one_module(words))
        self._print_news()

    def do_unload(self, words: str) -> None:
        module = one_module(words)
        if self.hand.world.is_essential(module):
            raise Refused(f"expected a module on which no other one depends, got {module}")
        self.hand.unload(module)
        self._print_news()

    def do_load(self, words: str) -> None:
        self.hand.load(one_module(words))
        self._print_news()

    def do_states(self, words: str) -> None:
        no_more(words)
        for module in self.game.states:
            show_state(self.game, module)

    def do_end(self, words: str) -> bool:
        return self._go(Next.END, words)

    def do_help(self, arg: str) -> None:
        """Show the commands that can be obeyed now."""
        no_more(arg)
        width = max(map(len, USAGES)) if self._hand is not None else max(map(len, LOOKING))
        for usage, about in USAGES.items():
            if self._hand is not None or usage in LOOKING:
                click.echo(f"{usage:<{width}}  {about}")

    def do_q(self, words: str) -> bool:
        return self._go(Next.QUIT, words)

    # --- what commands do with a world

    def _run_until(self, until: Until) -> None:
        hand = self.hand
        try:
            self._stopped = hand.run_until(until)
        except NeverReached as error:
            if hand.is_at_rest:
                self._print_rest()
            raise Refused(f"the moment did not come: {error.why}: {self.lastcmd}") from None
        click.echo(f"stopped {hand.when()}")

    def _act_on_message(self, words: str, do: Callable[[Stopped], None]) -> Stopped:
        """Do something with the message at which the world has stopped."""
        no_more(words)
        stopped = self._stopped or Stopped(self.hand)
        said = on_their_way(stopped)
        do(stopped)
        for each in said:
            click.echo(each)
        return stopped

    def _place(self, word: str) -> int:
        """Return the place of a job of the plan."""
        count = len(self.hand.plan_run.plan.jobs)
        if not (word.isascii() and word.isdigit() and int(word) < count):
            raise Refused(f"expected the place of one of the {count} jobs, from 0, got {word}")
        return int(word)

    def _print_news(self) -> None:
        """Print what a command has let happen at once."""
        self.hand.replay.look()
        for line in list(self.hand.replay.news()) or ["nothing happens at once"]:
            click.echo(line)

    def _print_rest(self) -> None:
        """Print that all is at rest: jobs, who is not there, what is held and what is broken."""
        click.echo("\n".join(self.hand.rest_lines(self._held)))


def prompt(trace: BinaryIO | None = None) -> Prompt | None:
    """Return a prompt at the terminal, if the output is shown there, or for a pipe at stdin.

    If the trace comes from standard input (`/dev/stdin`), there are no commands there.
    """
    if trace is not None and _is_stdin(trace):
        return None
    if not sys.stdin.isatty():
        return Prompt(Script(sys.stdin))
    return Prompt() if sys.stdout.isatty() else None


def _is_stdin(file: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(file.fileno(), sys.stdin.fileno())
    except OSError:  # one of them has no descriptor, as in tests
        return False


def _completions(text: str, line: str, words: Iterable[str]) -> list[str]:
    """Return the ends of `words` that continue a line; `text` is what follows its last hyphen."""
    begun = line.rpartition(" ")[2]
    return [word[len(begun) - len(text) :] for word in words if word.startswith(begun)]
