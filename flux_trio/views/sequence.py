"""A sequence diagram of a few records: a line for each party, arrows between them, time downward.

The records are in their order. If both the send and the receipt of a message are there, it is one
slanted arrow; if only one is there, the arrow is level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flux_trio.trace import Kind, Record
from flux_trio.views import svg
from flux_trio.views.arrows import content, sender_of

TOP: Final = 54
ROW: Final = 42
LANE_MIN: Final = 220
LANE_MAX: Final = 560
BOLDER: Final = 1.12  # bold text is wider by this factor
SIDE: Final = 20
STAMP: Final = 92  # for the time of a row
LABEL_CHARS_MAX: Final = 90
HEAD_PX: Final = 7
NOBODY: Final = "(all)"

STYLE: Final = f"""{svg.STYLE}
.said, .bad {{ paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }}
.note {{ fill: #f6f8fa; stroke: #8c959f; }}
.bad {{ fill: #b34700; font-weight: bold; }}
.bad-line {{ fill: none; stroke: #d55e00; stroke-width: 2; }}
.bad-head {{ fill: #d55e00; }}
.bad-note {{ fill: #fdf0e6; stroke: #d55e00; stroke-width: 2; }}
@media (prefers-color-scheme: dark) {{
.said, .bad {{ stroke: #161b22; }}
.note {{ fill: #21262d; stroke: #6e7681; }}
.bad {{ fill: #ffa657; }}
.bad-line {{ stroke: #e69f00; }}
.bad-head {{ fill: #e69f00; }}
.bad-note {{ fill: #33260d; stroke: #e69f00; }}
}}
"""


@dataclass(frozen=True, slots=True)
class _Frame:
    """The layout: x of each party, y of each record by its number."""

    ends: dict[int, tuple[str, ...]]
    lanes: dict[str, float]
    rows: dict[int, float]
    taken: set[int]  # numbers of sends whose receipt is in the picture
    broken: int
    width: float


def draw_sequence(records: Sequence[Record], broken: int, label: str) -> str:
    """Return the diagram as SVG; the record with the number `broken` is highlighted."""
    ends = _all_ends(records)
    parties = list(dict.fromkeys(party for each in ends.values() for party in each))
    lane_px = _lane_px(records)
    height = TOP + ROW * len(records) + SIDE
    frame = _Frame(
        ends=ends,
        lanes={party: STAMP + SIDE + lane_px * (at + 0.5) for at, party in enumerate(parties)},
        rows={record.n: TOP + ROW * (at + 0.62) for at, record in enumerate(records)},
        taken={record.ref for record in records if record.kind == Kind.RECV},
        broken=broken,
        width=STAMP + 2 * SIDE + lane_px * len(parties),
    )
    body = list(_lane_lines(frame.lanes, height))
    for record in records:
        body += _arrow_of(record, frame)
    for record in records:  # words are over all arrows: a slanted one passes later rows
        body.append(_stamp(record, frame.rows[record.n], records[0].t))
        body += _words_of(record, frame)
    return svg.document(frame.width, height, label, body, STYLE)


def _all_ends(records: Iterable[Record]) -> dict[int, tuple[str, ...]]:
    """Return by number the parties of each record, the sender first; one party if no message."""
    found: dict[int, tuple[str, ...]] = {}
    for record in records:
        ends: tuple[str, ...] = (record.party,)
        if record.kind == Kind.SEND:
            ends = (record.party, record.peer or NOBODY)
        elif record.kind == Kind.RECV:
            sender = found[record.ref][0] if record.ref in found else sender_of(record)
            ends = (sender, record.party) if sender else ends
        found[record.n] = ends
    return found


def _lane_px(records: Iterable[Record]) -> float:
    """Return the width of a lane: the longest label fits, between LANE_MIN and LANE_MAX."""
    longest = max(svg.text_px(_label(record)) for record in records)
    return min(LANE_MAX, max(LANE_MIN, BOLDER * longest + SIDE))


def _label(record: Record) -> str:
    text = content(record)
    return text if len(text) <= LABEL_CHARS_MAX else f"{text[: LABEL_CHARS_MAX - 3]}..."


def _lane_lines(lanes: dict[str, float], height: float) -> Iterable[str]:
    for party, x in lanes.items():
        half = svg.text_px(party) / 2 + 12
        yield svg.line(x, TOP - 12, x, height - 8, "grid")
        yield svg.element("rect", x=x - half, y=14, width=2 * half, height=28, rx=5, class_="box")
        yield svg.text(x, 33, party, text_anchor="middle", class_="strong")


def _stamp(record: Record, y: float, t_zero: float) -> str:
    return svg.text(10, y + 4, f"{record.n}  {record.t - t_zero:+.3f} s", class_="quiet")


def _arrow_of(record: Record, frame: _Frame) -> list[str]:
    """Draw the arrow that ends with a record, or the level one of a message at one end alone."""
    ends = frame.ends[record.n]
    if _is_note(ends) or record.n in frame.taken:
        return []
    y = frame.rows[record.n]
    is_pair = record.kind == Kind.RECV and record.ref in frame.rows
    from_y = frame.rows[record.ref] if is_pair else y
    return _arrow(frame.lanes[ends[0]], from_y, frame.lanes[ends[1]], y, _bad(record, frame))


def _words_of(record: Record, frame: _Frame) -> list[str]:
    """Draw the label of a message, at its send if that is there; or the box of another record."""
    ends, bad = frame.ends[record.n], _bad(record, frame)
    if _is_note(ends):
        return _note(record, frame, bad)
    if record.kind == Kind.RECV and record.ref in frame.rows:
        return []
    x1, x2 = frame.lanes[ends[0]], frame.lanes[ends[1]]
    return [_over_start(x1, x2, frame.rows[record.n], _label(record), frame, bad)]


def _is_note(ends: tuple[str, ...]) -> bool:
    return len(ends) == 1 or ends[0] == ends[1]


def _bad(record: Record, frame: _Frame) -> str:
    return "bad" if record.n == frame.broken else ""


def _note(record: Record, frame: _Frame, bad: str) -> list[str]:
    y, text = frame.rows[record.n], _label(record)
    half = BOLDER * svg.text_px(text) / 2 + 8
    x = _inside(frame.lanes[frame.ends[record.n][0]], half, frame)
    box = svg.element(
        "rect",
        x=x - half,
        y=y - 14,
        width=2 * half,
        height=26,
        rx=3,
        class_="bad-note" if bad else "note",
    )
    return [box, _text_at(x, y + 3, text, frame, bad)]


def _over_start(x1: float, x2: float, y: float, text: str, frame: _Frame, bad: str) -> str:
    """Draw the label at the start of its arrow, where slanted arrows do not cross it."""
    way = 1 if x2 > x1 else -1
    return _text_at(x1 + way * (BOLDER * svg.text_px(text) / 2 + 8), y - 7, text, frame, bad)


def _text_at(x: float, y: float, text: str, frame: _Frame, bad: str) -> str:
    x = _inside(x, BOLDER * svg.text_px(text) / 2, frame)
    return svg.text(x, y, text, text_anchor="middle", class_=bad or "said")


def _inside(x: float, half: float, frame: _Frame) -> float:
    """Return `x`, moved so that a box of half width `half` is inside the picture."""
    return max(STAMP + half, min(x, frame.width - half - 4))


def _arrow(x1: float, y1: float, x2: float, y2: float, bad: str) -> list[str]:
    way = 1 if x2 > x1 else -1
    tip = [(x2, y2), (x2 - way * HEAD_PX, y2 - HEAD_PX / 2), (x2 - way * HEAD_PX, y2 + HEAD_PX / 2)]
    return [
        svg.line(x1, y1, x2 - way * HEAD_PX, y2, "bad-line" if bad else "arrow"),
        svg.path(tip, "bad-head" if bad else "head", closed=True),
    ]
