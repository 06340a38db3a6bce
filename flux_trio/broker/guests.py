"""How much of guests' requests waits at one service, by user: a flood of one leaves room for all.

A service takes up everything that waits at once, so nothing has to be counted down: from then on
what is counted is what came since. The instance owner's requests are not counted.
"""

from __future__ import annotations

from typing import Final

from flux_trio.messages import Request, payload_bytes

WAITING_OF_GUEST_MAX: Final = 4096  # requests of one user at one service; beyond it EAGAIN
WAITING_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # of their payloads as JSON; the same


class GuestQueue:
    """Requests of guests that the peer has not taken up: number and bytes by userid."""

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
