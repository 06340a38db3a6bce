"""A progress bar of jobs on the last line of a terminal."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from flux_trio.cli.follow.output import Outputs, Sink

_COUNTS: Final = "PD:{task.fields[pending]} R:{task.fields[running]} "
_ENDED: Final = "CD:{task.fields[complete]} F:{task.fields[failed]}"


class JobProgress:
    """A bar with the numbers of pending, running, complete and failed jobs out of `total`.

    `what`, if given, replaces the counts; `jps` shows jobs per second instead of the time.
    """

    def __init__(
        self, total: int, *, what: str = "", jps: bool = False, console: Console | None = None
    ) -> None:
        self.counts: Counter[str] = Counter(pending=total, running=0, complete=0, failed=0)
        self._since = time.monotonic()
        self._done = 0
        last: ProgressColumn = TimeElapsedColumn()
        if jps:
            last = TextColumn("{task.fields[jps]:.1f} job/s")
        self._console = console or Console()
        self._progress = Progress(
            TextColumn(what or _COUNTS + _ENDED),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            last,
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task(
            "", total=total, jps=0.0, **dict[str, Any](self.counts)
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def move(self, before: str, after: str) -> None:
        """Move one job from the count `before` to the count `after`."""
        self.counts[before] -= 1
        self.counts[after] += 1
        self._progress.update(self._task, **dict[str, Any](self.counts))

    def advance(self) -> None:
        """Advance the bar by one job."""
        self._done += 1
        speed = self._done / max(time.monotonic() - self._since, 1e-3)
        self._progress.update(self._task, advance=1, jps=speed)

    def outputs(self) -> Outputs:
        """Return sinks that print complete lines above the bar."""
        return Outputs(self._above(), self._above())

    def _above(self) -> Sink:
        rest = b""

        def write(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._console.print(Text(line.decode(errors="replace")), soft_wrap=True)

        return write
