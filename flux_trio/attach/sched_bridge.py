"""What the scheduler's core and a broker of flux-core say to each other: which message goes where.

RFC 27 and 28 pass as they are. The return of a job manager is an event here, service-back; there
nothing tells of it, so that the bridge asks for the job manager until there is one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.attach.bridge import Bridge, Sent
from flux_trio.messages import ROLE_OWNER, Errno, Event, Request, Response, topics

PING_MANAGER: Final = f"{topics.JOB_MANAGER}.ping"


class ManagerSought(msgspec.Struct, frozen=True):
    """Answers a ping of the job manager."""


class SchedBridge(Bridge[ManagerSought]):
    """Gives messages of the scheduler's core to the broker, and back."""

    def __init__(self) -> None:
        super().__init__()
        self._lacks_manager = False  # the core waits for its return

    def seek_manager(self) -> Sent:
        """Ask whether there is a job manager again, if none is known."""
        if self._lacks_manager:
            self.ask(PING_MANAGER, {}, ManagerSought())
        return self.pop_sent()

    def pass_answer(self, request: Request, response: Response) -> None:
        if request.topic == topics.SCHED_HELLO and response.errnum == Errno.ENOSYS:
            self._lacks_manager = True
        super().pass_answer(request, response)

    def answered(self, _call: ManagerSought, response: Response) -> None:
        if response.errnum != Errno.ENOSYS and self._lacks_manager:
            self._lacks_manager = False
            back = {"service": topics.JOB_MANAGER}
            self.to_core.append(Event(topics.SERVICE_BACK_EVENT, back, rolemask=ROLE_OWNER))
