"""Utilisation and queue length of a run over time, as one self-contained SVG.

Two panels share the time axis. The picture is made from plain step functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from flux_trio.views import svg

Steps = Sequence[tuple[float, float]]
"""Pairs of (time in seconds, value from then on), times ascending."""

WIDTH: Final = 860
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 48, 50
PANEL: Final = 150  # height of each of the two panels
GAP: Final = 26
TICKS: Final = 8  # approximate number on the time axis
LEVELS: Final = 4  # approximate number on the other axes

# Units of the time axis: name, seconds, and the readable steps between ticks.
_UNITS: Final = (
    ("days", 86400.0, (1, 2, 3, 4, 7, 14, 28)),
    ("hours", 3600.0, (1, 2, 3, 4, 6, 12, 24)),
    ("minutes", 60.0, (1, 2, 3, 5, 10, 15, 30)),
    ("seconds", 1.0, (1, 2, 3, 5, 10, 15, 30)),
)


@dataclass(frozen=True, slots=True)
class _Panel:
    """The position of one panel, and its vertical axis."""

    top: float
    label: str
    unit: str  # follows the number of each tick
    scale: float  # factor from a value to a tick's number
    peak: float  # the value at the upper edge
    colour: str

    def y(self, value: float) -> float:
        return self.top + PANEL * (1 - value / self.peak)


def draw_simulation(
    title: str, utilisation: Steps, queue_length: Steps, t_begin: float, t_end: float
) -> str:
    """Draw a run from `t_begin` to `t_end`, in seconds.

    Utilisation is from 0 to 1, queue length is in jobs.
    """
    span = max(t_end - t_begin, 1.0)
    longest = max((value for _, value in queue_length), default=0.0)
    step = nice_step(max(longest, 1.0) / LEVELS)
    panels = (
        _Panel(TOP, "utilisation", "%", 100.0, 1.0, "first"),
        _Panel(TOP + PANEL + GAP, "jobs in queue", "", 1.0, step * ceil(max(longest, 1.0) / step),
               "second"),
    )  # fmt: skip
    body = [svg.text(LEFT, 26, title, class_="title")]
    for panel, series, every in zip(panels, (utilisation, queue_length), (0.25, step), strict=True):
        body += _time_axis(panel, span, labelled=panel is panels[-1])
        body += _levels(panel, every)
        body += _curve(panel, [(at - t_begin, value) for at, value in series], span)
    height = TOP + 2 * PANEL + GAP + BOTTOM
    label = f"{title}: utilisation and queue length over {_unit(span)[0]}"
    return svg.document(WIDTH, height, label, body)


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is at least `least`."""
    decade = 10.0 ** floor(log10(max(least, 1.0)))
    return next(decade * factor for factor in (1, 2, 5, 10) if decade * factor >= least)


def _x(after: float, span: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * after / span


def _unit(span: float) -> tuple[str, float, tuple[int, ...]]:
    """Return the largest unit that fits at least three times into `span`."""
    return next((unit for unit in _UNITS if span >= 3 * unit[1]), _UNITS[-1])


def time_ticks(span: float) -> tuple[str, list[tuple[float, str]]]:
    """Return the caption of a time axis of `span` seconds, and its ticks: (seconds, label)."""
    name, length, steps = _unit(span)
    wanted = span / length / TICKS
    every = next((step for step in steps if step >= wanted), nice_step(wanted)) * length
    count = floor(span / every) + 1
    ticks = [(index * every, f"{index * every / length:g}") for index in range(count)]
    return f"time since the first submit [{name}]", ticks


def _time_axis(panel: _Panel, span: float, *, labelled: bool) -> list[str]:
    caption, ticks = time_ticks(span)
    bottom = panel.top + PANEL
    drawn = [svg.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")]
    for after, label in ticks:
        x = _x(after, span)
        drawn.append(svg.line(x, panel.top, x, bottom, "grid"))
        if labelled:
            drawn.append(svg.text(x, bottom + 17, label, text_anchor="middle"))
    if labelled:
        middle = (LEFT + WIDTH - RIGHT) / 2
        drawn.append(svg.text(middle, bottom + 38, caption, text_anchor="middle"))
    return drawn


def _levels(panel: _Panel, every: float) -> list[str]:
    drawn = []
    for index in range(round(panel.peak / every) + 1):
        value = index * every
        y = panel.y(value)
        drawn.append(svg.line(LEFT, y, WIDTH - RIGHT, y, "grid" if index else "axis"))
        tick = f"{value * panel.scale:,.0f}{panel.unit}"
        drawn.append(svg.text(LEFT - 7, y + 4, tick, text_anchor="end"))
    middle = panel.top + PANEL / 2
    turned = f"rotate(-90 18 {svg.number(middle)})"
    drawn.append(svg.text(18, middle, panel.label, text_anchor="middle", transform=turned))
    return drawn


def _curve(panel: _Panel, series: Steps, span: float) -> list[str]:
    points: list[tuple[float, float]] = []
    for at, value in series:
        x = _x(min(max(at, 0.0), span), span)
        if points:
            points.append((x, points[-1][1]))
        points.append((x, panel.y(value)))
    if not points:
        return []
    points.append((_x(span, span), points[-1][1]))
    ground = panel.y(0.0)
    area = [(points[0][0], ground), *points, (points[-1][0], ground)]
    return [
        svg.path(area, f"{panel.colour}-area", closed=True),
        svg.path(points, panel.colour),
    ]
