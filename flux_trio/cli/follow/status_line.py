"""A line on the terminal that shows what an attached job waits for, until it starts.

As flux-job(1), attach: only if all three standard streams are a terminal, and not if
FLUX_ATTACH_NONINTERACTIVE is in the environment.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Final

import anyio

from flux_trio.cli.terminal.errors import command_name
from flux_trio.protocols import JobEvent

DELAY_S: Final = 1.0  # no line for a job that starts sooner
PERIOD_S: Final = 1.0
_WIDTH: Final = 32

_WAITS: Final = {
    JobEvent.SUBMIT.value: "waiting to be accepted",
    JobEvent.VALIDATE.value: "resolving dependencies",
    JobEvent.DEPEND.value: "waiting for priority assignment",
    JobEvent.URGENCY.value: "waiting for priority assignment",
    JobEvent.PRIORITY.value: "waiting for resources",
    JobEvent.ALLOC.value: "starting",
    JobEvent.PROLOG_START.value: "waiting for job prolog",
    JobEvent.PROLOG_FINISH.value: "starting",
}
_OVER: Final = (JobEvent.START.value, JobEvent.FINISH.value, JobEvent.CLEAN.value)


def is_interactive() -> bool:
    """Whether the three standard streams are a terminal and the status line is not switched off."""
    quiet = "FLUX_ATTACH_NONINTERACTIVE" in os.environ
    return not quiet and all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))


class StatusLine:
    """The status line of the job `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._what: str | None = None
        self._shown = False
        self._over = False

    def show(self, event: str) -> None:
        """Take an event of the job; the line is cleared, so that other output can follow."""
        self._clear()
        self._what = _WAITS.get(event, self._what)
        if event in (*_OVER, JobEvent.EXCEPTION.value):
            self._over = True

    async def run(self) -> None:
        """Show the line until the job starts, or to the end of the task group."""
        begun = anyio.current_time()
        try:
            await anyio.sleep(DELAY_S)
            while not self._over:
                waited = timedelta(seconds=round(anyio.current_time() - begun))
                self._show(waited)
                await anyio.sleep(PERIOD_S)
        finally:
            self._clear()

    def _show(self, waited: timedelta) -> None:
        if self._what is not None:
            text = f"{command_name()}: {self._name} {self._what:<{_WIDTH}} {waited!s:0>8}"
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
