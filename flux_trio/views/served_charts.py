"""The drawings of a report on a policy: pairs of bars, and lines over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from flux_trio.views import svg
from flux_trio.views.simulation_plot import LEVELS, Steps, nice_step, time_ticks

WIDTH: Final = 540
LEFT, RIGHT, TOP = 96, 18, 56  # TOP has room for two rows of names
ROW: Final = 26  # height of one name's bars
BAR: Final = 8  # thickness of one bar
FOOT: Final = 40  # the numbers and the unit below
PLOT: Final = 190  # height of lines
LEGEND_PX: Final = 110  # width of one name
NAME_MAX: Final = 13  # characters of a name beside its bars

# The colours of Okabe and Ito, and one more: readable on light and dark pages.
HUES: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#7a5195",
)  # fmt: skip
LINES_MAX: Final = len(HUES)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values of one name, on the same scale."""

    name: str
    first: float
    second: float


def draw_pairs(title: str, unit: str, kinds: tuple[str, str], pairs: Sequence[Pair]) -> str:
    """Draw a pair of bars for each name; `kinds` names the first and the second bar."""
    peak = max((max(pair.first, pair.second) for pair in pairs), default=0.0) or 1.0
    step = _step(peak)
    right = ceil(peak / step) * step
    bottom = TOP + ROW * len(pairs)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / right

    body = [svg.text(8, 18, title, class_="strong"), *_legend(kinds, HUES)]
    for index in range(round(right / step) + 1):
        at = x(index * step)
        body.append(svg.line(at, TOP, at, bottom, "grid" if index else "axis"))
        body.append(svg.text(at, bottom + 15, f"{index * step:,g}", text_anchor="middle"))
    for place, pair in enumerate(pairs):
        body += _bars(pair, TOP + ROW * place, x)
    body.append(svg.text(x(right / 2), bottom + 32, unit, text_anchor="middle"))
    return svg.document(WIDTH, bottom + FOOT, title, body)


def draw_lines(title: str, lines: Sequence[tuple[str, Steps]], t_begin: float, t_end: float) -> str:
    """Draw at most LINES_MAX step functions on a time axis from `t_begin` to `t_end` (seconds)."""
    span = max(t_end - t_begin, 1.0)
    peak = max((value for _, steps in lines for _, value in steps), default=0.0) or 1.0
    step = _step(peak)
    top = ceil(peak / step) * step
    bottom = TOP + PLOT

    def x(after: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(after, 0.0), span) / span

    def y(value: float) -> float:
        return bottom - PLOT * value / top

    body = [svg.text(8, 18, title, class_="strong"), *_legend([name for name, _ in lines], HUES)]
    for index in range(round(top / step) + 1):
        at = y(index * step)
        body.append(svg.line(LEFT, at, WIDTH - RIGHT, at, "grid" if index else "axis"))
        body.append(svg.text(LEFT - 7, at + 4, f"{index * step:,g}", text_anchor="end"))
    caption, ticks = time_ticks(span)
    for after, label in ticks:
        body.append(svg.text(x(after), bottom + 15, label, text_anchor="middle"))
    body.append(svg.text(x(span / 2), bottom + 32, caption, text_anchor="middle"))
    for hue, (_, steps) in zip(HUES, lines, strict=False):
        body += _steps([(at - t_begin, value) for at, value in steps], x, y, hue)
    return svg.document(WIDTH, bottom + FOOT, title, body)


def _bars(pair: Pair, top: float, x: Callable[[float], float]) -> list[str]:
    name = pair.name if len(pair.name) <= NAME_MAX else pair.name[: NAME_MAX - 1] + "…"
    drawn = [svg.text(LEFT - 7, top + BAR + 5, name, text_anchor="end")]
    for place, value in enumerate((pair.first, pair.second)):
        drawn.append(
            svg.element(
                "rect",
                x=LEFT,
                y=top + 3 + place * (BAR + 1),
                width=max(x(value) - LEFT, 0.5),
                height=BAR,
                fill=HUES[place],
            )
        )
    return drawn


def _steps(
    steps: Steps, x: Callable[[float], float], y: Callable[[float], float], hue: str
) -> list[str]:
    points: list[tuple[float, float]] = []
    for after, value in steps:
        if points:
            points.append((x(after), points[-1][1]))
        points.append((x(after), y(value)))
    if not points:
        return []
    d = "M" + "L".join(f"{svg.number(px)} {svg.number(py)}" for px, py in points)
    return [svg.element("path", d=d, fill="none", stroke=hue, stroke_width=1.5)]


def _legend(names: Sequence[str], hues: Sequence[str]) -> list[str]:
    drawn = []
    for place, (name, hue) in enumerate(zip(names, hues, strict=False)):
        column, row = place % 4, place // 4
        at, top = 8 + column * (LEGEND_PX + 20), 24 + row * 11
        drawn.append(svg.element("rect", x=at, y=top, width=9, height=8, fill=hue))
        drawn.append(svg.text(at + 13, top + 8, name, class_="quiet"))
    return drawn


def _step(peak: float) -> float:
    """Return the distance of two levels of an axis up to `peak`, which may be far below 1."""
    unit = 1.0
    while peak / LEVELS < unit:
        unit /= 10
    return nice_step(peak / LEVELS / unit) * unit
