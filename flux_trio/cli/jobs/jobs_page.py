"""The output of `flux-trio jobs`: rows, counts, JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from flux_trio.cli.jobs.job_rows import JobRow
from flux_trio.cli.jobs.nested import Recursion, address_in
from flux_trio.cli.terminal.columns import Layout, sort_rows
from flux_trio.cli.terminal.events import json_text

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "COMPLETED": {"fg": "green", "bold": True},
    "FAILED": {"fg": "red", "bold": True},
    "CANCELED": {"fg": "white"},
    "TIMEOUT": {"fg": "red", "bold": True},
}
_STYLE_INSTANCE: Final[dict[str, Any]] = {"fg": "blue", "bold": True}


@dataclass(frozen=True)
class JobsPage:
    """Columns, sort keys, width and colour of the output."""

    columns: Layout
    keys: tuple[str, ...]
    width: int | None
    color: bool

    def rows(
        self, records: list[dict[str, Any]], hindered: Mapping[str | None, str] | None = None
    ) -> list[JobRow]:
        """Return sorted rows; `hindered` has for each queue why it schedules no jobs, or ""."""
        now, why = time.time(), hindered or {}
        rows = [JobRow(record, now, why.get(record.get("queue"), "")) for record in records]
        sort_rows(rows, self.keys)
        return rows

    def fitted(self, rows: list[JobRow]) -> JobsPage:
        """Return a page for more jobs below these rows: its columns are the same."""
        return replace(self, columns=self.columns.fitted(rows))

    def print(self, rows: list[JobRow], *, header: bool = False) -> None:
        """Print the rows, each line cut to the width."""
        head, *lines = [line[: self.width] for line in self.columns.lines(rows)]
        if header:
            click.echo(head)
        for row, line in zip(rows, lines, strict=True):
            style = _style(row) if self.color else None
            click.echo(click.style(line, **style) if style else line, color=self.color)


def counts_text(stats: dict[str, Any]) -> str:
    """Return the counts of a job-list.job-stats response in one line."""
    states = stats["job_states"]
    failed = stats["failed"] + stats["canceled"] + stats["timeout"]
    pending = states["depend"] + states["priority"] + states["sched"]
    return (
        f"{states['run'] + states['cleanup']} running, {stats['successful']} completed, "
        f"{failed} failed, {pending} pending"
    )


def print_json(rows: list[JobRow], recursion: Recursion, *, single: bool) -> None:
    """Print the jobs; the jobs of a nested instance are `jobs` of the job it runs in."""
    values = [row.to_json() for row in rows]
    known: dict[tuple[str, ...], dict[str, object]] = {
        (str(value["jobid"]),): value for value in values
    }
    for nested in recursion.descend(row.record for row in rows):
        inner = [JobRow(record, time.time()).to_json() for record in nested.records]
        known[nested.path]["jobs"] = inner
        known |= {(*nested.path, str(value["jobid"])): value for value in inner}
    click.echo(json_text(values[0] if single else {"jobs": values}))


def _style(row: JobRow) -> dict[str, Any] | None:
    plain = _STYLE_INSTANCE if address_in(row.record) else None
    return _STYLES.get(row.result(0), plain)
