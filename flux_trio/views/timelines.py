"""Timelines of jobs and modules: a bar for each state of a job, and for each life of a module.

Much happens at the same moment of virtual time, so the axis counts the records of the trace; its
labels are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flux_trio.formats import Event
from flux_trio.protocols import InvalidTransition, Job, JobState
from flux_trio.trace import Kind, Record
from flux_trio.views import svg
from flux_trio.views.spelling import spelled_id

WIDTH: Final = 1060
LEFT, RIGHT, TOP = 130, 20, 40
ROW: Final = 30
BAR: Final = 18  # height of a bar
FOOT: Final = 34
TICK_PX: Final = 64  # labels that would be closer are left out
NAMED_PX: Final = 52  # a narrower bar has no name in it

STYLE: Final = f"""{svg.STYLE}
.depend, .priority {{ fill: #d8dee4; }} .sched {{ fill: #9cc3e6; }} .run {{ fill: #8fd1b5; }}
.cleanup {{ fill: #f3d08a; }} .loaded {{ fill: #c8d1dc; }}
.in-bar {{ fill: #1b1f24; font-size: 10.5px; }}
.strike {{ stroke: #d55e00; stroke-width: 1.4; fill: none; }}
.broken-at {{ stroke: #b34700; stroke-width: 2; stroke-dasharray: 5 3; }}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a lane, from the place of one record to that of another."""

    name: str
    begin: int
    end: int


def job_bars(trace: Sequence[Record]) -> dict[int, list[Bar]]:
    """Return by job id its states in order, up to INACTIVE or to the end of the trace.

    An event that RFC 21 does not allow leaves the state as it is.
    """
    jobs: dict[int, Job] = {}
    bars: dict[int, list[Bar]] = {}
    end = trace[-1].n
    for record in trace:
        data = record.data
        if record.kind != Kind.EVENT or data is None:
            continue
        job = jobs.setdefault(data["id"], Job(data["id"]))
        own, before = bars.setdefault(job.id, []), job.state
        try:
            job.apply(Event(record.t, data["name"], data["context"]))
        except InvalidTransition:
            continue
        if job.state is not before:
            _close(own, record.n)
            if job.state is not JobState.INACTIVE:
                own.append(Bar(job.state.name or "", record.n, end))
    return bars


def module_bars(trace: Sequence[Record]) -> dict[str, list[Bar]]:
    """Return by module the times when it was loaded."""
    bars: dict[str, list[Bar]] = {}
    away: set[str] = set()
    for record in trace:
        data = record.data
        if record.kind != Kind.MODULE or data is None:
            continue
        name, own = data["module"], bars.setdefault(data["module"], [])
        if data["what"] == "started":
            own.append(Bar("loaded", record.n, trace[-1].n))
            away.discard(name)
        elif own and name not in away:
            _close(own, record.n)
            away.add(name)
    return bars


def _close(bars: list[Bar], at: int) -> None:
    if bars:
        bars[-1] = Bar(bars[-1].name, bars[-1].begin, at)


def draw_timelines(trace: Sequence[Record], broken: int, label: str) -> str:
    """Draw jobs, then the modules that were not loaded all the time; a line marks `broken`."""
    modules = {name: own for name, own in module_bars(trace).items() if len(own) > 1}
    lanes = [(spelled_id(jobid), own) for jobid, own in job_bars(trace).items()]
    lanes += list(modules.items())
    bottom = TOP + ROW * len(lanes)
    body = [*_axis(trace, bottom)]
    for place, (name, bars) in enumerate(lanes):
        body += _lane(name, bars, TOP + ROW * place, trace)
    for record in trace:
        if record.kind in (Kind.CLOCK, Kind.FAULT) or _is_end(record):
            x = _x(record.n, trace)
            body.append(svg.line(x, TOP - 8, x, bottom, "strike"))
    if broken:
        x = _x(broken, trace)
        body.append(svg.line(x, TOP - 8, x, bottom, "broken-at"))
        body.append(svg.text(min(x, WIDTH - 60), 20, "broken here", text_anchor="middle"))
    return svg.document(WIDTH, bottom + FOOT, label, body, STYLE)


def _is_end(record: Record) -> bool:
    data = record.data
    return record.kind == Kind.MODULE and data is not None and data["what"] != "started"


def _x(n: int, trace: Sequence[Record]) -> float:
    first, last = trace[0].n, trace[-1].n
    return LEFT + (WIDTH - LEFT - RIGHT) * (n - first) / max(last - first, 1)


def _lane(name: str, bars: Sequence[Bar], top: float, trace: Sequence[Record]) -> Iterator[str]:
    yield svg.text(10, top + BAR - 4, name, class_="strong")
    for bar in bars:
        x, width = _x(bar.begin, trace), max(_x(bar.end, trace) - _x(bar.begin, trace), 2.0)
        yield svg.element("rect", x=x, y=top, width=width, height=BAR, class_=bar.name.lower())
        if width >= NAMED_PX:
            yield svg.text(x + 4, top + BAR - 5, bar.name, class_="in-bar")


def _axis(trace: Sequence[Record], bottom: float) -> Iterator[str]:
    """Yield a tick where the time has moved on, as long as there is room for its label."""
    yield svg.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")
    x_last: float = -TICK_PX
    t_last = None
    for record in trace:
        x = _x(record.n, trace)
        if record.t != t_last and x - x_last >= TICK_PX:
            yield svg.line(x, TOP - 8, x, bottom, "grid")
            label = f"{record.t - trace[0].t:+.3g} s"
            yield svg.text(x, bottom + 18, label, text_anchor="middle")
            x_last = x
        t_last = record.t
