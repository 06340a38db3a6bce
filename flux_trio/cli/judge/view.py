"""`flux-trio view`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from flux_trio.cli.terminal.errors import CommandError, Unusable, write_text
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import EDITION_OPTION

if TYPE_CHECKING:
    from flux_trio.trace import Record

RECORDS_MAX: Final = 50_000
"""Records in a page, unless --records names others: a browser takes a few seconds for them."""

OF_A_TRACE: Final = ("output", "span")
OF_AN_INSTANCE: Final = ("port",)
"""Parameters that have an effect only for the one or the other."""


def _read_span(text: str) -> tuple[int, int | None]:
    """Return the places of the first record and of the last in FIRST:LAST, of which either may be
    missing; None is the end of the trace.
    """
    first, colon, last = text.partition(":")
    if not colon or not all(part == "" or part.isdecimal() for part in (first, last)):
        raise click.BadParameter(f"expected FIRST:LAST, such as 1000:2000, got {text!r}")
    if last and int(last) < int(first or 0):
        raise click.BadParameter(f"expected LAST after FIRST, got {text!r}")
    return int(first or 0), int(last) if last else None


@click.command(cls=Command)
@click.argument("trace", type=click.Path(path_type=Path), metavar="[TRACE]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the page to FILE.  [default: the name of TRACE with .html]",
)
@click.option(
    "--records",
    "span",
    type=_read_span,
    metavar="FIRST:LAST",
    help=f"The records in the page, by their places.  [default: the first {RECORDS_MAX}]",
)
@EDITION_OPTION
@click.option("--live", is_flag=True, help="Show the running instance, on a page that it updates.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="With --live, the port of the page at 127.0.0.1.  [default: any free one]",
)
@click.pass_context
def view(
    ctx: click.Context,
    *,
    trace: Path | None,
    output: Path | None,
    span: tuple[int, int | None] | None,
    edition: str | None,
    live: bool,
    port: int,
) -> None:
    """Draw TRACE, or with --live a running instance, as a page for a browser.

    The page has a lane for each party, an arrow for each message, a bar for the states of each job,
    and the clauses that are broken. It needs no network. TRACE is a file as for `flux-trio check`.

    With --live the command prints the address of the page, which can be opened once, and serves the
    page until the instance ends or you press ctrl-C. Its rows come from now on, and are judged as
    they come. Clauses that need the beginning of the trace are judged of a module that is loaded
    after that.

    Exit codes: 0, 1 if the instance does not answer or ends, 2 if the trace cannot be read, the
    page cannot be written, or for wrong usage.
    """
    from flux_trio.cli.judge.traces import refuse_to_overwrite

    if live == (trace is not None):
        raise click.UsageError("expected either TRACE or --live")
    _refuse_what_has_no_effect(ctx, live=live)
    if trace is None:
        _show_live(port, edition)
        return
    output = output or Path(f"{trace.name}.html")
    refuse_to_overwrite(trace, output)
    write_text(output, _page(trace, span, edition), Unusable)
    click.echo(f"wrote {output}")


def _refuse_what_has_no_effect(ctx: click.Context, *, live: bool) -> None:
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if is_given and param.name in (OF_A_TRACE if live else OF_AN_INSTANCE):
            place = "with TRACE" if live else "with --live"
            raise click.UsageError(f"{param.opts[-1]} has an effect only {place}")


def _show_live(port: int, edition: str | None) -> None:
    from flux_trio.cli.connection.session import with_client
    from flux_trio.cli.judge.live_view import serve_live

    def show(url: str) -> None:
        click.echo(f"open {url}")
        sys.stdout.flush()

    try:
        with_client(lambda client: serve_live(client, port, show, edition=edition))
    except OSError as error:
        raise CommandError(f"port {port}: {error.strerror}") from None


def _page(trace: Path, span: tuple[int, int | None] | None, edition: str | None) -> str:
    from flux_trio.cli.judge.traces import of_edition, opened
    from flux_trio.cli.terminal.errors import remark
    from flux_trio.judge import judge_trace, load_clauses
    from flux_trio.judge.rules import CLASSIC, rules_of
    from flux_trio.views.viewer import Row, Rows, trace_page

    clauses = load_clauses()
    first, last = span or (0, None)
    make, rows = Rows(first), list[Row]()

    def note(record: Record, judged: frozenset[str]) -> None:
        is_in = len(rows) < RECORDS_MAX if span is None else last is None or record.n <= last
        row = make.add(record, judged) if is_in else None
        if row is not None:
            rows.append(row)

    with opened(trace) as source:
        whole, spoken = of_edition(source, edition)
        is_classic = spoken == CLASSIC
        judgement = judge_trace(whole, rules_of(spoken), clauses, classic=is_classic, note=note)
    if span is None and len(rows) == RECORDS_MAX < judgement.nrecords:
        more = f"of {judgement.nrecords} records; --records shows others"
        remark(f"the page has the first {RECORDS_MAX} {more}")
    if span is not None and not rows:
        remark(f"the page has no records: the trace has {judgement.nrecords}")
    return trace_page(trace.name, judgement, clauses, rows, make.begun)
