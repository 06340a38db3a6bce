"""The charts of a comparison, as the JSON that Plotly draws: data and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from flux_trio.views.comparison.figures import Points, Served, ServedRun

Chart: TypeAlias = dict[str, Any]
"""`data` and `layout`, as `Plotly.newPlot` takes them."""

GroupsOf: TypeAlias = Callable[[ServedRun], Sequence[Served]]
"""Returns the users or the banks of a run."""

# The colours of Okabe and Ito, and one more: distinct also for the colour-blind.
HUES: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#7a5195",
)  # fmt: skip
NAMES_MAX: Final = 20
"""Users or banks in one chart: those with the most jobs. The table has all."""
USER_HUES: Final = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255",
    "#aa4499",
)  # fmt: skip
"""Of lines of users: the muted colours of Paul Tol, none of which a run has."""
DASHES: Final = ("solid", "dash", "dot", "dashdot")
"""Patterns of the lines of further users."""
ROW_PX: Final = 190


def over_time(runs: Sequence[ServedRun]) -> Chart:
    """Utilisation and queue length of each run, on one axis of time."""
    rows: list[tuple[str, list[Chart]]] = [
        ("cores in use", [_of_run(run, run.utilisation_series, runs) for run in runs]),
        ("jobs that wait", [_of_run(run, run.queue_length_series, runs) for run in runs]),
    ]
    for chart in rows[1][1]:
        chart["showlegend"] = False  # the names are those of the first row
    drawn = _rows(rows)
    drawn["layout"]["yaxis"]["tickformat"] = ".0%"
    return drawn


def priorities(runs: Sequence[ServedRun]) -> Chart | None:
    """The mean priority of each user's pending jobs, a row for each run; None without priorities.

    A user has one colour and pattern in all rows, and no colour is that of a run. Users whose
    priorities are the same all the time share a line, which is named after all of them.
    """
    users = [user.name for user in most_jobs(runs[0].users)]
    named: set[str] = set()
    rows: list[tuple[str, list[Chart]]] = []
    for run in runs:
        lines = []
        alike: dict[tuple[tuple[float, float | None], ...], list[str]] = {}
        for user in sorted(run.users, key=lambda each: each.name):
            if user.priority and user.name in users:
                alike.setdefault(tuple(user.priority), []).append(user.name)
        for points, names in alike.items():
            place, name = users.index(names[0]), ", ".join(names)
            line = _steps(name, USER_HUES[place % len(USER_HUES)], points)
            line["line"]["dash"] = DASHES[place // len(USER_HUES) % len(DASHES)]
            lines.append(line | {"legendgroup": name, "showlegend": name not in named})
            named.add(name)
        if lines:
            rows.append((f"mean priority<br>{run.name}", lines))
    return _rows(rows) if rows else None


def _rows(rows: Sequence[tuple[str, list[Chart]]]) -> Chart:
    """Return one chart with the lines of each row below each other."""
    data: list[Chart] = []
    layout: Chart = {"height": ROW_PX * len(rows) + 80, "hovermode": "x unified"}
    share = 1 / len(rows)
    for place, (title, lines) in enumerate(rows):
        axis = str(place + 1) if place else ""
        top = 1 - place * share
        layout[f"yaxis{axis}"] = {"domain": [top - 0.82 * share, top], "title": {"text": title},
                                  "rangemode": "tozero"}  # fmt: skip
        data += [line | {"yaxis": f"y{axis}"} for line in lines]
    layout["xaxis"] = {"type": "date", "anchor": f"y{len(rows)}"}
    return {"data": data, "layout": layout}


def _of_run(run: ServedRun, points: Points, runs: Sequence[ServedRun]) -> Chart:
    hue = HUES[runs.index(run) % len(HUES)]
    return _steps(run.name, hue, points) | {"legendgroup": f"run {run.name}"}


def _steps(name: str, hue: str, points: Points) -> Chart:
    drawn = list(_with_ends(points))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [_date(at) for at, _ in drawn],
        "y": [None if value is None else round(value, 4) for _, value in drawn],
        "connectgaps": False,
        "line": {"shape": "hv", "color": hue, "width": 2},
        "xaxis": "x",
    }


def _with_ends(points: Points) -> Iterator[tuple[float, float | None]]:
    """Yield the points, and before each gap the last value once more, so that its step is drawn."""
    before = None
    for at, value in points:
        if value is None and before is not None:
            yield at, before
        yield at, value
        before = value


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def waits(runs: Sequence[ServedRun], of: GroupsOf) -> Chart:
    """The mean wait of each user or bank in each run, in hours."""
    return _bars(runs, of, "mean wait [h]", lambda each: _hours(each.wait_mean_s))


def changes(runs: Sequence[ServedRun], of: GroupsOf) -> Chart:
    """The change of each mean wait against the first run, in per cent."""
    before = {each.name: each.wait_mean_s for each in of(runs[0])}

    def change(each: Served) -> float | None:
        return change_percent(each.wait_mean_s, before.get(each.name))

    title = f"mean wait against {runs[0].name} [%]"
    return _bars(runs[1:], of, title, change, first_hue=1)


def shares(runs: Sequence[ServedRun], of: GroupsOf) -> Chart:
    """The part of the core-seconds that each user or bank received, and what it was owed."""
    chart = _bars(runs, of, "share [%]", lambda each: round(100 * each.received, 2))
    owed = {each.name: round(100 * each.owed, 2) for run in runs[-1:] for each in of(run)}
    names = chart["data"][0]["x"] if chart["data"] else []
    chart["data"].append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"owed by {runs[-1].name}",
            "x": names,
            "y": [owed.get(name) for name in names],
            "marker": {"symbol": "line-ew-open", "size": 18, "color": "#222"},
        }
    )
    return chart


def _bars(
    runs: Sequence[ServedRun],
    of: GroupsOf,
    title: str,
    value: Callable[[Served], float | None],
    first_hue: int = 0,
) -> Chart:
    names = [each.name for each in most_jobs(of(runs[0]))[:NAMES_MAX]] if runs else []
    data = []
    for place, run in enumerate(runs):
        found = {each.name: value(each) for each in of(run)}
        data.append(
            {
                "type": "bar",
                "name": run.name,
                "x": names,
                "y": [found.get(name) for name in names],
                "marker": {"color": HUES[(place + first_hue) % len(HUES)]},
            }
        )
    layout = {"height": 320, "barmode": "group", "yaxis": {"title": {"text": title}},
              "xaxis": {"type": "category"}}  # fmt: skip
    return {"data": data, "layout": layout}


def most_jobs(groups: Sequence[Served]) -> list[Served]:
    """Return the groups, that with the most jobs first."""
    return sorted(groups, key=lambda each: (-each.njobs, each.name))


def change_percent(after: float | None, before: float | None) -> float | None:
    """Return how much `after` is above `before`, in per cent; None if that has no meaning."""
    return None if after is None or not before else round(100 * (after / before - 1), 1)


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / 3600, 3)
