"""`flux-trio replay`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from flux_trio.cli.fuzz_params import PROPERTY_OPTION

if TYPE_CHECKING:
    from flux_trio.cli.replaying import Replay
    from flux_trio.faults import Plan, Property

BROKEN = 1


@click.command()
@click.argument("source", metavar="PLAN|SEED")
@click.option("--step", "by_step", is_flag=True, help="Show each turn, and what it changed.")
@click.option(
    "--until",
    metavar="CLAUSE",
    help="Stop when CLAUSE, or another property, is broken, and show the state of every core.",
)
@click.option("--story", is_flag=True, help="Tell how a property comes to be broken.")
@PROPERTY_OPTION
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    source: str,
    by_step: bool,
    until: str | None,
    story: bool,
    properties: tuple[str, ...],
) -> None:
    """Play a world of `flux-trio fuzz` once more.

    PLAN is a file that `flux-trio fuzz` wrote; the same plan gives the same world. SEED is a
    number, from which the plan is drawn; a later version may draw another one.

    With --step, the records of each turn are shown, and beside them what the turn changed in the
    states of the cores. On a terminal each turn waits for the enter key; the name of a module shows
    its whole state, q ends the replay.

    If the plan has a party that breaks clauses, what it breaks is shown, and is no failure.

    Exit codes: 0 if every property held, 1 if one was broken, 2 if there is no such plan, the plan
    is of an unknown version, or for wrong usage.
    """
    from flux_trio.cli.replaying import Replay, read_plan
    from flux_trio.faults import Setup

    plan = read_plan(source)
    click.echo(f"seed {plan.seed}")
    checked = Setup(properties, plan.plugins).all_properties()
    if story:
        ctx.exit(BROKEN if _tell(plan, until or "", checked) else 0)
    shows = _Shows(by_step=by_step, until=until)
    game = Replay(plan, checked, shows.after_step)
    outcome = game.to_the_end()
    if outcome is not None and until in outcome.broken:
        click.echo(f"{until} is broken at the end")
        shows.is_broken = True
    if shows.is_broken:
        shows.all_states(game)
    if outcome is None:
        ctx.exit(BROKEN if shows.is_broken else 0)
    for problem in outcome.problems:
        click.echo(problem)
    for said in outcome.excused:
        click.echo(f"as planned: {said}")
    if not outcome.problems:
        click.echo(f"every property held, in {outcome.nsteps} turns")
    ctx.exit(BROKEN if outcome.problems else 0)


def _tell(plan: Plan, broken: str, properties: tuple[Property, ...]) -> bool:
    """Print the story, and return whether there is one."""
    from flux_trio.faults import tell_story
    from flux_trio.views import story_text

    story = tell_story(plan, broken, properties)
    click.echo("every property held" if story is None else story_text(story), nl=story is None)
    return story is not None


class _Shows:
    """Prints what happens after each step, as far as it is asked for."""

    def __init__(self, *, by_step: bool, until: str | None) -> None:
        self._by_step = by_step
        self._until = until
        self._waits = by_step and sys.stdin.isatty() and sys.stdout.isatty()
        self.is_broken = False
        """Whether the property of --until is broken."""

    def after_step(self, game: Replay) -> bool:
        """Print the turn; return whether to go on."""
        if self._by_step:
            click.echo(f"turn {game.world.nsteps}")
            for line in game.news():
                click.echo(line)
        if self._until is not None and self._until in game.broken_so_far():
            self.is_broken = True
            click.echo(f"{self._until} is broken in turn {game.world.nsteps}")
            return False
        return not self._waits or self._ask(game)

    def all_states(self, game: Replay) -> None:
        """Print the whole state of every core."""
        for module in game.states:
            for line in game.whole_state(module):
                click.echo(line)

    def _ask(self, game: Replay) -> bool:
        """Wait for a line on the terminal; return whether to go on."""
        while True:
            answer = click.prompt("", default="", show_default=False, prompt_suffix="> ").strip()
            if answer in ("", "q"):
                return not answer
            lines = list(game.whole_state(answer))
            for line in lines or [f"expected one of {', '.join(game.states)}, or q: got {answer}"]:
                click.echo(line)
