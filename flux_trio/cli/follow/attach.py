"""Follow a job in the foreground: its output, its events, and signals.

As flux-job(1), attach: exceptions and failures are printed on standard error. The exit code is the
job's: 128 plus the signal's number if a signal ended it, 1 if it never ran or if its output could
not be shown. The first ctrl-C prints a hint; a second one within two seconds cancels the job; a
third one, or ctrl-Z after the first, detaches. Other signals are sent to the job, and so is
standard input. If the job cannot receive a signal that ends other commands, for example because it
has not started, the signal ends this command.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import click

from flux_trio.cli.follow.output import Labels, show_output, standard_outputs
from flux_trio.cli.follow.standard_input import StandardInput
from flux_trio.cli.follow.status_line import StatusLine, is_interactive
from flux_trio.cli.terminal.errors import complain, remark
from flux_trio.cli.terminal.events import event_text
from flux_trio.cli.terminal.shown_values import how_it_ended, shown_id
from flux_trio.client.jobs import watch_eventlog
from flux_trio.editions import rfc21
from flux_trio.formats import Event, parse_event, printable
from flux_trio.messages import FluxError, topics
from flux_trio.process.exit_code import exit_code
from flux_trio.process.groups import unwrapping
from flux_trio.protocols import JobEvent

if TYPE_CHECKING:
    from flux_trio.client import Client

SECOND_S: Final = 2.0  # from the first ctrl-C to the second key, as in flux
FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # timeout(1) sends one of them
NEVER_RAN: Final = 1  # exit code of a job without an exit code
FAILED: Final = 1  # exit code of a job with a fatal exception and the exit code 0
NOT_SHOWN: Final = 1  # exit code of a successful job whose output was refused or cut off


async def attach(
    client: Client,
    jobid: int,
    *,
    label: bool = False,
    show_events: bool = False,
    until: str | None = None,
    read_only: bool = False,
    stdin: int | None = None,
) -> int:
    """Follow a job to its end, to the event `until`, or until detached; return the exit code.

    `label` puts the task in front of each line, `show_events` prints every event, and with
    `read_only` signals are not forwarded. `stdin` is the descriptor from which input for the job is
    read. Raises FluxError if the user may not follow the job, and ConnectionLost.
    """
    given = None if stdin is None else StandardInput(client, jobid, stdin)
    attachment = _Attachment(client, jobid, label, show_events, until, given)
    with unwrapping(Exception):  # if several, they are the same loss
        async with anyio.create_task_group() as tasks:
            if not read_only:
                await tasks.start(attachment.obey_signals, tasks)
            await attachment.follow()
            tasks.cancel_scope.cancel()
    return attachment.exit_code


@dataclass
class _Attachment:
    client: Client
    id: int
    label: bool
    show_events: bool
    until: str | None
    input: StandardInput | None
    begun: float | None = None  # time of the first event, in seconds
    interrupted_at: float = -SECOND_S
    canceled: bool = False
    finished: bool = False  # the finish event has come
    failed: bool = False  # a fatal exception has come
    shown: bool = True  # False if its output could not be shown to the end
    exit_code: int = NEVER_RAN

    async def follow(self) -> None:
        """Show the job's output and its exceptions until it is over."""
        waits = StatusLine(shown_id(self.id)) if is_interactive() else None
        async with (
            anyio.create_task_group() as outputs,
            watch_eventlog(self.client, self.id) as events,
        ):
            if waits is not None:
                outputs.start_soon(waits.run)
            async for response in events:
                event = parse_event(response["event"])
                if waits is not None:
                    waits.show(event.name)
                self._handle_event(event, response["event"])
                if event.name == self.until:
                    outputs.cancel_scope.cancel()
                    return
                if event.name == JobEvent.START:
                    outputs.start_soon(self._show_output)
                    if self.input is not None:
                        outputs.start_soon(self.input.run)
            if self.input is not None:
                self.input.stop()
        if self.exit_code and self.finished:
            remark(how_it_ended(self.exit_code))
        if self.failed:  # also if its shells have exited with 0
            self.exit_code = self.exit_code or FAILED
        if not self.shown:
            self.exit_code = self.exit_code or NOT_SHOWN

    def _handle_event(self, event: Event, line: str) -> None:
        if self.begun is None:
            self.begun = event.timestamp
        context = event.context or {}
        if self.show_events:
            _, _, text = event_text(line).partition(" ")
            click.echo(f"{event.timestamp - self.begun:.3f}s: job.{text}", err=True)
        elif event.name == JobEvent.EXCEPTION:
            click.echo(
                f"{event.timestamp - self.begun:.3f}s: job.exception "
                f"{shown_id(self.id)} type={printable(context['type'])} "
                f"severity={context['severity']} {printable(context.get('note', ''))}",
                err=True,
            )
        self.failed = self.failed or rfc21.is_fatal(event.name, context)
        if event.name == JobEvent.FINISH:
            self.exit_code = exit_code(context["status"])
            self.finished = True

    async def _show_output(self) -> None:
        outputs = standard_outputs()
        labels = Labels(outputs) if self.label else None
        self.shown = await show_output(self.client, self.id, outputs, labels)

    async def obey_signals(
        self,
        tasks: anyio.abc.TaskGroup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Handle the signals of this process; detaching cancels `tasks`."""
        with anyio.open_signal_receiver(signal.SIGINT, *FORWARDED) as signals:
            task_status.started()
            async for signum in signals:
                if signum == signal.SIGINT:
                    await self._interrupt(tasks)
                    continue
                sent = await self._ask("kill", topics.EXEC_KILL, {"signum": int(signum)})
                if not sent and signum in ENDING:
                    self.exit_code = 128 + signum
                    self._detach(tasks)

    async def _interrupt(self, tasks: anyio.abc.TaskGroup) -> None:
        if self.canceled:
            self._detach(tasks)
        elif anyio.current_time() - self.interrupted_at <= SECOND_S:
            self.canceled = True
            raised = {"severity": 0, "type": "cancel", "note": "interrupted by ctrl-C"}
            await self._ask("cancel", topics.JOB_RAISE, raised)
        else:
            self.interrupted_at = anyio.current_time()
            await tasks.start(self._detach_on_stop, tasks)
            remark("one more ctrl-C within 2s to cancel or ctrl-Z to detach")

    async def _detach_on_stop(
        self,
        tasks: anyio.abc.TaskGroup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.move_on_after(SECOND_S), anyio.open_signal_receiver(signal.SIGTSTP) as signals:
            task_status.started()
            async for _ in signals:
                self._detach(tasks)

    def _detach(self, tasks: anyio.abc.TaskGroup) -> None:
        remark("detaching...")
        tasks.cancel_scope.cancel()

    async def _ask(self, what: str, topic: str, payload: dict[str, Any]) -> bool:
        """Send a request; return False, after printing the error, if it was refused."""
        try:
            await self.client.call(topic, {"id": self.id, **payload})
        except FluxError as error:
            complain(f"{what}: {error}")
            return False
        return True
