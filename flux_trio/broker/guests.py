"""Counts the open requests of guests, by user: a flood of one guest must leave room for others.

The instance owner's requests are not counted.
"""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.messages import Request, payload_bytes

WAITING_OF_GUEST_MAX: Final = 4096  # requests of one user at one service; more get EAGAIN
WAITING_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # their payloads as JSON; more get EAGAIN

CALLS_OF_GUEST_AHEAD: Final = 16  # unanswered calls above which reading pauses
OPEN_OF_GUEST_MAX: Final = 4096  # requests of all connections of one user; more get EAGAIN
OPEN_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # their payloads as JSON; more get EAGAIN


class OpenRequests:
    """Requests that have not had their last response; `calls_ahead` as for `wait_fewer`."""

    def __init__(self, calls_ahead: int) -> None:
        self.count = 0
        self.calls = 0  # those that are not streams
        self.size = 0  # bytes of their payloads as JSON, where that counts
        self._calls_ahead = calls_ahead
        self._fewer = trio.Event()  # replaced when a task waits

    def begin(self, request: Request, size: int) -> None:
        """Count `request`, even if it will be refused."""
        self.count += 1
        self.calls += not request.is_streaming
        self.size += size

    def end(self, size: int, *, is_streaming: bool) -> None:
        """Uncount a request of this size: it had its last response, or its sender is gone."""
        self.count -= 1
        self.calls -= not is_streaming
        self.size -= size
        if self.calls <= self._calls_ahead:
            self._fewer.set()

    async def wait_fewer(self) -> None:
        """Wait until at most `calls_ahead` calls are open."""
        while self.calls > self._calls_ahead:
            self._fewer = trio.Event() if self._fewer.is_set() else self._fewer
            await self._fewer.wait()


class GuestRequests(OpenRequests):
    """Those of all connections of one guest."""

    def __init__(self, userid: int) -> None:
        super().__init__(CALLS_OF_GUEST_AHEAD)
        self.userid = userid
        self.connections = 0

    def refusal(self) -> str:
        """Return why another request is refused, or ""."""
        if self.count > OPEN_OF_GUEST_MAX:
            what = f"{OPEN_OF_GUEST_MAX} requests"
        elif self.size > OPEN_OF_GUEST_BYTES_MAX:
            what = f"{OPEN_OF_GUEST_BYTES_MAX} bytes of requests"
        else:
            return ""
        return f"user {self.userid} has {what} open: wait for some of them to end"


class GuestQueue:
    """Requests of guests that wait at one peer: number and bytes by userid.

    A service receives all waiting requests at once, so nothing is counted down: `clear` resets the
    counts to zero.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, int]] = {}

    def clear(self) -> None:
        """Reset the counts: the peer has received all waiting requests."""
        if self._waiting:
            self._waiting.clear()

    def refusal(self, request: Request, service: str) -> str:
        """Count `request` and return "", or return why it is refused."""
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
