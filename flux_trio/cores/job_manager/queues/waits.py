"""Waiting for a queue to become empty or idle (RFC 33, Administrative Tools).

Empty is a queue without active jobs, idle one without jobs in RUN or CLEANUP. It has to be so at
one instant: at the end of a turn.
"""

from __future__ import annotations

from typing import TypeAlias

from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.state import Part
from flux_trio.editions import rfc33
from flux_trio.messages import Request, respond
from flux_trio.protocols import ACTIVE, PENDING, RUNNING, JobState

What: TypeAlias = tuple[int, str | None]
"""States, a mask, and a queue or all: no job may be in any of these states there."""


class Waits(Part):
    """Answers drain and idle requests."""

    open: dict[What, dict[str, list[Request]]]  # then by sender

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self.open = {}

    def drain(self, request: Request) -> None:
        """job-manager.drain: answered when the queue, or each, is empty."""
        self._wait(request, ACTIVE)

    def idle(self, request: Request) -> None:
        """job-manager.idle: answered with the number of jobs that wait, when it is idle."""
        self._wait(request, RUNNING)

    def forget(self, sender: str) -> None:
        """Nobody waits there any more."""
        for what, senders in list(self.open.items()):
            senders.pop(sender, None)
            if not senders:
                del self.open[what]

    def end_turn(self) -> None:
        """Answer those whose time has come."""
        for states, name in list(self.open):
            if not self._ledger.tally.jobs(states, name):
                for requests in self.open.pop((states, name)).values():
                    for request in requests:
                        self._answer(request, states, name)

    def _wait(self, request: Request, states: int) -> None:
        name = rfc33.QUEUE_WAIT.read(request).name
        if name is not None:
            self._queues.find(name)
        senders = self.open.setdefault((states, name), {})
        senders.setdefault(request.sender, []).append(request)

    def _answer(self, request: Request, states: int, name: str | None) -> None:
        if states == ACTIVE:
            self._ledger.send(respond(request))
            return
        pending = self._ledger.tally.jobs(JobState.NEW | PENDING, name)
        answer = rfc33.QUEUE_IDLE.write(rfc33.QueueIdle(pending))
        self._ledger.send(respond(request, answer))
