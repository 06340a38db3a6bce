"""An HTML page on how policies serve users and banks, with the runs side by side.

The page is self-contained and made from plain figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flux_trio.views.escaping import escape
from flux_trio.views.served_charts import LINES_MAX, Pair, draw_lines, draw_pairs
from flux_trio.views.simulation_plot import Steps
from flux_trio.views.svg import element
from flux_trio.views.verdict_page import STYLE

DRAWN_MAX: Final = 20  # names in one drawing; the table has all names

_GRID: Final = """
.runs { display: grid; gap: 1.4rem; grid-template-columns: repeat(auto-fit, minmax(560px, 1fr)); }
body { max-width: none; } td, th { text-align: right; }
td:first-child, th:first-child { text-align: left; }
"""


@dataclass(frozen=True, slots=True)
class Served:
    """The figures of one user or bank. Times are in seconds; None if no job of it started."""

    name: str
    njobs: int
    wait_mean_s: float | None
    wait_p95_s: float | None
    received: float
    """The part of all used core-seconds, 0 to 1."""
    owed: float
    """The part by the shares of the policy, 0 to 1."""
    priority: Steps
    """The mean priority of its pending jobs over time."""


@dataclass(frozen=True, slots=True)
class ServedRun:
    """One run under one policy; times are seconds since the Unix epoch."""

    name: str
    users: Sequence[Served]
    banks: Sequence[Served]
    t_begin: float
    t_end: float
    utilisation: float
    """From 0 to 1."""


def served_page(title: str, runs: Sequence[ServedRun]) -> str:
    """Return the page: a column for each run, with the same drawings in the same order."""
    columns = [element("section", *_column(run)) for run in runs]
    head = element("head", element("meta", charset="utf-8"), element("title", escape(title)),
                   f"<style>{STYLE}{_GRID}</style>")  # fmt: skip
    body = element("body", element("h1", escape(title)), element("div", *columns, class_="runs"))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _column(run: ServedRun) -> Iterator[str]:
    lasted = f"{(run.t_end - run.t_begin) / 3600:.1f} hours"
    yield element("h2", escape(run.name))
    njobs = sum(user.njobs for user in run.users)
    facts = f"{njobs} jobs in {lasted}, utilisation {run.utilisation:.1%}"
    yield element("p", facts, class_="aside")
    for kind, groups in (("bank", run.banks), ("user", run.users)):
        yield element("h3", f"By {kind}")
        drawn = sorted(groups, key=lambda each: -each.received)[:DRAWN_MAX]
        yield _figure(_shares(kind, drawn))
        yield _figure(_waits(kind, drawn))
        busiest = sorted(groups, key=lambda each: -each.njobs)[:LINES_MAX]
        lines = [(each.name, each.priority) for each in busiest]
        title = f"mean priority of pending jobs, by {kind}"
        yield _figure(draw_lines(title, lines, run.t_begin, run.t_end))
        yield _table(kind, groups)


def _shares(kind: str, groups: Sequence[Served]) -> str:
    pairs = [Pair(each.name, 100 * each.received, 100 * each.owed) for each in groups]
    title = f"share of the core-seconds used, by {kind}"
    return draw_pairs(title, "per cent", ("received", "owed"), pairs)


def _waits(kind: str, groups: Sequence[Served]) -> str:
    pairs = [
        Pair(each.name, (each.wait_mean_s or 0.0) / 60, (each.wait_p95_s or 0.0) / 60)
        for each in groups
    ]
    return draw_pairs(f"waiting time, by {kind}", "minutes", ("mean", "95th percentile"), pairs)


_COLUMNS: Final[tuple[tuple[str, Callable[[Served], str]], ...]] = (
    ("jobs", lambda each: str(each.njobs)),
    ("mean wait [min]", lambda each: _minutes(each.wait_mean_s)),
    ("95 % wait [min]", lambda each: _minutes(each.wait_p95_s)),
    ("received", lambda each: f"{each.received:.1%}"),
    ("owed", lambda each: f"{each.owed:.1%}"),
)


def _table(kind: str, groups: Sequence[Served]) -> str:
    head = element("tr", *(element("th", name) for name in (kind, *(n for n, _ in _COLUMNS))))
    rows = [
        element("tr", *(element("td", cell) for cell in
                        (escape(each.name), *(show(each) for _, show in _COLUMNS))))
        for each in sorted(groups, key=lambda each: (len(each.name), each.name))
    ]  # fmt: skip
    return element("table", element("thead", head), element("tbody", *rows))


def _minutes(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.1f}"


def _figure(picture: str) -> str:
    return element("figure", picture)
