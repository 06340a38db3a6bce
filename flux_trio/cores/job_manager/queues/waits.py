"""Requests that wait for a queue to become empty or idle (RFC 33, Administrative Tools).

An empty queue has no active job; an idle queue has no job in RUN or CLEANUP. A request is answered
when that is so at the end of a turn.
"""

from __future__ import annotations

from typing import TypeAlias

from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.queues import Queue, Queues
from flux_trio.cores.state import Part
from flux_trio.editions import rfc33
from flux_trio.messages import Errno, FluxError, Request, respond
from flux_trio.protocols import ACTIVE, PENDING, RUNNING, JobState

Condition: TypeAlias = tuple[int, str | None]
"""A mask of states, and a queue (None: all): the wait ends when no job there is in these states."""


class Waits(Part):
    """Answers drain and idle requests."""

    open: dict[Condition, dict[str, list[Request]]]  # each by sender

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self.open = {}

    def drain(self, request: Request) -> None:
        """job-manager.drain: answered when the queue, or every queue, is empty."""
        self._wait(request, ACTIVE)

    def idle(self, request: Request) -> None:
        """job-manager.idle: answered with the number of pending jobs when the queue is idle."""
        self._wait(request, RUNNING)

    def forget(self, sender: str) -> None:
        """Drop the requests of a peer that is gone."""
        for condition, senders in list(self.open.items()):
            senders.pop(sender, None)
            if not senders:
                del self.open[condition]

    def end_turn(self) -> None:
        """Answer the requests whose condition holds."""
        for states, name in list(self.open):
            if not self._jobs(states, name):
                for requests in self.open.pop((states, name)).values():
                    for request in requests:
                        self._answer(request, states, name)

    def _wait(self, request: Request, states: int) -> None:
        name = rfc33.QUEUE_WAIT.read(request).name
        if name is not None:
            self._check(self._queues.find(name))
        senders = self.open.setdefault((states, name), {})
        senders.setdefault(request.sender, []).append(request)

    def _check(self, queue: Queue) -> None:
        """Raise FluxError(EINVAL) for a virtual queue (readings: Waiting on a virtual queue)."""
        parent = self._queues.parent(queue)
        if parent is not None:
            text = f"queue {queue.name} is virtual: wait for its parent {parent}"
            raise FluxError(Errno.EINVAL, text)

    def _answer(self, request: Request, states: int, name: str | None) -> None:
        if states == ACTIVE:
            self._ledger.send(respond(request))
            return
        pending = self._jobs(JobState.NEW | PENDING, name)
        answer = rfc33.QUEUE_IDLE.write(rfc33.QueueIdle(pending))
        self._ledger.send(respond(request, answer))

    def _jobs(self, states: int, name: str | None) -> int:
        """Return the number of jobs in a queue, those of its virtual queues included."""
        tally = self._ledger.tally
        if name is None:
            return tally.jobs(states)
        return sum(tally.jobs(states, each) for each in self._queues.config.with_virtual(name))
