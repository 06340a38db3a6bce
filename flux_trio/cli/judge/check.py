"""`flux-trio check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_trio.cli.judge.traces import of_edition, opened_twice, refuse_to_overwrite
from flux_trio.cli.terminal.errors import Unusable, remark, write_text
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import EDITION_OPTION, STRICT_OPTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flux_trio.judge import Clause, Judgement
    from flux_trio.judge.known import Departure
    from flux_trio.trace import Record

BROKEN = 1


@click.command(cls=Command)
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@EDITION_OPTION
@click.option(
    "--at-rest",
    is_flag=True,
    help="Take the end of the trace for the end of all activity: an answer or event that is still "
    "due there is a violation.",
)
@click.option(
    "--known",
    multiple=True,
    metavar="FILE",
    help="Departures that are known, each with its reason: they are listed and do not count. FILE "
    "is a TOML file, or the name of one that comes with flux-trio: flux-core-0.88 or "
    "fluxion-0.54. May be given several times.",
)
@STRICT_OPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "junit", "html"]),
    default="text",
    show_default=True,
    help="The format of the report.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE.",
)
@click.pass_context
def check(
    ctx: click.Context,
    *,
    trace: Path,
    edition: str | None,
    at_rest: bool,
    known: tuple[str, ...],
    strict: bool,
    form: str,
    output: Path | None,
) -> None:
    """Judge the messages in TRACE by the clauses of the RFCs.

    TRACE is a file that `flux-trio start --trace` wrote, what `flux module trace --full` prints (of
    flux-core or flux-trio), or a JSON object with messages in the order in which a router forwarded
    them; `-` is standard input. A clause that the trace does not exercise, or cannot show, is
    counted as not exercised; it is not broken. If the trace begins while the instance runs, what
    needs its beginning is judged of modules that were loaded since.

    If a trace was not written to its end, because the disk was full or its instance was killed, a
    remark on standard error says so. Another one says so if
    its messages have no payloads.

    Exit codes: 0 if no clause is broken except by known departures, 1 if at least one is, 2 if the
    trace cannot be read or for wrong usage. What is only recommended is listed as advice, and
    leaves the exit code alone without --strict. What is unexplained, such as a lost service, breaks
    no clause and may be what was meant: it leaves the exit code alone.
    """
    from flux_trio.judge import judge_trace, load_clauses, pick_records
    from flux_trio.judge.known import sort_known
    from flux_trio.judge.rules import CLASSIC, rules_of

    refuse_to_overwrite(trace, output)
    clauses = load_clauses()
    departures = [each for name in known for each in _departures(name)]
    cuts: list[int] = []
    with opened_twice(trace, cuts.append) as (source, read_again):
        shows_payloads = source.shown.payloads
        source, spoken = of_edition(source, edition)
        is_classic = spoken == CLASSIC
        rules = rules_of(spoken)
        judgement = judge_trace(source, rules, clauses, classic=is_classic, at_rest=at_rest)
        judgement = sort_known(judgement, departures).apart()
        records = pick_records(read_again(), judgement.wanted())
    if not shows_payloads:
        text = "no message has a payload, as of `flux module trace` without --full"
        remark(f"{trace}: {text}: only who sends what was judged")
    for line in cuts:
        what = f"line {line} is cut off" if line else "it has no end"
        remark(f"{trace}: the trace is not whole: {what}; more may have happened")
    text = _report(form, trace.name, judgement, clauses, records)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text, Unusable)
    ctx.exit(BROKEN if judgement.violations or (strict and judgement.advice) else 0)


def _departures(name: str) -> list[Departure]:
    from flux_trio.formats import FormatError
    from flux_trio.judge.known import load_shipped, parse_known, shipped

    if name in shipped():
        return load_shipped(name)
    try:
        return parse_known(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{name}: {error.strerror}, and it is not one of {', '.join(shipped())}"
        raise Unusable(text) from None
    except (FormatError, UnicodeError) as error:
        raise Unusable(f"{name}: {error}") from None


def _report(
    form: str,
    name: str,
    judgement: Judgement,
    clauses: Mapping[str, Clause],
    records: dict[int, Record],
) -> str:
    from flux_trio.cli.terminal.events import json_text
    from flux_trio.views import verdict_json, verdict_junit, verdict_page, verdict_text

    match form:
        case "json":
            found = {"trace": name, **verdict_json(judgement, clauses, records)}
            return json_text(found) + "\n"
        case "junit":
            return verdict_junit(judgement, clauses, records, name)
        case "html":
            return verdict_page(name, judgement, clauses, records)
        case _:
            return verdict_text(judgement, records)
