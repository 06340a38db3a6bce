"""The screen of `flux-trio top`: a summary of the instance, and its running jobs (flux-top(1)).

These functions are pure: they make text for rich from responses of the instance and from the
choices of the user's keys. Left out: nested instances, and gpus by queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from flux_trio.cli.jobs.job_rows import JobRow
from flux_trio.cli.terminal.columns import short_duration
from flux_trio.formats import Idset, ResourceSet, printable

WIDTH: Final = 80  # default width of the screen
BAR_WIDTH: Final = 40  # the maximum
FIGURES_WIDTH: Final = 25  # the figures beside a bar, for some hundreds of nodes

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
    """Responses of the instance at the time `now`, in seconds since the Unix epoch."""

    info: Mapping[str, Any]  # broker.info
    status: Mapping[str, Any]  # resource.status
    stats: Mapping[str, Any]  # job-list.job-stats
    queues: Sequence[str]  # the names; empty if there is only the anonymous queue
    jobs: Sequence[Mapping[str, Any]]  # the running jobs, newest first
    now: float
    held: Mapping[str, Any] | None = None  # R that jobs of all queues hold


@dataclass(frozen=True)
class View:
    """The choices that the user made with keys."""

    cursor: int = 0  # index of a job
    queue: str | None = None  # None means all
    details: bool = True  # whether inactive jobs are counted by result
    ended: bool = False

    def after(self, key: str, snapshot: Snapshot) -> View:
        """Return the view after a key; an unknown key changes nothing."""
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
    """Return both panes in at most `height` lines; lines are cut to `width`."""
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
    """Draw a bar: the used part from the left, the part that is down from the right."""
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
    first = max(0, view.cursor - max(height, 1) + 1)  # the job at the cursor is always visible
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
