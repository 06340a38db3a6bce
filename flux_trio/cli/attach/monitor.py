"""`flux-trio attach monitor`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flux_trio.cli.attach.serving import TO
from flux_trio.cli.terminal.errors import CommandError, Unusable, complain, remark, write_text
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import STRICT_OPTION, color_option
from flux_trio.process.groups import unwrapping
from flux_trio.process.private import making_private

if TYPE_CHECKING:
    from flux_trio.attach.monitor import Monitor
    from flux_trio.judge import Violation
    from flux_trio.trace.traced_message import TracedMessage

BROKEN: Final = 1
REFRESH_S: Final = 1.0

_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@TO
@click.option("--audit", is_flag=True, help="Compare who holds which resources: at rest, and on "
              "request (key a, or the signal USR1).")  # fmt: skip
@click.option("--trace", type=_FILE, metavar="FILE", help="Write what is seen to FILE, in the form "
              "of `flux module trace --full`.")  # fmt: skip
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the verdicts to FILE at the end, "
              "as JUnit XML.")  # fmt: skip
@click.option("--json", "json_", type=_FILE, metavar="FILE", help="Write the verdicts to FILE at "
              "the end, as JSON.")  # fmt: skip
@STRICT_OPTION
@color_option()
@click.pass_context
def monitor(
    ctx: click.Context,
    *,
    to: str | None,
    audit: bool,
    trace: Path | None,
    junit: Path | None,
    json_: Path | None,
    strict: bool,
    color: bool,
) -> None:
    """Judge a live flux-core by the clauses of the RFCs while it runs; only its owner can.

    On a terminal a screen shows what is kept, broken, due and known; q ends it, a audits.
    Elsewhere each thing that is broken is printed when it happens. At the end, by ctrl-C or when
    the instance ends, the verdicts are printed. The monitor may join at any time; it only reads.

    Exit codes: 0 if nothing is broken except by known departures, 1 if something is, 2 if the
    instance cannot be joined or for wrong usage. What is only recommended is listed as advice, and
    leaves the exit code alone without --strict. What is unexplained or due breaks no
    clause and may be what was meant: it leaves the exit code alone.
    """
    from flux_trio.views import verdict_json, verdict_junit, verdict_text

    with ExitStack() as files:
        keep = _kept_in(trace, files)
        watched = _joined(to, partial(_watch, keep=keep, audit=audit, color=color))
    judgement, records = watched.judge.judgement(), watched.judge.shown()
    if junit is not None:
        text = verdict_junit(judgement, watched.judge.clauses, records, watched.uri)
        write_text(junit, text)
    if json_ is not None:
        from flux_trio.cli.terminal.events import json_text

        found = verdict_json(judgement, watched.judge.clauses, records)
        write_text(json_, json_text({"instance": watched.uri, **found}) + "\n")
    click.echo(verdict_text(judgement, records), nl=False)
    ctx.exit(BROKEN if judgement.violations or (strict and judgement.advice) else 0)


def _kept_in(trace: Path | None, files: ExitStack) -> Callable[[TracedMessage], object]:
    """Return what writes each message to the file, which is for its user alone."""
    if trace is None:
        return lambda _told: None
    try:
        file = open(trace, "w", encoding="utf-8", opener=making_private)  # noqa: SIM115
        files.enter_context(file)
    except OSError as error:
        raise CommandError(f"{trace}: {error.strerror}") from None
    return lambda told: file.write(told.text())


def _joined(to: str | None, watch: Callable[[str], Awaitable[Monitor]]) -> Monitor:
    import trio

    from flux_trio.attach.handle import flux_uri
    from flux_trio.messages import FluxError
    from flux_trio.transports import TransportError

    try:
        with unwrapping(CommandError, OSError, TransportError, FluxError):
            watched: Monitor = trio.run(watch, flux_uri(to, os.environ))
    except (TransportError, FluxError) as error:
        raise Unusable(str(error)) from None
    return watched


async def _watch(
    uri: str, keep: Callable[[TracedMessage], object], *, audit: bool, color: bool
) -> Monitor:
    """Watch until a signal, a key or the end of the instance; return what was seen."""
    from flux_trio.attach.monitor import open_monitor
    from flux_trio.transports import TransportError

    watched: Monitor | None = None
    try:
        async with open_monitor(uri) as watched:
            remark(f"watches flux-core {watched.version} at {uri} until ctrl-C")
            if watched.warning:
                remark(watched.warning)
            await _watch_until_told(watched, keep, audit=audit, color=color)
    except TransportError as error:
        if watched is None:
            raise
        remark(f"the instance has ended: {error}")
    watched.judge_rest(_print_violation)
    return watched


async def _watch_until_told(
    watched: Monitor, keep: Callable[[TracedMessage], object], *, audit: bool, color: bool
) -> None:
    import trio

    from flux_trio.cli.attach.monitor_screen import shown_live

    live = sys.stdin.isatty() and sys.stdout.isatty() and _is_in_front()
    report = (lambda _found: None) if live else _print_violation
    tell = (lambda _found: None) if live else _print_difference
    async with trio.open_nursery() as nursery:

        async def until_signal() -> None:
            with _signals() as signals:
                async for each in signals:
                    if each == signal.SIGUSR1:
                        await watched.audit(tell)
                    elif each == signal.SIGTSTP and live:
                        shown.cancel()
                    elif each == signal.SIGTSTP:
                        await _stop(watched, live=False)
                    else:
                        break
            nursery.cancel_scope.cancel()

        shown = trio.CancelScope()
        nursery.start_soon(watched.read, keep)
        nursery.start_soon(watched.judge_all, report)
        nursery.start_soon(until_signal)
        if audit:
            nursery.start_soon(watched.audit_at_rest, tell)
        while live:
            with shown:
                await shown_live(watched, REFRESH_S, color=color)
                nursery.cancel_scope.cancel()
            await _stop(watched, live=True)
            shown = trio.CancelScope()


def _signals() -> AbstractContextManager[AsyncIterator[int]]:
    import trio

    return trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP)


async def _stop(watched: Monitor, *, live: bool) -> None:
    """Stop as ctrl-Z asks for, until SIGCONT: first leave the trace, then join again.

    With a screen, until it is in front again: the terminal would stop a process behind it.
    """
    await watched.pause()
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    while live and not _is_in_front():
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
    watched.resume()


def _is_in_front() -> bool:
    """Whether this process may read from the terminal that is its standard input."""
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _print_violation(found: Violation) -> None:
    from flux_trio.formats import printable
    from flux_trio.formats.spelling import spelled

    if found.cause is None:
        who = f" broken by {printable(found.blamed)}" if found.blamed else ""
        who = "" if found.is_unexplained else who
        click.echo(f"{found.clause}{who}: {printable(spelled(found.text))}")


def _print_difference(text: str) -> None:
    complain(text)
