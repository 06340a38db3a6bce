"""A self-contained HTML page that compares simulated runs. Plotly draws the charts.

Plotly's script is part of the page, so that hover and zoom work without a network.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from flux_trio.views.comparison import charts
from flux_trio.views.comparison.figures import FailedRun, Served, ServedRun
from flux_trio.views.svg import element, escape, page, script_json, table_rows
from flux_trio.views.verdict_page import STYLE

_STYLE: Final = """
body { max-width: 1300px; }
td, th { text-align: right; padding: 0.15rem 0.6rem; }
td:first-child, th:first-child { text-align: left; }
td:last-child { text-align: left; }
.wide table { width: auto; }
.wide { overflow-x: auto; }
"""

_DRAW: Final = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const margin = { l: 80, r: 20, t: 60, b: 40 };
const legend = { orientation: "h", y: 1, yanchor: "bottom" };
for (const [id, chart] of Object.entries(charts)) {
  const layout = { margin, legend, ...chart.layout };
  Plotly.newPlot(id, chart.data, layout, { responsive: true, displaylogo: false });
}
"""


class _Drawn(NamedTuple):
    """A chart, its title, and the id of its element."""

    id: str
    title: str
    chart: charts.Chart


def comparison_page(
    title: str,
    options: Mapping[str, str],
    runs: Sequence[ServedRun],
    failed: Sequence[FailedRun] = (),
) -> str:
    """Return the page. The first of `runs` is the baseline; `options` are those of the command.

    Raises ModuleNotFoundError without the package plotly, which draws the charts.
    """
    drawn = list(_charts(runs))
    data = {each.id: each.chart for each in drawn}
    body = [
        element("h1", escape(title)),
        *_failures(failed),
        *(_sections(runs, drawn) if runs else ()),
        *_facts(options),
        f'<script type="application/json" id="charts">{script_json(data)}</script>',
        f"<script>{_plotly()}</script>",
        f"<script>{_DRAW}</script>",
    ]
    return page(title, STYLE + _STYLE, body)


def _charts(runs: Sequence[ServedRun]) -> Iterator[_Drawn]:
    if not runs:
        return
    yield _Drawn("over-time", "Over time", charts.over_time(runs))
    if (chart := charts.priorities(runs)) is not None:
        yield _Drawn("priorities", "Priorities of users over time", chart)
    groups: dict[str, charts.GroupsOf] = {"user": lambda run: run.users}
    if any(len(run.banks) > 1 for run in runs):
        groups["bank"] = lambda run: run.banks
    for kind, of in groups.items():
        yield _Drawn(f"waits-{kind}", f"Mean wait by {kind}", charts.waits(runs, of))
        if len(runs) > 1:
            title = f"Mean wait by {kind}, against {runs[0].name}"
            yield _Drawn(f"changes-{kind}", title, charts.changes(runs, of))
        title = f"Share of the core-seconds by {kind}"
        yield _Drawn(f"shares-{kind}", title, charts.shares(runs, of))


def _plotly() -> str:
    files = importlib.resources.files("plotly")
    return (files / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


# --- text and tables


def _facts(options: Mapping[str, str]) -> Iterator[str]:
    rows = [(escape(name), escape(value)) for name, value in options.items()]
    yield element("h2", "Options")
    yield _table(("option", ""), rows)


def _failures(failed: Sequence[FailedRun]) -> Iterator[str]:
    if failed:
        yield element("h2", "Runs that failed")
        yield _table(("run", "why"), [(escape(each.name), escape(each.why)) for each in failed])


def _sections(runs: Sequence[ServedRun], drawn: Sequence[_Drawn]) -> Iterator[str]:
    yield element("h2", "Runs")
    yield _runs(runs)
    for each in drawn:
        yield element("h2", escape(each.title))
        yield f'<div id="{each.id}"></div>'  # an empty element would not end in HTML
    yield element("h2", "All users")
    yield _groups(runs)
    yield element("h2", "The jobs that waited longest")
    for run in runs:
        yield element("h3", escape(run.name))
        rows = [
            (escape(each.name), escape(each.user), str(each.ncores), _hours(each.wait_s),
             escape(each.why))
            for each in run.longest
        ]  # fmt: skip
        yield _table(("job", "user", "cores", "wait [h]", "why"), rows)


def _runs(runs: Sequence[ServedRun]) -> str:
    first = runs[0]
    rows = [
        (
            escape(run.name),
            str(run.njobs),
            _hours(run.t_end - run.t_begin),
            f"{run.utilisation:.1%}",
            _hours(run.wait_mean_s),
            _change(run.wait_mean_s, first.wait_mean_s) if run is not first else "baseline",
            _hours(run.wait_p95_s),
            "-" if run.slowdown_mean is None else f"{run.slowdown_mean:.2f}",
        )
        for run in runs
    ]
    head = ("run", "jobs", "makespan [h]", "utilisation", "mean wait [h]", "change",
            "95 % wait [h]", "mean bounded slowdown")  # fmt: skip
    return _table(head, rows)


def _groups(runs: Sequence[ServedRun]) -> str:
    """A row for each user: the mean wait in each run, and the change against the first."""
    found: list[dict[str, Served]] = [{each.name: each for each in run.users} for run in runs]
    head = ["user", "jobs"]
    for place, run in enumerate(runs):
        head += [f"{escape(run.name)} [h]", *(["change"] if place else [])]
    rows = []
    for user in charts.most_jobs(runs[0].users):
        row = [escape(user.name), str(user.njobs)]
        for place, of_run in enumerate(found):
            mine = of_run.get(user.name)
            wait = None if mine is None else mine.wait_mean_s
            row += [_hours(wait), *([_change(wait, user.wait_mean_s)] if place else [])]
        rows.append(tuple(row))
    return _table(tuple(head), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = element("thead", *table_rows([head], "th"))
    table = element("table", top, element("tbody", *table_rows(rows)))
    return element("div", table, class_="wide")


def _change(after: float | None, before: float | None) -> str:
    change = charts.change_percent(after, before)
    return "-" if change is None else f"{change:+.1f} %"


def _hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.2f}"
