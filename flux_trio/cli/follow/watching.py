"""Watch many jobs at a time: their events and their output (flux-watch(1))."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from flux_trio.cli.follow.output import Labels, Outputs, show_output
from flux_trio.cli.terminal.errors import command_name, remark
from flux_trio.cli.terminal.events import event_text
from flux_trio.cli.terminal.shown_values import shown_id
from flux_trio.client.jobs import watch_eventlog
from flux_trio.formats import Event, parse_event
from flux_trio.messages import FluxError
from flux_trio.process.exit_code import exit_code
from flux_trio.protocols import JobEvent

if TYPE_CHECKING:
    from flux_trio.cli.follow.progress import JobProgress
    from flux_trio.client import Client

AT_ONCE: Final = 256  # jobs at a time: each needs two streams, and an instance limits streams
FAILED_TO_START: Final = 1
NOT_SHOWN: Final = 1  # the output of a job was refused or cut off


@dataclass(kw_only=True)
class Watcher:
    """Watches each job until its event `until` or its end.

    `output` shows the output, `verbose` 1 prints how each job ended, 2 every event. `exit_code` is
    the highest exit code so far; a job that never started counts as 1.
    """

    client: Client
    until: str | None = None
    output: bool = False
    label: bool = False
    verbose: int = 0
    progress: JobProgress | None = None
    exit_code: int = 0

    async def watch(self, jobid: int, outputs: Outputs) -> None:
        """Watch one job; if that is refused, print the error and go on. Raises ConnectionLost."""
        job = _Watched(self, jobid, outputs)
        try:
            await self._follow(job, jobid, outputs)
        except* FluxError as errors:
            job.fail(str(errors.exceptions[0]))
        if self.progress is not None:
            self.progress.advance()

    async def _follow(self, job: _Watched, jobid: int, outputs: Outputs) -> None:
        async with anyio.create_task_group() as tasks, watch_eventlog(self.client, jobid) as events:
            async for response in events:
                event = parse_event(response["event"])
                job.show(event, response["event"])
                if event.name == JobEvent.START and self.output:
                    tasks.start_soon(self._show_output, job, jobid, outputs)
                if event.name == self.until:
                    break

    async def _show_output(self, job: _Watched, jobid: int, outputs: Outputs) -> None:
        labels = Labels(outputs, f"{job.name}: ") if self.label else None
        if not await show_output(self.client, jobid, outputs, labels):
            self.exit_code = max(self.exit_code, NOT_SHOWN)


def progress_bar(
    asked: bool, total: int, *, what: str = "", jps: bool
) -> AbstractContextManager[JobProgress | None]:
    """Return the bar of --progress for `total` jobs; without a terminal, a context of None."""
    if not asked:
        return nullcontext()
    if not sys.stdout.isatty():
        remark("stdout is not a tty. Ignoring --progress option")
        return nullcontext()
    from flux_trio.cli.follow.progress import JobProgress

    return JobProgress(total, what=what, jps=jps)


async def watch_all(watcher: Watcher, jobids: Iterable[int], outputs: Outputs) -> None:
    """Watch several jobs, AT_ONCE of them at a time."""
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def watch(jobid: int) -> None:
        async with limit:
            await watcher.watch(jobid, outputs)

    async with anyio.create_task_group() as tasks:
        for jobid in jobids:
            tasks.start_soon(watch, jobid)


class _Watched:
    """The state of one watched job."""

    def __init__(self, watcher: Watcher, jobid: int, outputs: Outputs) -> None:
        self._watcher = watcher
        self._outputs = outputs
        self.name = shown_id(jobid)
        self._begun = 0.0
        self._started = False
        self._status = "pending"

    def fail(self, text: str) -> None:
        self._worst(FAILED_TO_START)
        self._becomes("failed")
        self._outputs.remark(f"{command_name()}: ERROR: {self.name}: {text}")

    def show(self, event: Event, line: str) -> None:
        """Take one event, and print it if the user wants to see it."""
        self._begun = self._begun or event.timestamp
        if self._watcher.verbose > 1:
            _, _, text = event_text(line).partition(" ")
            self._print(event, text)
        context = event.context or {}
        match event.name:
            case JobEvent.ALLOC:
                self._becomes("running")
            case JobEvent.START:
                self._started = True
            case JobEvent.EXCEPTION if context["severity"] == 0:
                note = f" {context['note']}" if context.get("note") else ""
                self._outputs.remark(
                    f"{self.name}: job.exception: type={context['type']} severity=0{note}"
                )
                if not self._started:  # otherwise finish tells the exit code
                    self._worst(FAILED_TO_START)
                    self._becomes("failed")
            case JobEvent.FINISH:
                self._finished(event, context["status"])

    def _finished(self, event: Event, status: int) -> None:
        code = exit_code(status)
        self._worst(code)
        self._becomes("failed" if code else "complete")
        if self._watcher.verbose == 1:
            self._print(event, f"{self._status}: status={status}")

    def _worst(self, code: int) -> None:
        self._watcher.exit_code = max(self._watcher.exit_code, code)

    def _becomes(self, status: str) -> None:
        if self._watcher.progress is not None and status != self._status:
            self._watcher.progress.move(self._status, status)
        self._status = status

    def _print(self, event: Event, text: str) -> None:
        self._outputs.remark(f"{self.name}: {event.timestamp - self._begun:.3f}s: {text}")
