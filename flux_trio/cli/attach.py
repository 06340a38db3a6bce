"""Following a job in the foreground: its output, what becomes of it, and what signals mean.

As flux-job(1), attach: exceptions and a bad end are told on standard error, the exit code is the
job's (128 and the signal's number if that ended it; 1 if it never ran, or if its output could not
be shown). One ctrl-C tells what a
second within two seconds does: cancel the job; ctrl-Z then, or a third ctrl-C, detaches. Other
signals go to the job, and so does standard input. A signal that would end any other command ends
this one if the job cannot take it, for example because it has not started.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import click

from flux_trio.cli.endings import exit_code, how_it_ended
from flux_trio.cli.errors import complain, remark, sole_error
from flux_trio.cli.events import event_text
from flux_trio.cli.output import Labels, show_output, standard_outputs
from flux_trio.cli.standard_input import StandardInput
from flux_trio.cli.status_line import StatusLine, is_interactive
from flux_trio.formats import Event, format_fluid, parse_event, printable
from flux_trio.messages import FluxError, topics
from flux_trio.protocols import JobEvent

if TYPE_CHECKING:
    from flux_trio.client import Client

SECOND_S: Final = 2.0  # as flux: from one ctrl-C to the key that says what is meant
FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # those of timeout(1) among them
NEVER_RAN: Final = 1  # exit code of a job without an exit code
NOT_SHOWN: Final = 1  # of a job that ended well, and whose output was refused or cut off


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
    """Follow a job to its end, to the event `until`, or until told to detach; the exit code.

    `label` puts the task in front of each line, `show_events` tells every event, and with
    `read_only` signals mean what they mean to any command. `stdin` is the descriptor to read input
    for the job from. Raises FluxError when the job may not be followed, ConnectionLost.
    """
    given = None if stdin is None else StandardInput(client, jobid, stdin)
    attachment = _Attachment(client, jobid, label, show_events, until, given)
    try:
        async with anyio.create_task_group() as tasks:
            if not read_only:
                await tasks.start(attachment.obey_signals, tasks)
            await attachment.follow()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = sole_error(group, (Exception,))
        raise error or group from None  # if several, they are the same loss
    return attachment.exit_code


class _Attachment:
    def __init__(
        self,
        client: Client,
        jobid: int,
        label: bool,
        show_events: bool,
        until: str | None,
        given: StandardInput | None,
    ) -> None:
        self._client = client
        self._id = jobid
        self._label = label
        self._show_events = show_events
        self._until = until
        self._input = given
        self._begun: float | None = None  # time of the first event
        self._interrupted_at = -SECOND_S
        self._canceled = False
        self._finished = False  # the job has told its status
        self._shown = True  # False when its output could not be shown to the end
        self.exit_code = NEVER_RAN

    async def follow(self) -> None:
        """Show the job's output, and what of its events concerns people, until it is over."""
        watch = {"id": self._id, "path": "eventlog"}
        waits = StatusLine(format_fluid(self._id, "f58")) if is_interactive() else None
        async with (
            anyio.create_task_group() as outputs,
            self._client.stream(
                topics.INFO_WATCH, watch, cancel_topic=topics.INFO_WATCH_CANCEL, credit=True
            ) as events,
        ):
            if waits is not None:
                outputs.start_soon(waits.run)
            async for response in events:
                event = parse_event(response["event"])
                if waits is not None:
                    waits.take(event.name)
                self._tell(event, response["event"])
                if event.name == self._until:
                    outputs.cancel_scope.cancel()
                    return
                if event.name == JobEvent.START:
                    outputs.start_soon(self._show_output)
                    if self._input is not None:
                        outputs.start_soon(self._input.run)
            if self._input is not None:
                self._input.stop()
        if self.exit_code and self._finished:
            remark(how_it_ended(self.exit_code))
        if not self._shown:
            self.exit_code = self.exit_code or NOT_SHOWN

    def _tell(self, event: Event, line: str) -> None:
        if self._begun is None:
            self._begun = event.timestamp
        context = event.context or {}
        if self._show_events:
            _, _, told = event_text(line).partition(" ")
            click.echo(f"{event.timestamp - self._begun:.3f}s: job.{told}", err=True)
        elif event.name == JobEvent.EXCEPTION:
            click.echo(
                f"{event.timestamp - self._begun:.3f}s: job.exception "
                f"{format_fluid(self._id, 'f58')} type={printable(context['type'])} "
                f"severity={context['severity']} {printable(context.get('note', ''))}",
                err=True,
            )
        if event.name == JobEvent.FINISH:
            self.exit_code = exit_code(context["status"])
            self._finished = True

    async def _show_output(self) -> None:
        outputs = standard_outputs()
        labels = Labels(outputs) if self._label else None
        self._shown = await show_output(self._client, self._id, outputs, labels)

    async def obey_signals(
        self,
        tasks: anyio.abc.TaskGroup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take this process's signals; to detach is to cancel `tasks`."""
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
        if self._canceled:
            self._detach(tasks)
        elif anyio.current_time() - self._interrupted_at <= SECOND_S:
            self._canceled = True
            raised = {"severity": 0, "type": "cancel", "note": "interrupted by ctrl-C"}
            await self._ask("cancel", topics.JOB_RAISE, raised)
        else:
            self._interrupted_at = anyio.current_time()
            await tasks.start(self._detach_on_stop, tasks)
            remark("one more ctrl-C within 2s to cancel or ctrl-Z to detach")

    async def _detach_on_stop(
        self,
        tasks: anyio.abc.TaskGroup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with (
            anyio.move_on_after(SECOND_S),
            anyio.open_signal_receiver(signal.SIGTSTP) as signals,
        ):
            task_status.started()
            async for _ in signals:
                self._detach(tasks)

    def _detach(self, tasks: anyio.abc.TaskGroup) -> None:
        remark("detaching...")
        tasks.cancel_scope.cancel()

    async def _ask(self, what: str, topic: str, payload: dict[str, Any]) -> bool:
        """Whether it was done; else why not has been told."""
        try:
            await self._client.call(topic, {"id": self._id, **payload})
        except FluxError as error:
            complain(f"{what}: {error}")
            return False
        return True
