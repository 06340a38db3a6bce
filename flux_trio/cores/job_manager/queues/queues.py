"""RFC 33: the queues, whether each accepts and schedules jobs, and why not.

If the configuration has named queues, there is no anonymous queue. A queue that is not configured
any more keeps its state for the time when it is configured again (readings: Queues that come back).
The state that survives a restart is one text in the kvs (`CHECKPOINT_KEY`). Left out: the jobs in a
queue, and the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from flux_trio.config import Assignment, Config, assign
from flux_trio.cores.state import Part
from flux_trio.editions.rfc33 import SavedQueue, read_checkpoint, write_checkpoint
from flux_trio.messages import Errno, FluxError
from flux_trio.protocols import QueueEvent, QueueState, Switches

CHECKPOINT_KEY: Final = "checkpoint.job-manager"
RESTARTED: Final = "Automatically stopped due to restart"  # flux-config-job-manager(5)

Name = str | None  # of a queue; None: the anonymous queue


class Queue:
    __slots__ = (
        "disable_reason",  # set while the queue is disabled
        "name",
        "saved",  # the state for the next start
        "stop_reason",  # None also if it was stopped without a reason
        "switches",
    )

    def __init__(self, name: Name, started: bool) -> None:
        self.name = name
        self.switches = Switches()
        self.disable_reason: str | None = None
        self.stop_reason: str | None = None
        if not started:
            self._step(QueueEvent.STOP)
        self.saved = SavedQueue(self.state.is_enabled, self.state.is_started, name)

    @property
    def state(self) -> QueueState:
        return self.switches.state

    def change(self, event: QueueEvent, reason: str | None = None, *, keep: bool = True) -> None:
        """Enable, disable, start or stop the queue; with `keep` also after a restart.

        Of the two switches only the one that is set is kept, since the other one may have been set
        until the next start.
        """
        self._step(event)
        if event in (QueueEvent.ENABLE, QueueEvent.DISABLE):
            self.disable_reason = reason
            saved = replace(self.saved, enable=self.state.is_enabled, disable_reason=reason)
        else:
            self.stop_reason = reason
            saved = replace(self.saved, start=self.state.is_started, stop_reason=reason)
        if keep:
            self.saved = saved

    def restore(self, saved: SavedQueue) -> None:
        """Take the state from before this start."""
        self.change(QueueEvent.ENABLE if saved.enable else QueueEvent.DISABLE, saved.disable_reason)
        self.change(QueueEvent.START if saved.start else QueueEvent.STOP, saved.stop_reason)

    def _step(self, event: QueueEvent) -> None:
        self.switches.step(event, self.name or "(anonymous)")


class Queues(Part):
    """The queues by name, in the order of the configuration."""

    config: Config
    by_name: dict[Name, Queue]
    removed: dict[Name, Queue]  # those that were configured before
    stored: set[str]  # the named ones whose state the stored checkpoint has

    def __init__(self, config: Config) -> None:
        self.config = config
        self._are_filled_in = config.edition_value.ingest_fills_in
        self.by_name = {}
        self.removed = {}
        self.stored = set()
        self.configure(config)

    @property
    def names(self) -> list[str]:
        """Return the names of queues; empty if there is only the anonymous queue."""
        return [name for name in self.by_name if name is not None]

    def configure(self, config: Config) -> None:
        """Take the queues of `config`; queues that stay, or come back, keep their state."""
        self.config = config
        wanted: dict[Name, bool] = {name: each.started for name, each in config.queues.items()}
        if not wanted:
            wanted = {None: True}
        known = self.removed | self.by_name
        self.by_name = {
            name: known.get(name) or Queue(name, started) for name, started in wanted.items()
        }
        self.removed = {name: queue for name, queue in known.items() if name not in wanted}

    @property
    def has_unstored(self) -> bool:
        """Return whether a queue would come back otherwise than it is, after a restart.

        That is a queue which the configuration has begun as stopped, or does not have any more, and
        which is not in the stored checkpoint. The anonymous queue always begins in the same way.
        """
        begun_stopped = (each for each in self.by_name.values() if not each.saved.start)
        names = {each.name for each in chain(self.removed.values(), begun_stopped)} - {None}
        return not names <= self.stored

    def assign(self, system: Mapping[str, Any]) -> Assignment:
        """Return the queue of a new job with these `attributes.system`, and what that adds.

        Where ingest has filled that in already, nothing is left to add. Raises as `config.assign`.
        """
        assignment = assign(self.config, system)
        return replace(assignment, updates={}) if self._are_filled_in else assignment

    def find(self, name: Name) -> Queue:
        """Return a queue. Raises FluxError(EINVAL), with flux-core's text, for an unknown one."""
        queue = self.by_name.get(name)
        if queue is None and name is None:
            raise FluxError(Errno.EINVAL, "a named queue is required")
        if queue is None:
            raise FluxError(Errno.EINVAL, f"'{name}' is not a valid queue")
        return queue

    def meant(self, name: Name, *, everyone: bool) -> list[Queue]:
        """Return the queues that an administrator's request names. Raises FluxError(EINVAL)."""
        if name is None and (everyone or None in self.by_name):
            return list(self.by_name.values())
        if name is None:
            raise FluxError(Errno.EINVAL, "Use --all to apply this command to all queues")
        return [self.find(name)]

    def schedules(self, name: Name) -> bool:
        """Return whether requests for jobs of a queue may be sent; False for an unknown queue."""
        queue = self.by_name.get(name)
        return queue is not None and self.stopped_by(queue) is None

    def stopped_by(self, queue: Queue) -> Queue | None:
        """Return the queue that keeps jobs of `queue` waiting: itself or its parent; or None."""
        parent = self.parent(queue)
        along = [queue] if parent is None else [queue, self.by_name[parent]]
        return next((each for each in along if not each.state.is_started), None)

    def parent(self, queue: Queue) -> str | None:
        """Return the parent of a virtual queue."""
        return None if queue.name is None else self.config.parents.get(queue.name)

    def refusal(self, name: Name) -> str | None:
        """Return why a queue refuses jobs, in flux-core's words; None if it accepts. KeyError."""
        queue = self.by_name[name]
        if queue.state.is_enabled:
            return None
        where = "" if name is None else f" to {name}"
        return f"job submission{where} is disabled: {queue.disable_reason}"

    def checkpoint(self) -> str:
        """Return the text that survives a restart, to be stored."""
        saved = [queue.saved for queue in self._all()]
        self.stored = {each.name for each in saved if each.name is not None}
        return write_checkpoint(saved)

    def restore(self, text: str) -> None:
        """Take a checkpoint.

        With `job-manager.stop-queues-on-restart`, the queues that were started are stopped. Raises
        msgspec.MsgspecError for an invalid text.
        """
        checkpoint = read_checkpoint(text)
        for saved in checkpoint.queues:
            queue = self.by_name.get(saved.name)
            if queue is None:
                queue = self.removed[saved.name] = Queue(saved.name, started=True)
            queue.restore(saved)
        self.stored = {each.name for each in checkpoint.queues if each.name is not None}
        if self.config.job_manager.stop_queues_on_restart:
            for queue in self._all():
                if queue.state.is_started:
                    queue.change(QueueEvent.STOP, RESTARTED)
        if checkpoint.all_stopped is not UNSET:
            for queue in self._all():
                queue.change(QueueEvent.STOP, checkpoint.all_stopped)

    def stop_all(self, reason: str) -> None:
        """Stop every queue, until the next start."""
        for queue in self.by_name.values():
            queue.change(QueueEvent.STOP, reason, keep=False)

    def _all(self) -> Iterator[Queue]:
        return chain(self.by_name.values(), self.removed.values())
