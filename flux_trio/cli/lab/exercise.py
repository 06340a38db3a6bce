"""`flux-trio exercise`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Group
from flux_trio.cli.terminal.params import DURATION, spoken_edition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from flux_trio.lab.exercise import Ability, Findings, Kit, Part, Report

BROKEN = 1

_command = click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
_deadline = click.option(
    "--deadline",
    type=DURATION,
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="Wait for each answer of the program while it is idle for so long in all. The time in "
    "which it uses the processor, or waits for one, counts a tenth.",
)


_edition = spoken_edition(" with the program")


@click.group(cls=Group)
def exercise() -> None:
    """Drive a scheduler, execution service or job manager of yours through all it must stand.

    COMMAND is started with FLUX_TRIO_URI and FLUX_TRIO_TOKEN in its environment, the address of an
    instance that lacks its service. It must connect and serve until it is ended. It is killed and
    started again on the way. Then the verdict of each clause of the RFCs that binds it is shown.
    """


@exercise.command(context_settings={"allow_interspersed_args": False})
@_command
@_deadline
@_edition
@click.option(
    "--limited",
    metavar="COMMAND",
    help="The command that starts the scheduler in limited mode (RFC 27, Ready), which is then "
    "exercised too.",
)
@click.option(
    "--order",
    type=click.Choice(["fifo", "priority", "any"]),
    default="priority",
    show_default=True,
    help="In which order jobs of one shape start: `priority`, those of higher priority first; "
    "`fifo`, besides the first submitted of those of one priority; `any` is not looked at.",
)
@click.option(
    "--without",
    default="",
    metavar="constraints,gpus",
    help="What the scheduler does not have: then the machine has no such resources, no job asks "
    "for them, and the report says so.",
)
@click.pass_context
def sched(
    ctx: click.Context,
    *,
    command: tuple[str, ...],
    deadline: float,
    edition: str | None,
    limited: str | None,
    order: str,
    without: str,
) -> None:
    """Drive a scheduler: RFC 27, RFC 28 and the R that it writes (RFC 20).

    The instance has four nodes of four cores, of which three have gpus; jobs are simulated.

    Exit codes: 0 if every act came to its end and no clause is broken, 1 otherwise, 2 if COMMAND
    cannot be run or for wrong usage.
    """
    from flux_trio.lab.exercise import (
        OF_SCHEDULER,
        SCHED_ACTS,
        SCHED_LIMITED_ACTS,
        Order,
        Part,
        process,
        sched_kit,
    )

    try:
        words = tuple(shlex.split(limited or ""))
    except ValueError as error:
        raise click.BadParameter(f"{limited}: {error}", ctx, param_hint="'--limited'") from None
    lacks = _lacking(ctx, without, OF_SCHEDULER)
    parts = [Part(process(command), SCHED_ACTS.chosen(Order(order), lacks))]
    if words:
        parts.append(Part(process(words), SCHED_LIMITED_ACTS))
    findings = _run(sched_kit(lacks), parts, deadline, edition)
    exit_with_verdict(ctx, findings, sorted(lacks))


@exercise.command(context_settings={"allow_interspersed_args": False})
@_command
@_deadline
@_edition
@click.pass_context
def exec(  # noqa: A001
    ctx: click.Context, *, command: tuple[str, ...], deadline: float, edition: str | None
) -> None:
    """Drive an execution service: RFC 32.

    The instance has three nodes of six cores, all of them this machine; jobs are real commands.

    Exit codes: 0 if every act came to its end and no clause is broken, 1 otherwise, 2 if COMMAND
    cannot be run or for wrong usage.
    """
    from flux_trio.lab.exercise import EXEC_ACTS, EXEC_KIT, Part, process

    exit_with_verdict(ctx, _run(EXEC_KIT, [Part(process(command), EXEC_ACTS)], deadline, edition))


@exercise.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, metavar="[COMMAND...]")
@_deadline
@_edition
@click.option(
    "--flux-core",
    is_flag=True,
    help="Drive the job manager of flux-core instead of a COMMAND: in live instances, with `flux` "
    "on PATH, to which our scheduler and execution service attach.",
)
@click.option(
    "--without",
    default="",
    metavar="guests,updates",
    help="What the job manager does not have: users other than the owner, or `update` of time "
    "limits. Then nobody asks for that, and the report says so.",
)
@click.pass_context
def manager(
    ctx: click.Context,
    *,
    command: tuple[str, ...],
    deadline: float,
    edition: str | None,
    flux_core: bool,
    without: str,
) -> None:
    """Drive a job manager: RFC 21, RFC 27, RFC 32 and RFC 33.

    The instance has our scheduler, execution service and resource service, and four nodes of four
    cores; jobs are simulated.

    Exit codes: 0 if every act came to its end and no clause is broken, 1 otherwise, 2 if COMMAND
    cannot be run or for wrong usage.
    """
    from flux_trio.lab.exercise import MANAGER_ACTS, MANAGER_KIT, OF_MANAGER, Order, Part, process

    if flux_core == bool(command) or (flux_core and (edition or without)):
        raise click.UsageError("expected a COMMAND, or --flux-core alone", ctx)
    lacks = _lacking(ctx, without, OF_MANAGER)
    if flux_core:
        exit_with_verdict(ctx, _run_flux_core(deadline))
    parts = [Part(process(command), MANAGER_ACTS.chosen(Order.ANY, lacks))]
    exit_with_verdict(ctx, _run(MANAGER_KIT, parts, deadline, edition), sorted(lacks))


def _lacking(ctx: click.Context, without: str, known: frozenset[Ability]) -> frozenset[Ability]:
    """Return what `--without` names. Raises BadParameter for what is not `known`."""
    named = [each.strip() for each in without.split(",") if each.strip()]
    by_name = {str(each): each for each in known}
    if unknown := [each for each in named if each not in by_name]:
        text = f"expected {' or '.join(sorted(known))}, got {unknown[0]}"
        raise click.BadParameter(text, ctx, param_hint="'--without'")
    return frozenset(by_name[each] for each in named)


def _run(kit: Kit, parts: list[Part], deadline_s: float, edition: str | None) -> Findings:
    from functools import partial

    from flux_trio.editions import EDITIONS
    from flux_trio.lab.exercise import exercise
    from flux_trio.lab.plans.plan import DEFAULT_EDITION

    spoken = EDITIONS[edition or DEFAULT_EDITION]
    return _told(partial(exercise, kit, parts, deadline_s=deadline_s, edition=spoken))


def _run_flux_core(deadline_s: float) -> Findings:
    from functools import partial

    from flux_trio.lab.exercise.live_run import exercise_flux

    return _told(partial(exercise_flux, deadline_s=deadline_s))


def _told(run: Callable[[Report], Awaitable[Findings]]) -> Findings:
    """Run an exercise, and say how it gets on."""
    import trio

    from flux_trio.lab.exercise import Act, Ended, ProgramNotStarted, Report, Stuck
    from flux_trio.process.groups import unwrapping

    class PrintedReport(Report):
        """Says before an act what is looked at, and after it how it has ended."""

        def begins(self, act: Act) -> None:
            clauses = f" ({', '.join(act.clauses)})" if act.clauses else ""
            click.echo(f"{act.title}: {act.looks}{clauses}")

        def ended(self, ended: Ended) -> None:
            click.echo(f"  {ended.text()}")

    try:
        with unwrapping(ProgramNotStarted, Stuck):
            return trio.run(run, PrintedReport())
    except ProgramNotStarted as error:
        raise click.UsageError(str(error)) from None
    except Stuck as error:
        raise CommandError(str(error)) from None


def exit_with_verdict(ctx: click.Context, findings: Findings, without: Sequence[str] = ()) -> None:
    """Print what was found, and exit with 1 if an act was stuck or a clause is broken."""
    click.echo()
    click.echo(findings.text())
    if without:
        click.echo(f"nothing was asked for that it is without: {', '.join(without)}")
    ctx.exit(0 if findings.is_clean else BROKEN)
