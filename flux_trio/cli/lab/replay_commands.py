"""The commands at the prompt of `flux-trio replay --step`: one table, and what each one does.

Most interfere with a world that is played by hand. The others look and go on: they are also for the
turns of a trace, and for those after everything was put right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import click

from flux_trio.cli.lab.replaying import MARGIN, HandReplay
from flux_trio.lab import When
from flux_trio.lab.stories.by_hand import At, InState, Logged, NeverReached, Stopped, Until
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.protocols import JobState

QUIT: Final = "q"
"""The command that ends the replay."""

_SIDES: Final = ("send", "recv")
_TYPES: Final = ("request", "response", "event")


class Next(Enum):
    """What happens after a command."""

    ASK = "the next command is read"
    STEP = "the next turn is played"
    END = "all is played to the end, without further commands"
    QUIT = "nothing more is played"


class Refused(Exception):
    """A command cannot be obeyed; the text says what was expected and what came."""


class Unfit(Exception):
    """The words of a command do not fit its usage."""


class Shown(Protocol):
    """What is replayed."""

    @property
    def nsteps(self) -> int:
        """How many turns were replayed."""

    @property
    def states(self) -> Mapping[str, object]:
        """The modules that are there, and the states of their cores."""

    def news(self) -> Iterable[str]:
        """Return lines on the last turn."""

    def broken_so_far(self) -> set[str]:
        """Return the clauses that are broken."""

    def whole_state(self, module: str) -> Iterable[str]:
        """Return lines on the state of a core."""


class Table(Protocol):
    """What commands act on: what is replayed, and the messages that were interfered with."""

    held: list[Stopped]
    """Where the world has stopped at messages that are held."""
    stopped: Stopped | None
    """Where the world has stopped last."""

    @property
    def game(self) -> Shown:
        """What is looked at."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that can be obeyed now."""

    @property
    def hand(self) -> HandReplay:
        """The world that is played by hand; commands that `only_looks` may have none."""


def show_state(game: Shown, module: str) -> None:
    """Print the state of a core."""
    for line in list(game.whole_state(module)) or [f"{MARGIN}{module}: empty"]:
        click.echo(line)


def print_rest(table: Table) -> None:
    """Print that all is at rest: the jobs, who is not there, what is held and what is broken."""
    click.echo("\n".join(_rest_lines(table.hand, table.held)))


def _rest_lines(hand: HandReplay, held: Iterable[Stopped]) -> Iterator[str]:
    yield f"at rest {_when(hand)}"
    for place in range(len(hand.game.plan.jobs)):
        state = hand.state_of(place)
        said = "has no id yet" if state is None else f"is in {state.name}"
        yield f"  job {place} {said}"
    for module in hand.world.modules:
        if module not in hand.world.stations:
            yield f"  {module} is not there"
    for stopped in held:
        yield from (f"  {each} is held" for each in _on_their_way(stopped))
    broken = ", ".join(sorted(hand.replay.broken_so_far()))
    yield f"  broken so far: {broken}" if broken else "  no property is broken so far"


def _print_news(hand: HandReplay) -> None:
    """Print what a command has let happen at once."""
    hand.replay.look()
    for line in list(hand.replay.news()) or ["nothing happens at once"]:
        click.echo(line)


def _when(hand: HandReplay) -> str:
    seconds = hand.world.passed - EPOCH
    return f"after {hand.world.nsteps} turns, {seconds:g} s after the start"


def _on_their_way(stopped: Stopped) -> list[str]:
    """Return the message of a stop for each receiver that has not taken it."""
    return [
        f"{type(each.message).__name__.lower()} {getattr(each.message, 'topic', '')} "
        f"to {each.station.name}"
        for each in stopped.flights
    ]


# --- the commands


def _step(_: Table, words: list[str]) -> Next:
    _no_more(words)
    return Next.STEP


def _run(table: Table, words: list[str]) -> Next:
    _no_more(words)
    hand = table.hand
    try:
        hand.run()
    except NeverReached as error:
        raise Refused(f"expected rest: {error}") from None
    print_rest(table)
    return Next.ASK


def _end(_: Table, words: list[str]) -> Next:
    _no_more(words)
    return Next.END


def _quit(_: Table, words: list[str]) -> Next:
    _no_more(words)
    return Next.QUIT


def _stop_at_message(table: Table, words: list[str]) -> Next:
    if not words:
        raise Unfit
    found: dict[str, Any] = {}
    for word in words[1:]:
        if word in _SIDES:
            found["side"] = word
        elif word in _TYPES:
            found["type"] = word
        else:
            found["nth"] = _nth(word)
    return _run_until(table, When(words[0], **found), "stop", words)


def _stop_at_event(table: Table, words: list[str]) -> Next:
    place: int | None
    match words:
        case [name, "job", job, *rest]:
            place = _place(table, job)
        case [name, *rest]:
            place = None
        case _:
            raise Unfit
    if len(rest) > 1:
        raise Unfit
    return _run_until(table, Logged(name, place, *map(_nth, rest)), "stop event", words)


def _stop_at_state(table: Table, words: list[str]) -> Next:
    if len(words) != 2:
        raise Unfit
    job, name = words
    if name not in JobState.__members__:
        states = ", ".join(JobState.__members__)
        raise Refused(f"expected a state of a job, one of {states}, got {name}")
    return _run_until(table, InState(_place(table, job), JobState[name]), "stop state", words)


def _stop_at_time(table: Table, words: list[str]) -> Next:
    return _run_until(table, At(_seconds(words)), "stop at", words)


def _run_until(table: Table, until: Until, name: str, words: list[str]) -> Next:
    """Go on until the moment; `name` and `words` are the command as it was typed."""
    hand = table.hand
    try:
        table.stopped = hand.run_until(until)
    except NeverReached as error:
        if hand.is_at_rest:
            print_rest(table)
        typed = " ".join((name, *words))
        raise Refused(f"the moment did not come: {error.why}: {typed}") from None
    click.echo(f"stopped {_when(hand)}")
    return Next.ASK


def _befalls(do: Callable[[Stopped], None]) -> Callable[[Table, list[str]], Next]:
    """Return a command for the message at which the world has stopped."""

    def befall(table: Table, words: list[str]) -> Next:
        _no_more(words)
        _befall(table, do)
        return Next.ASK

    return befall


def _befall(table: Table, do: Callable[[Stopped], None]) -> Stopped:
    stopped = table.stopped or Stopped(table.hand)
    said = _on_their_way(stopped)
    do(stopped)
    for each in said:
        click.echo(each)
    return stopped


def _hold(table: Table, words: list[str]) -> Next:
    _no_more(words)
    stopped = _befall(table, Stopped.hold)
    if stopped not in table.held:
        table.held.append(stopped)
    return Next.ASK


def _release(table: Table, words: list[str]) -> Next:
    _no_more(words)
    held = [each for each in table.held if each.flights]
    if not held:
        raise Refused("expected a message that is held by hand, got none")
    for each in held:
        click.echo("\n".join(_on_their_way(each)))
        each.release()
    table.held.clear()
    return Next.ASK


def _delay(table: Table, words: list[str]) -> Next:
    seconds = _seconds(words)
    _befall(table, lambda stopped: stopped.delay(seconds))
    return Next.ASK


def _crash(table: Table, words: list[str]) -> Next:
    table.hand.crash(_module(words))
    _print_news(table.hand)
    return Next.ASK


def _unload(table: Table, words: list[str]) -> Next:
    module = _module(words)
    if table.hand.world.is_essential(module):
        raise Refused(f"expected a module on which no other one depends, got {module}")
    table.hand.unload(module)
    _print_news(table.hand)
    return Next.ASK


def _load(table: Table, words: list[str]) -> Next:
    table.hand.load(_module(words))
    _print_news(table.hand)
    return Next.ASK


def _states(table: Table, words: list[str]) -> Next:
    _no_more(words)
    for module in table.game.states:
        show_state(table.game, module)
    return Next.ASK


def _help(table: Table, words: list[str]) -> Next:
    _no_more(words)
    width = max(len(command.usage) for command in table.commands)
    for command in table.commands:
        click.echo(f"{command.usage:<{width}}  {command.about}")
    return Next.ASK


# --- the words of commands


def _no_more(words: list[str]) -> None:
    if words:
        raise Unfit


def _module(words: list[str]) -> str:
    if len(words) != 1:
        raise Unfit
    return words[0]


def _seconds(words: list[str]) -> float:
    if len(words) != 1:
        raise Unfit
    try:
        return float(words[0])
    except ValueError:
        raise Unfit from None


def _nth(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word)):
        raise Unfit
    return int(word)


def _place(table: Table, word: str) -> int:
    """Return the place of a job of the plan."""
    count = len(table.hand.game.plan.jobs)
    if not (word.isascii() and word.isdigit() and int(word) < count):
        raise Refused(f"expected the place of one of the {count} jobs, from 0, got {word}")
    return int(word)


@dataclass(frozen=True)
class Command:
    """A command: the words with which it begins, those that follow, and what it does."""

    name: str
    more: str
    about: str
    do: Callable[[Table, list[str]], Next]
    only_looks: bool = False
    """It is also for what cannot be interfered with."""

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"{self.name} {self.more}".rstrip()


COMMANDS: Final = (
    Command("step", "", "play the next turn, as the enter key does", _step, only_looks=True),
    Command("run", "", "go on until all is at rest", _run),
    Command(
        "stop event",
        "NAME [job JOB] [NTH]",
        "go on until the NTH event NAME is logged, of that job or of any",
        _stop_at_event,
    ),
    Command("stop state", "JOB STATE", "go on until the job is in STATE", _stop_at_state),
    Command("stop at", "SECONDS", "go on until so much time has passed", _stop_at_time),
    Command(
        "stop",
        "TOPIC [NTH] [send|recv] [request|response|event]",
        "go on until the NTH such message was sent, or received",
        _stop_at_message,
    ),
    Command("hold", "", "hold the message, and what its sender sends after it", _hold),
    Command("release", "", "let all messages go on that are held", _release),
    Command("delay", "SECONDS", "let the message arrive so much later", _delay),
    Command("drop", "", "lose the message", _befalls(Stopped.drop)),
    Command("duplicate", "", "let the message arrive twice", _befalls(Stopped.duplicate)),
    Command("crash", "MODULE", "end a module with an error", _crash),
    Command("unload", "MODULE", "remove a module in order", _unload),
    Command("load", "MODULE", "start a module", _load),
    Command(
        "states",
        "",
        "show the states of all cores; the name of a module shows one",
        _states,
        only_looks=True,
    ),
    Command(
        "end", "", "put everything right, and play to the end without a stop", _end, only_looks=True
    ),
    Command("help", "", "show the commands", _help, only_looks=True),
    Command(QUIT, "", "end the replay", _quit, only_looks=True),
)
"""All commands; of those that begin alike, the longest comes first."""
