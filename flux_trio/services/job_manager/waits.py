"""Waiting for a queue to become empty or idle (RFC 33, Administrative Tools).

Empty is a queue without active jobs, idle one without jobs in RUN or CLEANUP. It has to be so at
one instant: at the end of a turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from flux_trio.messages import Request, expect_payload, respond
from flux_trio.protocols import ACTIVE, PENDING, RUNNING, JobState
from flux_trio.services.job_manager.ledger import Ledger
from flux_trio.services.job_manager.queues import Queues


class WaitRequest(msgspec.Struct):
    """job-manager.drain and job-manager.idle; all queues without a name."""

    name: str | None = None


@dataclass(slots=True)
class _Wait:
    """One request under way."""

    request: Request
    name: str | None
    states: int  # a mask: no job may be in any


class Waits:
    """Answers drain and idle requests."""

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self._open: list[_Wait] = []

    def drain(self, request: Request) -> None:
        """job-manager.drain: answered when the queue, or each, is empty."""
        self._wait(request, ACTIVE)

    def idle(self, request: Request) -> None:
        """job-manager.idle: answered with the number of jobs that wait, when it is idle."""
        self._wait(request, RUNNING)

    def forget(self, sender: str) -> None:
        """Nobody waits there any more."""
        self._open = [wait for wait in self._open if wait.request.sender != sender]

    def end_turn(self) -> None:
        """Answer those whose time has come."""
        for wait in list(self._open):
            if not self._ledger.tally.jobs(wait.states, wait.name):
                self._open.remove(wait)
                self._answer(wait)

    def _wait(self, request: Request, states: int) -> None:
        name = expect_payload(request, WaitRequest).name
        if name is not None:
            self._queues.find(name)
        self._open.append(_Wait(request, name, states))

    def _answer(self, wait: _Wait) -> None:
        if wait.states == ACTIVE:
            self._ledger.send(respond(wait.request))
            return
        pending = self._ledger.tally.jobs(JobState.NEW | PENDING, wait.name)
        self._ledger.send(respond(wait.request, {"pending": pending}))
