"""What `flux-trio top` shows: a summary of the instance, and the jobs that run (flux-top(1)).

Pure: from answers of the instance, and what keys have chosen, to something rich can print. Left
out: the instances inside of jobs, and gpus by queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flux_trio.cli.columns import short_duration
from flux_trio.cli.job_rows import JobRow
from flux_trio.formats import Idset, ResourceSet

BAR_WIDTH: Final = 40

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


def screen(snapshot: Snapshot, view: View, height: int) -> RenderableType:
    """Both panes, in so many lines."""
    summary = _summary(snapshot, view)
    return Group(*summary, Text(), _job_table(snapshot, view, height - len(summary) - 2))


def _summary(snapshot: Snapshot, view: View) -> list[RenderableType]:
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
        _bar("nodes", len(busy), len(down - busy), inventory.nnodes),
        _bar("cores", ncores, lost.ncores, inventory.ncores),
        _bar("gpus", ngpus, lost.ngpus, inventory.ngpus),
    ]
    shown = bars if inventory.ngpus and view.queue is None else bars[:2]
    return [_headline(snapshot, view, inventory), *shown, _counts(snapshot, view)]


def _headline(snapshot: Snapshot, view: View, inventory: ResourceSet) -> Text:
    expiration = inventory.expiration
    left = short_duration(max(expiration - snapshot.now, 0)) if expiration else "∞"
    uptime = short_duration(snapshot.now - snapshot.info["t_start"])
    queue = "" if view.queue is None else f"  queue: {view.queue}"
    text = f"size: {inventory.nnodes}  left: {left}  uptime: {uptime}{queue}"
    return Text(f"{text}  flux-trio {snapshot.info['version']}", style="bold")


def _bar(name: str, used: int, down: int, total: int) -> Text:
    """How much is used, from the left, and down, from the right."""
    scale = BAR_WIDTH / max(total, 1)
    filled = min(round(used * scale), BAR_WIDTH)
    lost = min(round(down * scale), BAR_WIDTH - filled)
    return Text.assemble(
        f"{name:>6} [",
        ("|" * filled, "yellow"),
        " " * (BAR_WIDTH - filled - lost),
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


def _job_table(snapshot: Snapshot, view: View, height: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold reverse")
    rows = [JobRow(job, snapshot.now) for job in snapshot.jobs]
    columns = [each for each in _COLUMNS if each[0] != "QUEUE" or snapshot.queues]
    for heading, justify, _ in columns:
        table.add_column(heading, justify="right" if justify == "right" else "left", no_wrap=True)
    first = max(0, view.cursor - max(height, 1) + 1)  # the job at the cursor is always seen
    for place, row in enumerate(rows[first : first + max(height, 1)], start=first):
        cells = [str(value(row)) for _, _, value in columns]
        table.add_row(*cells, style="reverse" if place == view.cursor else None)
    return table
