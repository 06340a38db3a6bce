"""What `flux-trio top` shows: a summary of the instance, and the jobs that run (flux-top(1)).

Pure: from answers of the instance, and what keys have chosen, to something rich can print. Left
out: the instances inside of jobs, and gpus by queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from flux_trio.cli.columns import short_duration
from flux_trio.cli.job_rows import JobRow
from flux_trio.formats import Idset, ResourceSet, printable

WIDTH: Final = 80  # of the screen, unless it is told
BAR_WIDTH: Final = 40  # at most
FIGURES_WIDTH: Final = 25  # beside a bar, with what is down of some hundreds of nodes

_COLUMNS: Final = (
    ("JOBID", "right", lambda row: row["id.f58"]),
    ("QUEUE", "left", lambda row: row["queue"]),
    ("USER", "left", lambda row: row["username"]),
    ("ST", "right", lambda row: row["status_abbrev"]),
    ("NTASKS", "right", lambda row: row["ntasks"]),
    ("NNODES", "right", lambda row: row["nnodes"]),
    ("RUNTIME", "right", lambda row: short_duration(row.runtime)),
    ("NAME", "left", lambda row: row["name"]),
)


@dataclass(frozen=True)
class Snapshot:
    """What the instance has answered, at the time `now` (seconds since the Unix epoch)."""

    info: Mapping[str, Any]  # broker.info
    status: Mapping[str, Any]  # resource.status
    stats: Mapping[str, Any]  # job-list.job-stats
    queues: Sequence[str]  # their names, none if there is but the anonymous one
    jobs: Sequence[Mapping[str, Any]]  # that run, the newest first
    now: float
    held: Mapping[str, Any] | None = None  # R of what jobs hold, of all queues


@dataclass(frozen=True)
class View:
    """What keys have chosen."""

    cursor: int = 0  # which job
    queue: str | None = None  # None is all
    details: bool = True  # whether jobs that are over are told apart
    ended: bool = False

    def after(self, key: str, snapshot: Snapshot) -> View:
        """The view after a key; keys that mean nothing change nothing."""
        match key:
            case "q" | "\x03" | "\x04":
                return replace(self, ended=True)
            case "j" | "\x1b[B":
                return replace(self, cursor=min(self.cursor + 1, max(len(snapshot.jobs) - 1, 0)))
            case "k" | "\x1b[A":
                return replace(self, cursor=max(self.cursor - 1, 0))
            case "l" | "\x1b[C":
                return self._other_queue(snapshot, 1)
            case "h" | "\x1b[D":
                return self._other_queue(snapshot, -1)
            case "d":
                return replace(self, details=not self.details)
            case _:
                return self

    def _other_queue(self, snapshot: Snapshot, step: int) -> View:
        choices = [None, *snapshot.queues]
        place = choices.index(self.queue) if self.queue in choices else 0
        return replace(self, queue=choices[(place + step) % len(choices)], cursor=0)


def screen(snapshot: Snapshot, view: View, height: int, width: int = WIDTH) -> RenderableType:
    """Both panes, in so many lines; what is too wide is cut off."""
    summary = _summary(snapshot, view, max(min(BAR_WIDTH, width - FIGURES_WIDTH), 1))
    lines = [*summary, Text(), *_job_lines(snapshot, view, height - len(summary) - 2)]
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return Group(*lines)


def _summary(snapshot: Snapshot, view: View, bar_width: int) -> list[Text]:
    inventory = ResourceSet.parse(snapshot.status["R"], "R")
    down = Idset.parse(snapshot.status["offline"]) | Idset.parse(snapshot.status["exclude"])
    for ranks in snapshot.status["drained"]:
        down |= Idset.parse(ranks)
    busy = Idset()
    for job in snapshot.jobs:
        busy |= Idset.parse(job.get("ranks") or "")
    ncores = sum(job.get("ncores", 0) for job in snapshot.jobs)
    ngpus = ResourceSet.parse(snapshot.held, "R").ngpus if snapshot.held else 0
    lost = inventory.restrict(down)
    bars = [
        _bar("nodes", len(busy), len(down - busy), inventory.nnodes, bar_width),
        _bar("cores", ncores, lost.ncores, inventory.ncores, bar_width),
        _bar("gpus", ngpus, lost.ngpus, inventory.ngpus, bar_width),
    ]
    shown = bars if inventory.ngpus and view.queue is None else bars[:2]
    return [_headline(snapshot, view, inventory), *shown, _counts(snapshot, view)]


def _headline(snapshot: Snapshot, view: View, inventory: ResourceSet) -> Text:
    expiration = inventory.expiration
    left = short_duration(max(expiration - snapshot.now, 0)) if expiration else "∞"
    uptime = short_duration(snapshot.now - snapshot.info["t_start"])
    queue = "" if view.queue is None else f"  queue: {printable(view.queue)}"
    text = f"size: {inventory.nnodes}  left: {left}  uptime: {uptime}{queue}"
    return Text(f"{text}  flux-trio {snapshot.info['version']}", style="bold")


def _bar(name: str, used: int, down: int, total: int, width: int) -> Text:
    """How much is used, from the left, and down, from the right."""
    scale = width / max(total, 1)
    filled = min(round(used * scale), width)
    lost = min(round(down * scale), width - filled)
    return Text.assemble(
        f"{name:>6} [",
        ("|" * filled, "yellow"),
        " " * (width - filled - lost),
        ("|" * lost, "red"),
        f"] {used}/{total}" + (f" ({down} down)" if down else ""),
    )


def _counts(snapshot: Snapshot, view: View) -> Text:
    states, stats = snapshot.stats["job_states"], snapshot.stats
    pending = states["depend"] + states["priority"] + states["sched"]
    failed = stats["failed"] + stats["canceled"] + stats["timeout"]
    over = f"{states['inactive']} inactive"
    if view.details:
        over = f"{stats['successful']} complete, {failed} failed"
    return Text(f"  jobs: {pending} pending, {states['run'] + states['cleanup']} running, {over}")


def _job_lines(snapshot: Snapshot, view: View, height: int) -> list[Text]:
    rows = [JobRow(job, snapshot.now) for job in snapshot.jobs]
    first = max(0, view.cursor - max(height, 1) + 1)  # the job at the cursor is always seen
    shown = rows[first : first + max(height, 1)]
    columns = []
    for heading, justify, value in _COLUMNS:
        if heading == "QUEUE" and not snapshot.queues:
            continue
        texts = [heading, *(printable(str(value(row))) for row in shown)]
        width = max(map(len, texts))
        adjust = str.rjust if justify == "right" else str.ljust
        columns.append([adjust(text, width) for text in texts])
    header, *lines = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    styles = ["reverse" if first + place == view.cursor else "" for place in range(len(lines))]
    return [
        Text(header, style="bold reverse"),
        *(Text(line, style) for line, style in zip(lines, styles, strict=True)),
    ]
