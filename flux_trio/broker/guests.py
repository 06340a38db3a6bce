"""How much of guests' requests is under way, by user: a flood of one guest leaves room for all.

The instance owner's requests are not counted.
"""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.messages import Request, payload_bytes

WAITING_OF_GUEST_MAX: Final = 4096  # requests of one user at one service; beyond it EAGAIN
WAITING_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # of their payloads as JSON; the same

CALLS_OF_GUEST_AHEAD: Final = 16  # that services have not answered, before more is read
OPEN_OF_GUEST_MAX: Final = 4096  # requests of all connections of one user; beyond it EAGAIN
OPEN_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # of their payloads as JSON; the same


class GuestRequests:
    """Requests of one guest's connections that have not had their last answer."""

    def __init__(self, userid: int) -> None:
        self.userid = userid
        self.connections = 0
        self.count = 0
        self.calls = 0  # of them, those that are no streams
        self.size = 0  # bytes of their payloads as JSON
        self._fewer = trio.Event()  # replaced when somebody waits

    def begin(self, request: Request) -> int:
        """Count `request`, even when there is no room for it; its size, for `end`."""
        size = payload_bytes(request)
        self.count += 1
        self.calls += not request.is_streaming
        self.size += size
        return size

    def end(self, size: int, *, is_streaming: bool) -> None:
        """A request of this size has had its last answer, or nobody waits for it any more."""
        self.count -= 1
        self.calls -= not is_streaming
        self.size -= size
        if self.calls <= CALLS_OF_GUEST_AHEAD:
            self._fewer.set()

    async def wait_fewer(self) -> None:
        """Until at most CALLS_OF_GUEST_AHEAD calls are open, over all connections."""
        while self.calls > CALLS_OF_GUEST_AHEAD:
            self._fewer = trio.Event() if self._fewer.is_set() else self._fewer
            await self._fewer.wait()

    def refusal(self) -> str:
        """Why no more can be taken; "" when there is room."""
        if self.count > OPEN_OF_GUEST_MAX:
            what = f"{OPEN_OF_GUEST_MAX} requests"
        elif self.size > OPEN_OF_GUEST_BYTES_MAX:
            what = f"{OPEN_OF_GUEST_BYTES_MAX} bytes of requests"
        else:
            return ""
        return f"user {self.userid} has {what} open: let some of them end"


class GuestQueue:
    """Requests of guests that one peer has not taken up: number and bytes by userid.

    A service takes up everything that waits at once, so nothing has to be counted down: from then
    on what is counted is what came since.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, int]] = {}

    def taken_up(self) -> None:
        """The peer has taken up all there was."""
        if self._waiting:
            self._waiting.clear()

    def refusal(self, request: Request, service: str) -> str:
        """Count `request` and return "", or return why it is not taken."""
        count, size = self._waiting.get(request.userid, (0, 0))
        count, size = count + 1, size + payload_bytes(request)
        if count > WAITING_OF_GUEST_MAX:
            what = f"{WAITING_OF_GUEST_MAX} requests"
        elif size > WAITING_OF_GUEST_BYTES_MAX:
            what = f"{WAITING_OF_GUEST_BYTES_MAX} bytes of requests"
        else:
            self._waiting[request.userid] = (count, size)
            return ""
        return f"user {request.userid} has {what} waiting at {service}; try again later"
