"""`flux-trio replay`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from flux_trio.cli.lab.fuzz_params import DEPTHS, PROPERTY_OPTION, STORES
from flux_trio.cli.terminal.examples import Command

if TYPE_CHECKING:
    from flux_trio.cli.lab.replaying import HandReplay, Shown
    from flux_trio.lab import Outcome, Plan, Property
    from flux_trio.lab.plans.plan import Depth
    from flux_trio.lab.world.disk import StoreKind

BROKEN = 1


@click.command(cls=Command)
@click.argument("source", metavar="PLAN|SEED|TRACE")
@click.option("--step", "by_step", is_flag=True, help="Show each turn, and what it changed.")
@click.option(
    "--until",
    metavar="CLAUSE",
    help="Stop when CLAUSE, or another property of a plan, is broken, and show the state of every "
    "core. A property that looks at the world at rest is known at the end only.",
)
@click.option("--story", is_flag=True, help="Tell how a property comes to be broken.")
@click.option(
    "--depth", type=click.Choice(DEPTHS), help="Play this depth, instead of that of the plan."
)
@click.option(
    "--store", type=click.Choice(STORES), help="Keep the values of the kvs here, instead."
)
@PROPERTY_OPTION
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    source: str,
    by_step: bool,
    until: str | None,
    story: bool,
    depth: Depth | None,
    store: StoreKind | None,
    properties: tuple[str, ...],
) -> None:
    """Play a world of `flux-trio fuzz`, or a recorded instance, once more.

    PLAN is a file that `flux-trio fuzz` wrote; the same plan gives the same world. SEED is a
    number, from which the plan is drawn; a later version may draw another one.

    With --step, the states of all cores at the start are shown, then the records of each turn, and
    beside them what the turn changed in the states. On a terminal each turn waits for a command.
    The enter key plays the next turn, the name of a module shows the state of its core, `q` ends
    the replay, and `help` lists the others. With them a plan or a seed is played by hand. `stop`
    goes on to a message, an event, the state of a job or a time. `hold`, `release`, `delay`, `drop`
    and `duplicate` act on the message at which it has stopped; `crash`, `unload` and `load` on a
    module. `run` goes on until all is at rest; `end` puts everything right and plays to the end.

    Commands of --step may also come from a pipe, one a line; after the last one the replay goes on
    to the end. A wrong one ends it.

    TRACE is a file that `flux-trio start --trace` wrote. The core of each module gets its recorded
    inputs again: messages, timers, answers of plugins and of the store. What it does is compared
    with the records, and the first difference is shown. --step and --until are for a trace, too;
    --story, --property, --depth and --store are for a plan or a seed only. What is recorded cannot
    be interfered with: a trace takes only the commands that look and go on.

    If the plan has a party that breaks clauses, what it breaks is shown, and is no failure. A fault
    of PLAN that never strikes, or a request that is never made, since its place does not come, is
    named, and is no failure. If another version of flux-trio wrote PLAN, and something of it does
    not come or nothing is broken, both versions are named: the world may play in another order.

    Exit codes: 0 if every property held and nothing differed, 1 if a property was broken or a core
    differed, 2 if there is no such plan, it cannot be replayed, a property raised, a command from a
    pipe is wrong, or for wrong usage.
    """
    from flux_trio.cli.lab.replaying import (
        HandReplay,
        is_seed,
        other_program,
        read_plan,
        reporting_raised,
    )
    from flux_trio.cli.lab.replaying_traces import open_trace
    from flux_trio.lab import Setup
    from flux_trio.lab.properties.plugin_failures import is_of_user, no_plugin_fails
    from flux_trio.lab.stories.campaign import traceback_of_user
    from flux_trio.lab.stories.telling import PROPERTIES

    if story and by_step:
        raise click.UsageError("--story tells no single turns: expected it without --step")
    if not source:
        raise click.UsageError("expected a file of a plan or a trace, or a seed, got an empty text")
    trace = open_trace(Path(source))
    if trace is not None:
        ctx.call_on_close(trace.close)
        if story or properties or depth or store:
            raise click.UsageError(
                "a trace is replayed without --story, --property, --depth and --store"
            )
        _check_name(until)
        ctx.exit(BROKEN if _replay_trace(trace, by_step=by_step, until=until) else 0)
    plan = read_plan(source, depth, store)
    program = other_program(source)
    click.echo(f"seed {plan.seed}")
    checked = Setup(properties, plan.plugins, policy=plan.policy).all_properties()
    _check_name(until, *PROPERTIES, *(each.name for each in checked))
    if story:
        with reporting_raised(plan):
            is_broken = _print_story(
                plan, until, checked, is_drawn=is_seed(source), program=program
            )
        ctx.exit(BROKEN if is_broken else 0)
    shows = _Shows(by_step=by_step, until=until)
    with (
        reporting_raised(plan) as errors,
        HandReplay(plan, checked, shows.after_step, until) as hand,
    ):
        outcome = shows.play(hand)
        if outcome is not None and until in outcome.broken:
            click.echo(f"{until} is broken at the end")
            shows.is_broken = True
        if shows.is_broken:
            shows.all_states(hand.replay)
    if outcome is None:
        ctx.exit(BROKEN if shows.is_broken else 0)
    for line in outcome_lines(outcome, until, is_drawn=is_seed(source), program=program):
        click.echo(line)
    if no_plugin_fails.name in outcome.broken:
        for error in [each for each in errors if is_of_user(each)][:1]:
            click.echo(traceback_of_user(error))
    ctx.exit(BROKEN if outcome.problems else 0)


def outcome_lines(
    outcome: Outcome, until: str | None, *, is_drawn: bool, program: str = ""
) -> Iterator[str]:
    """Yield what was broken, and what never came; of a drawn plan many things never come.

    `program` is the version that wrote the plan, if it is another one.
    """
    from flux_trio.formats.spelling import spelled
    from flux_trio.lab.stories.campaign import in_order

    yield from map(spelled, in_order(outcome))
    for said in dict.fromkeys(outcome.excused):
        yield f"as planned: {spelled(said)}"
    never_came = [] if is_drawn else _never_came(outcome)
    yield from never_came
    if not outcome.problems:
        yield f"every property held, in {outcome.nsteps} turns"
    elif until is not None and until not in outcome.broken:
        yield f"{until} was not broken"
    is_broken = until in outcome.broken if until else outcome.problems or outcome.excused
    if program and (never_came or not is_broken):
        yield _written_by(program, came=not never_came)


def _never_came(outcome: Outcome) -> list[str]:
    from flux_trio.lab.plans.never_struck import never_made_text, never_struck_text

    faults, requests = outcome.never_struck, outcome.unprompted
    return [*map(never_struck_text, faults), *map(never_made_text, requests)]


def _written_by(program: str, *, came: bool) -> str:
    """Return why a plan of another version may show another story."""
    from flux_trio._version import __version__

    text = f"flux-trio {program} wrote the plan, and this is {__version__}: it may play in another "
    return text + ("order, but every fault and request of it came" if came else "order")


def _check_name(until: str | None, *properties: str) -> None:
    """Raise UsageError if `until` is the name of no clause, no invariant and no property."""
    if until is None:
        return
    from flux_trio.lab.stories.telling import clause_names

    if until not in clause_names().union(properties):
        words = ", ".join(sorted(set(properties)))
        more = f", or one of the properties {words}" if words else ""
        raise click.UsageError(f"--until: expected a clause, such as 27.alloc.1{more}; got {until}")


def _replay_trace(trace: BinaryIO, *, by_step: bool, until: str | None) -> bool:
    """Replay a trace; return whether a core differs, or the property of --until is broken."""
    from flux_trio.cli.lab.replaying_traces import TraceReplay

    shows = _Shows(by_step=by_step, until=until, trace=trace)
    game = TraceReplay(trace, shows.after_step, judged=shows.until is not None, shown=shows.by_step)
    difference = game.to_the_end()
    for unrecorded in game.instance.unrecorded:
        click.echo(unrecorded)
    for raised in game.instance.raised:
        click.echo(raised)
    if game.cut_line:
        click.echo(f"line {game.cut_line}, the last one, is not complete, and was left out")
    if difference is not None:
        click.echo(difference)
    elif shows.is_broken:
        shows.all_states(game)
    elif game.is_at_end:
        kept = "" if shows.until is None else f"; {shows.until} was not broken"
        click.echo(f"every core did what is recorded, in {game.nsteps} turns{kept}")
    return shows.is_broken or difference is not None


def _print_story(
    plan: Plan, until: str | None, properties: tuple[Property, ...], *, is_drawn: bool, program: str
) -> bool:
    """Print the story; without one, print what became of the plan. Return whether it broke."""
    from flux_trio.lab import run_plan, tell_story
    from flux_trio.views import story_text

    story = tell_story(plan, until or "", properties)
    if story is not None:
        click.echo(story_text(story), nl=False)
        return True
    outcome = run_plan(plan, properties=properties)
    for line in outcome_lines(outcome, until, is_drawn=is_drawn, program=program):
        click.echo(line)
    return bool(outcome.problems)


class _Shows:
    """Prints what happens after each step, as far as it is asked for, and asks at a prompt."""

    def __init__(self, *, by_step: bool, until: str | None, trace: BinaryIO | None = None) -> None:
        from flux_trio.cli.lab.replay_prompt import prompt

        self.by_step = by_step
        self.until = until
        self._prompt = prompt(trace) if by_step else None
        self._turn = 0  # that was shown last
        self.is_broken = False
        """Whether the property of --until is broken."""

    def play(self, hand: HandReplay) -> Outcome | None:
        """Play a world to its end; return None if it was not played to the end."""
        from flux_trio.cli.lab.replaying import Ended

        if self.by_step:
            click.echo("at the start")
            self.all_states(hand.replay)
        if self._prompt is not None:
            return self._prompt.play(hand)
        try:
            return hand.outcome()
        except Ended:
            return None

    def after_step(self, game: Shown) -> bool:
        """Print the turn; return whether to go on."""
        if self.by_step:
            again = " goes on" if game.nsteps == self._turn else ""
            self._turn = game.nsteps
            click.echo(f"turn {game.nsteps}{again}")
            for line in game.news():
                click.echo(line)
        if self.until is not None and self.until in game.broken_so_far():
            self.is_broken = True
            click.echo(f"{self.until} is broken in turn {game.nsteps}")
            return False
        return self._prompt is None or self._prompt.goes_on(game)

    def all_states(self, game: Shown) -> None:
        """Print the whole state of every core."""
        from flux_trio.cli.lab.replaying import show_state

        for module in game.states:
            show_state(game, module)
