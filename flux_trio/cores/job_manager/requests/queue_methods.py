"""Requests about queues: `job-manager.queue-*`, with flux-core's payloads and texts.

A change takes effect at once. It is answered when it is durable, or at once with `nocheckpoint`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import QueuesNoted, QueuesRead, QueuesStored
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.purge import Purge
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY, Queues
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import Configured, ConfiguredAgain
from flux_trio.cores.kvs_calls import cannot_read, commit_values, look_up, value_in
from flux_trio.cores.methods import configuration_in
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import flux, rfc33
from flux_trio.messages import Errno, FluxError, Level, Request, Response, respond, respond_error
from flux_trio.protocols import HookAnswer, LinkState, QueueEvent


class QueueMethods(Part):
    """Answers requests about queues; `silences` are those of peers that may owe an answer."""

    restored: bool

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        queues: Queues,
        scheduler: SchedulerSide,
        execution: ExecSide,
        silences: Callable[[], list[tuple[str, Silence]]],
        purge: Purge,
        hindrances: Hindrances,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._queues = queues
        self._scheduler = scheduler
        self._execution = execution
        self._silences = silences
        self._purge = purge
        self._hindrances = hindrances
        self.restored = False

    def start(self) -> None:
        """Ask for the stored state of the queues."""
        self._ledger.ask_kvs(look_up(CHECKPOINT_KEY), QueuesRead())

    def names(self, request: Request) -> None:
        """job-manager.queue-list: the names of the queues, and the default queue."""
        listed = rfc33.QueueList(self._queues.names, self._queues.config.default_queue)
        self._ledger.answer_at_once(respond(request, rfc33.QUEUE_LIST.write(listed)))

    def status(self, request: Request) -> None:
        """job-manager.queue-status: whether one queue accepts and schedules jobs.

        `silent` has a text for each service that says why it cannot do its part (`Hindrances`),
        that is missing while jobs wait for it, or that has not answered a request and gives no
        reason. The answer does not wait for a commit: it comes even if no event can be stored.
        """
        queue = self._queues.find(rfc33.QUEUE_STATUS_REQUEST.read(request).name)
        online = self._scheduler.link == LinkState.READY
        stopped = self._queues.stopped_by(queue)
        stop_reason = stopped.stop_reason if stopped else None
        blocker = "scheduler" if not online else "parent" if stopped else None
        silent = [
            silence.text(self._ledger.now)
            for sender, silence in self._silences()
            if not self._hindrances.excuse(sender)
        ]
        waits = [*self._hindrances.texts, *filter(None, [self._execution.absence, *silent])]
        status = rfc33.QueueStatus(
            enable=queue.state.is_enabled,
            start=online and stopped is None,
            disable_reason=queue.disable_reason,
            stop_reason=stop_reason if online else self._offline_reason(),
            blocked=blocker if queue.state.is_started else None,
            silent=waits or None,
            held=self._ledger.tally.reasons(queue.name) or None,
            parent=self._queues.parent(queue),
        )
        self._ledger.answer_at_once(respond(request, rfc33.QUEUE_STATUS.write(status)))

    def _offline_reason(self) -> str:
        """Return why no queue is served: flux-core's words, and what ended the scheduling."""
        reason = self._scheduler.suspended
        return f"Scheduler has broken the protocol: {reason}" if reason else "Scheduler is offline"

    def enable(self, request: Request) -> None:
        """job-manager.queue-enable: accept jobs, or refuse them with a reason."""
        asked = rfc33.QUEUE_ENABLE.read(request)
        if not asked.enable and asked.reason is None:
            raise FluxError(Errno.EINVAL, "reason is required for disable")
        event = QueueEvent.ENABLE if asked.enable else QueueEvent.DISABLE
        self._change(request, asked, event, None if asked.enable else asked.reason)

    def start_or_stop(self, request: Request) -> None:
        """job-manager.queue-start: schedule jobs, or stop and cancel pending requests."""
        asked = rfc33.QUEUE_START.read(request)
        event = QueueEvent.START if asked.start else QueueEvent.STOP
        self._change(request, asked, event, None if asked.start else asked.reason)
        self._scheduler.queues_changed()

    def configure(self, request: Request) -> None:
        """job-manager.config-reload: plugins may refuse it; existing jobs do not change."""
        config = configuration_in(request)
        self._hooks.ask_configuration(config, Configured(request, config))

    def configured(self, request: Request, config: Config, answer: HookAnswer) -> None:
        """Take the answer of the plugins: they accept or refuse the configuration."""
        refusal = answer.reject or answer.error
        if refusal is not None:
            # plugins that have accepted it get the old one again
            self._hooks.ask_configuration(self._queues.config, ConfiguredAgain())
            self._ledger.send(respond(request, flux.REFUSED.write(flux.Refused(refusal))))
            return
        self._queues.configure(config)
        self._purge.configure(config.job_manager)
        self._scheduler.queues_changed()
        if self._queues.has_unstored:
            self._store(QueuesNoted())  # nobody waits for it: the disk may be full
        self._ledger.send(respond(request))

    def _change(
        self,
        request: Request,
        asked: rfc33.QueueEnable | rfc33.QueueStart,
        event: QueueEvent,
        reason: str | None,
    ) -> None:
        for queue in self._queues.meant(asked.name, everyone=asked.all):
            queue.change(event, reason, keep=not asked.nocheckpoint)
        if asked.nocheckpoint:
            self._ledger.send(respond(request))
            return
        self._store(QueuesStored(request))

    def _store(self, call: QueuesStored | QueuesNoted) -> None:
        ops = [["put", CHECKPOINT_KEY, self._queues.checkpoint()]]
        self._ledger.ask_kvs_when_durable(commit_values(ops), call)

    def queues_stored(self, request: Request, response: Response) -> None:
        """Answer `request`, whose change is stored or could not be stored."""
        if response.errnum:
            text = f"done, but not kept for the next start: {response.error_text}"
            answer = respond_error(request, response.errnum, text)
        else:
            answer = respond(request)
        self._ledger.outbox.send(answer)

    def queues_noted(self, response: Response) -> None:
        """Log that the next start may not know how queues were."""
        if response.errnum:
            text = f"{CHECKPOINT_KEY} could not be stored: {response.error_text}"
            self._ledger.outbox.send(Log(Level.ERR, text))

    def queues_read(self, response: Response) -> None:
        """Take the stored state of the queues.

        With `stop-queues-on-restart` the state is stored at every start: so a start is known to be
        the first, and a queue that was stopped stays so.
        """
        self.restored = True
        try:
            checkpoint = value_in(response)
        except FluxError as error:
            self._ledger.outbox.send(cannot_read(CHECKPOINT_KEY, error))
            return
        if checkpoint is not None and not self._restore(checkpoint):
            return
        if self._queues.config.job_manager.stop_queues_on_restart or self._queues.has_unstored:
            self._store(QueuesNoted())

    def _restore(self, checkpoint: str) -> bool:
        """Take the state of the queues; return False if the text cannot be read."""
        try:
            self._queues.restore(checkpoint)
        except msgspec.MsgspecError as error:
            # a queue that an administrator has stopped must not start by itself
            self._queues.stop_all("what was kept of the queues cannot be read")
            text = f"{CHECKPOINT_KEY}: {error}: all queues are stopped"
            self._ledger.outbox.send(Log(Level.CRIT, text))
            return False
        return True
