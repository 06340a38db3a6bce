"""How much of a service one user may have at once, so that there is some for the others. Pure.

The instance owner is a user like the others here: nobody uses up what another one has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Generic, TypeVar

from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    payload_bytes,
    respond_error,
    service_of,
    topics,
    without_response,
)

BACKLOG_OF_GUEST_MAX: Final = 4096  # requests to a service that is starting; beyond it EAGAIN
BACKLOG_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # of their payloads as JSON; the same

Message = TypeVar("Message")


class Allowance:
    """Counts, for each user, how many of one thing are open; `most` is each user's limit.

    `what` names the thing in the error, in the plural.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: dict[int, int] = {}  # by userid; nobody has 0

    def take(self, userid: int) -> None:
        """One more is open. Raises FluxError(EAGAIN), which names the limit, and counts nothing."""
        count = self._open.get(userid, 0)
        if count >= self._most:
            text = f"user {userid} has {count} {self._what} open, the most that one user may have"
            raise FluxError(Errno.EAGAIN, text)
        self._open[userid] = count + 1

    def give_back(self, userid: int) -> None:
        """One of them has ended."""
        self._open[userid] -= 1
        if not self._open[userid]:
            del self._open[userid]


class Backlog(Generic[Message]):
    """What a service that is starting has been sent, in order; it takes it up once it is ready.

    Requests of guests are bounded for each user in number and bytes, since a request without a
    response is counted nowhere else. A guest who leaves takes along what waits, and so is not told
    of later.
    """

    def __init__(self) -> None:
        self._waiting: list[Message] = []
        self._guests: dict[int, tuple[int, int]] = {}  # by userid: number and bytes
        self._senders: set[str] = set()  # guests' peers that have something here

    def put(self, message: Message) -> Response | None:
        """Keep `message`; if there is no room for it, the error response to it, if it wants one."""
        if isinstance(message, Request) and not message.is_owner:
            if _is_disconnect(message):
                self._leave(message.sender)
                return None
            count, size = self._guests.get(message.userid, (0, 0))
            count, size = count + 1, size + payload_bytes(message)
            if count > BACKLOG_OF_GUEST_MAX or size > BACKLOG_OF_GUEST_BYTES_MAX:
                text = f"too many requests of user {message.userid} wait for the service to start"
                return respond_error(message, Errno.EAGAIN, text)
            self._guests[message.userid] = count, size
            self._senders.add(message.sender)
        elif isinstance(message, Request) and _is_disconnect(message):
            self._silence(message.sender)
        self._waiting.append(message)
        return None

    def __iter__(self) -> Iterator[Message]:
        return iter(self._waiting)

    def take(self) -> list[Message]:
        """All that waits; it is here no more."""
        waiting, self._waiting = self._waiting, []
        self._guests, self._senders = {}, set()
        return waiting

    def take_about(self, about: Collection[str]) -> list[Message]:
        """The requests with one of those topics; they wait here no more."""

        def is_meant(message: Message) -> bool:
            return isinstance(message, Request) and message.topic in about

        taken = [each for each in self._waiting if is_meant(each)]
        self._waiting = [each for each in self._waiting if not is_meant(each)]
        return taken

    def _silence(self, sender: str) -> None:
        """A peer of the owner is gone: answer none of its requests (RFC 6, Disconnection)."""
        self._waiting = [
            without_response(each) if isinstance(each, Request) and each.sender == sender else each
            for each in self._waiting
        ]

    def _leave(self, sender: str) -> None:
        """What the peer has sent goes; it counts for its user until the service is ready."""
        if sender in self._senders:
            self._senders.discard(sender)
            self._waiting = [
                each
                for each in self._waiting
                if not isinstance(each, Request) or each.sender != sender
            ]


def _is_disconnect(request: Request) -> bool:
    return request.topic == topics.disconnect_of(service_of(request.topic))
