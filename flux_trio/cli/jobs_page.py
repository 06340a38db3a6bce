"""What `flux-trio jobs` prints: rows, counts, JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from flux_trio.cli.columns import Layout, sort_rows
from flux_trio.cli.events import json_text
from flux_trio.cli.job_rows import JobRow
from flux_trio.cli.nested import Recursion, address_in

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "COMPLETED": {"fg": "green", "bold": True},
    "FAILED": {"fg": "red", "bold": True},
    "CANCELED": {"fg": "white"},
    "TIMEOUT": {"fg": "red", "bold": True},
}
_STYLE_INSTANCE: Final[dict[str, Any]] = {"fg": "blue", "bold": True}


@dataclass(frozen=True)
class JobsPage:
    """How rows are shown."""

    columns: Layout
    keys: tuple[str, ...]
    width: int | None
    color: bool

    def rows(
        self, records: list[dict[str, Any]], hindered: Mapping[str | None, str] | None = None
    ) -> list[JobRow]:
        """The rows of jobs, sorted; `hindered` says why queues are not scheduled."""
        now, why = time.time(), hindered or {}
        rows = [JobRow(record, now, why.get(record.get("queue"), "")) for record in records]
        sort_rows(rows, self.keys)
        return rows

    def fitted(self, rows: list[JobRow]) -> JobsPage:
        """The same page for more jobs below these: the columns stay as they are."""
        return replace(self, columns=self.columns.fitted(rows))

    def print(self, rows: list[JobRow], *, header: bool = False) -> None:
        """Print lines, as wide as is wanted."""
        head, *lines = [line[: self.width] for line in self.columns.lines(rows)]
        if header:
            click.echo(head)
        for row, line in zip(rows, lines, strict=True):
            style = _style(row) if self.color else None
            click.echo(click.style(line, **style) if style else line, color=self.color)


def counts_text(told: dict[str, Any]) -> str:
    """The counts of a job-list.job-stats response in a line."""
    states = told["job_states"]
    failed = told["failed"] + told["canceled"] + told["timeout"]
    pending = states["depend"] + states["priority"] + states["sched"]
    return (
        f"{states['run'] + states['cleanup']} running, {told['successful']} completed, "
        f"{failed} failed, {pending} pending"
    )


def print_json(rows: list[JobRow], recursion: Recursion, *, single: bool) -> None:
    """The jobs; those in one's instance are its `jobs`."""
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
