"""What the parts of the scheduler share: actions of the turn, open calls, each job's stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from flux_trio.cores.turns import Exit, Log
from flux_trio.messages import Calls, Payload, Request, Response
from flux_trio.protocols import ALLOC, AllocEvent, AllocState

LOG_ERR: Final = 3  # syslog severity

Then: TypeAlias = Callable[[Response], None]


class Context:
    """Collects the actions of a turn, and calls back when what was asked is answered."""

    def __init__(self) -> None:
        self.now = 0.0
        """Time of the turn, seconds since the Unix epoch."""
        self._actions: list[Any] = []
        self._calls: Calls[Then] = Calls()
        self._stands: dict[int, AllocState] = {}  # idle ones are left out

    def do(self, action: Any) -> None:
        """Add an action; None is none."""
        if action is not None:
            self._actions.append(action)

    def take_actions(self) -> list[Any]:
        actions, self._actions = self._actions, []
        return actions

    def ask(self, topic: str, payload: Payload, then: Then, flags: int = 0) -> None:
        """Send a request; `then` gets every response to it."""
        self.do(Request(topic, payload, self._calls.open(then), flags))

    def answered(self, response: Response) -> None:
        """Hand a response to who asked; one that answers nothing is dropped."""
        then = self._calls.match(response)
        if then is not None:
            then(response)

    def log_error(self, text: str) -> None:
        """Say in the log what somebody did wrong."""
        self.do(Log(LOG_ERR, text))

    def give_up(self, reason: str) -> None:
        """Log `reason` and leave, as RFC 27 and 28 want it of errors that nobody can repair."""
        self.log_error(reason)
        self.do(Exit(reason))

    # Where each job stands (RFC 27)

    def stand(self, jobid: int) -> AllocState:
        """Where the job stands with us."""
        return self._stands.get(jobid, AllocState.IDLE)

    def step(self, jobid: int, event: AllocEvent) -> AllocState:
        """`event` has happened. Raises InvalidTransition, and then it has not."""
        after = ALLOC.step(self.stand(jobid), event)
        if after is AllocState.IDLE:
            self._stands.pop(jobid, None)
        else:
            self._stands[jobid] = after
        return after

    def forget_jobs(self) -> None:
        """No job stands anywhere."""
        self._stands.clear()
