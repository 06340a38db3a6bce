"""A protocol's state table as a diagram of its transitions, and as a Markdown table.

The diagram has the states in a column. An arrow to the next state is between the two boxes, an
arrow further down is on the right, an arrow back up is on the left. Events that do not change the
state are only in the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from flux_trio.protocols import Table
from flux_trio.views import svg

BOX_WIDTH_MIN: Final = 150
BOX_HEIGHT: Final = 44
LINE: Final = 15  # height of one line of text
GAP_MIN: Final = 44
LANE: Final = 26  # distance of two rails, from the text of the inner one
MARGIN: Final = 16
TITLE: Final = 30

STAYS: Final = "stays"
NOT_ALLOWED: Final = ""


def table_markdown(table: Table[Any, Any]) -> str:
    """Return the next state by event (rows) and state (columns); empty if not allowed."""
    states = list(table.rows)
    rows = [["event", *[state.name for state in states]], ["---"] * (len(states) + 1)]
    for event in _events(table):
        cells = [_cell(table, state, event) for state in states]
        rows.append([event.value, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(table: Table[Any, Any], state: Enum, event: Enum) -> str:
    if not table.allows(state, event):
        return NOT_ALLOWED
    after = table.step(state, event)
    return STAYS if after == state else f"**{after.name}**"


def _events(table: Table[Any, Any]) -> list[Enum]:
    """Return the events that have a row, in the order of their definition."""
    used = {event for _, event, _ in table}
    return [event for event in type(next(iter(used))) if event in used]


@dataclass(frozen=True, slots=True)
class _Arrow:
    """Events (labels) that lead from each of the source states to the target, by index."""

    sources: tuple[int, ...]
    target: int
    labels: tuple[str, ...]

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last index that the arrow touches."""
        return min(*self.sources, self.target), max(*self.sources, self.target)

    @property
    def label_width(self) -> float:
        """The width of the widest label, in pixels."""
        return max(map(svg.text_px, self.labels))


@dataclass(frozen=True, slots=True)
class _Rail:
    """The x of the vertical part of an arrow at the side, from the middle."""

    arrow: _Arrow
    x: float


def draw_states(table: Table[Any, Any]) -> str:
    """Return the diagram as a self-contained SVG."""
    states = list(table.rows)
    down, right, left = _sorted_arrows(_arrows(table, states))
    half = max([BOX_WIDTH_MIN, *[_box_px(state) for state in states]]) / 2
    tops = _tops(states, down)
    rails_left, reach_left = _rails(left, half, -1)
    beside = [arrow.label_width for arrow in down]  # this text is to the right of the middle line
    rails_right, reach_right = _rails(right, max([half, *beside]), +1)
    center = MARGIN + reach_left
    title = f"{table.name}: what changes the state"
    width = max(center + reach_right, svg.text_px(title) * 1.4) + MARGIN
    body = [svg.text(MARGIN, 24, title, class_="title")]
    for rail in rails_left + rails_right:
        body += _draw_rail(rail, center, half, tops)
    for arrow in down:
        body += _draw_down(arrow, center, tops)
    for index, state in enumerate(states):
        body += _draw_box(state, center, half, tops[index], initial=state == table.initial)
    height = tops[-1] + BOX_HEIGHT + MARGIN
    label = f"State diagram of {table.name}: {', '.join(state.name for state in states)}"
    return svg.document(round(width), height, label, body)


def _arrows(table: Table[Any, Any], states: list[Enum]) -> list[_Arrow]:
    """Return one arrow for each target and set of events, from all states that share the set."""
    labels: dict[tuple[int, int], list[str]] = {}
    for state, event, after in table:
        if after != state:
            key = (states.index(state), states.index(after))
            labels.setdefault(key, []).append(event.value)
    merged: dict[tuple[int, bool, tuple[str, ...]], list[int]] = {}
    for (source, target), events in labels.items():
        merged.setdefault((target, source < target, tuple(events)), []).append(source)
    return [
        _Arrow(tuple(sources), target, events) for (target, _, events), sources in merged.items()
    ]


def _sorted_arrows(arrows: list[_Arrow]) -> tuple[list[_Arrow], list[_Arrow], list[_Arrow]]:
    """Return arrows to the next state, further down, and back up; short arrows first."""
    down = [arrow for arrow in arrows if arrow.sources == (arrow.target - 1,)]
    rest = sorted(
        (arrow for arrow in arrows if arrow not in down),
        key=lambda arrow: (arrow.span[1] - arrow.span[0], arrow.span, arrow.labels),
    )
    right = [arrow for arrow in rest if min(arrow.sources) < arrow.target]
    left = [arrow for arrow in rest if arrow not in right]
    return down, right, left


def _box_px(state: Enum) -> float:
    return max(svg.text_px(state.name) * 1.15, svg.text_px(_describe(state)) * 0.88) + 24


def _describe(state: Enum) -> str:
    return state.value if isinstance(state.value, str) else ""


def _tops(states: list[Enum], down: Iterable[_Arrow]) -> list[float]:
    """Return the upper edge of each box; the text between two boxes decides their distance."""
    lines = {arrow.target: len(arrow.labels) for arrow in down}
    tops = [float(TITLE + MARGIN)]
    for index in range(1, len(states)):
        gap = max(GAP_MIN, lines.get(index, 0) * LINE + 22)
        tops.append(tops[-1] + BOX_HEIGHT + gap)
    return tops


def _rails(arrows: list[_Arrow], inner: float, side: int) -> tuple[list[_Rail], float]:
    """Return a rail for each arrow, outside the rails that it overlaps, and the total width."""
    rails: list[_Rail] = []
    reach: list[tuple[_Arrow, float]] = []
    for arrow in arrows:
        beside = [out for other, out in reach if _overlap(arrow.span, other.span)]
        x = max([inner, *beside]) + LANE
        rails.append(_Rail(arrow, side * x))
        reach.append((arrow, x + arrow.label_width))
    return rails, max([inner, *[out for _, out in reach]])


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _draw_rail(rail: _Rail, center: float, half: float, tops: list[float]) -> list[str]:
    arrow, side = rail.arrow, (1 if rail.x > 0 else -1)
    x, edge = center + rail.x, center + side * half
    # arrows leave a box in its lower half and enter it in its upper half
    end = tops[arrow.target] + BOX_HEIGHT * 0.3
    starts = [tops[source] + BOX_HEIGHT * 0.7 for source in arrow.sources]
    far = max([*starts, end], key=lambda y: abs(y - end))
    drawn = [svg.path([(edge, far), (x, far), (x, end), (edge + side * 2, end)], "arrow")]
    drawn += [svg.line(edge, start, x, start, "arrow") for start in starts if start != far]
    drawn.append(_head(edge, end, (side, 0)))
    first, last = arrow.span
    gap = (first + last) // 2  # the text is between two boxes: no line crosses there
    middle = (tops[gap] + BOX_HEIGHT + tops[gap + 1]) / 2
    anchor = "start" if side > 0 else "end"
    return drawn + _text_lines(x + side * 6, middle, arrow.labels, anchor)


def _draw_down(arrow: _Arrow, center: float, tops: list[float]) -> list[str]:
    top, bottom = tops[arrow.target - 1] + BOX_HEIGHT, tops[arrow.target]
    return [
        svg.line(center, top, center, bottom - 2, "arrow"),
        _head(center, bottom, (0, -1)),
        *_text_lines(center + 8, (top + bottom) / 2 - 2, arrow.labels, "start"),
    ]


def _draw_box(state: Enum, center: float, half: float, top: float, *, initial: bool) -> list[str]:
    about = _describe(state)
    drawn = [
        svg.element("rect", x=center - half, y=top, width=2 * half, height=BOX_HEIGHT, rx=6,
                    class_="box"),
        svg.text(center, top + (19 if about else 27), state.name, text_anchor="middle",
                 class_="strong"),
    ]  # fmt: skip
    if about:
        drawn.append(svg.text(center, top + 35, about, text_anchor="middle", class_="quiet"))
    if initial:
        drawn.append(svg.element("circle", cx=center - half, cy=top, r=5, class_="head"))
    return drawn


def _text_lines(x: float, middle: float, lines: tuple[str, ...], anchor: str) -> list[str]:
    first = middle - LINE * (len(lines) - 1) / 2 + 4
    return [
        svg.text(x, first + LINE * index, content, text_anchor=anchor, class_="quiet")
        for index, content in enumerate(lines)
    ]


def _head(x: float, y: float, away: tuple[int, int]) -> str:
    """Draw the head of an arrow that ends at (x, y) and comes from the direction `away`."""
    dx, dy = away
    back_x, back_y = x + 9 * dx, y + 9 * dy
    corners = [(x, y), (back_x + 4 * dy, back_y + 4 * dx), (back_x - 4 * dy, back_y - 4 * dx)]
    return svg.path(corners, "head", closed=True)
