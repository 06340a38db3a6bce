"""`flux-trio replay`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from flux_trio.cli.fuzz_params import DEPTHS, PROPERTY_OPTION, STORES

if TYPE_CHECKING:
    from flux_trio.faults import Outcome, Plan, Property
    from flux_trio.faults.disk import StoreKind
    from flux_trio.faults.plan import Depth

BROKEN = 1


@click.command()
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

    With --step, the records of each turn are shown, and beside them what the turn changed in the
    states of the cores. On a terminal each turn waits for the enter key; the name of a module shows
    its whole state, q ends the replay.

    TRACE is a file that `flux-trio start --trace` wrote. The core of each module gets its recorded
    inputs again: messages, timers, answers of plugins and of the store. What it does is compared
    with the records, and the first difference is shown. --step and --until are for a trace, too;
    --story, --property, --depth and --store are for a plan or a seed only.

    If the plan has a party that breaks clauses, what it breaks is shown, and is no failure. A fault
    of PLAN that never strikes, or a request that is never made, since its place does not come, is
    named, and is no failure.

    Exit codes: 0 if every property held and nothing differed, 1 if a property was broken or a core
    differed, 2 if there is no such plan, it cannot be replayed, a property raised, or for wrong
    usage.
    """
    from flux_trio.cli.replaying import Replay, is_seed, raising_told, read_plan
    from flux_trio.cli.replaying_traces import is_trace
    from flux_trio.faults import Setup
    from flux_trio.faults.telling import PROPERTIES

    if is_trace(Path(source)):
        if story or properties or depth or store:
            raise click.UsageError(
                "a trace is replayed without --story, --property, --depth and --store"
            )
        _check_name(until)
        ctx.exit(BROKEN if _replay_trace(Path(source), _Shows(by_step=by_step, until=until)) else 0)
    plan = read_plan(source, depth, store)
    click.echo(f"seed {plan.seed}")
    checked = Setup(properties, plan.plugins).all_properties()
    _check_name(until, *PROPERTIES, *(each.name for each in checked))
    if story:
        with raising_told(plan):
            is_told = _tell(plan, until or "", checked)
        ctx.exit(BROKEN if is_told else 0)
    shows = _Shows(by_step=by_step, until=until)
    with raising_told(plan), Replay(plan, checked, shows.after_step, until) as game:
        outcome = game.to_the_end()
        if outcome is not None and until in outcome.broken:
            click.echo(f"{until} is broken at the end")
            shows.is_broken = True
        if shows.is_broken:
            shows.all_states(game)
    if outcome is None:
        ctx.exit(BROKEN if shows.is_broken else 0)
    for line in outcome_lines(outcome, until, is_drawn=is_seed(source)):
        click.echo(line)
    ctx.exit(BROKEN if outcome.problems else 0)


def outcome_lines(outcome: Outcome, until: str | None, *, is_drawn: bool) -> Iterator[str]:
    """Yield what was broken, and what never came; of a drawn plan many things never come."""
    from flux_trio.faults.missed import missed_text, unprompted_text
    from flux_trio.views.spelling import spelled

    yield from map(spelled, dict.fromkeys(outcome.problems))
    for said in dict.fromkeys(outcome.excused):
        yield f"as planned: {spelled(said)}"
    if not is_drawn:
        yield from map(missed_text, outcome.missed)
        yield from map(unprompted_text, outcome.unprompted)
    if not outcome.problems:
        yield f"every property held, in {outcome.nsteps} turns"
    elif until is not None and until not in outcome.broken:
        yield f"{until} was not broken"


def _check_name(until: str | None, *properties: str) -> None:
    """Raise UsageError if `until` is the name of no clause, no invariant and no property."""
    if until is None:
        return
    from flux_trio.faults.telling import clause_names

    if until not in clause_names().union(properties):
        words = ", ".join(sorted(properties))
        more = f", or one of the properties {words}" if words else ""
        raise click.UsageError(f"--until: expected a clause, such as 27.alloc.1{more}; got {until}")


def _replay_trace(path: Path, shows: _Shows) -> bool:
    """Replay a trace; return whether a core differs, or the property of --until is broken."""
    from flux_trio.cli.replaying_traces import TraceReplay

    game = TraceReplay(path, shows.after_step, judged=shows.until is not None, shown=shows.by_step)
    difference = game.to_the_end()
    for module, n in game.instance.unrecorded.items():
        click.echo(f"{module} is not replayed: its turns are not recorded, from record {n}")
    if difference is not None:
        click.echo(difference)
    elif shows.is_broken:
        shows.all_states(game)
    elif game.is_at_end:
        kept = "" if shows.until is None else f"; {shows.until} was not broken"
        click.echo(f"every core did what is recorded, in {game.nsteps} turns{kept}")
    return shows.is_broken or difference is not None


def _tell(plan: Plan, broken: str, properties: tuple[Property, ...]) -> bool:
    """Print the story, and return whether there is one."""
    from flux_trio.faults import tell_story
    from flux_trio.views import story_text

    story = tell_story(plan, broken, properties)
    click.echo("every property held" if story is None else story_text(story), nl=story is None)
    return story is not None


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


class _Shows:
    """Prints what happens after each step, as far as it is asked for."""

    def __init__(self, *, by_step: bool, until: str | None) -> None:
        self.by_step = by_step
        self.until = until
        self._waits = by_step and sys.stdin.isatty() and sys.stdout.isatty()
        self.is_broken = False
        """Whether the property of --until is broken."""

    def after_step(self, game: Shown) -> bool:
        """Print the turn; return whether to go on."""
        if self.by_step:
            click.echo(f"turn {game.nsteps}")
            for line in game.news():
                click.echo(line)
        if self.until is not None and self.until in game.broken_so_far():
            self.is_broken = True
            click.echo(f"{self.until} is broken in turn {game.nsteps}")
            return False
        return not self._waits or self._ask(game)

    def all_states(self, game: Shown) -> None:
        """Print the whole state of every core."""
        for module in game.states:
            for line in game.whole_state(module):
                click.echo(line)

    def _ask(self, game: Shown) -> bool:
        """Wait for a line on the terminal; return whether to go on."""
        while True:
            answer = click.prompt("", default="", show_default=False, prompt_suffix="> ").strip()
            if answer in ("", "q"):
                return not answer
            lines = list(game.whole_state(answer))
            for line in lines or [f"expected one of {', '.join(game.states)}, or q: got {answer}"]:
                click.echo(line)
