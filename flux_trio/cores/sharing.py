"""Limits on how much of a service one user may use at once, so that others can use it. Pure.

The instance owner has the same limits as other users.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
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
    unanswered,
)

BACKLOG_OF_GUEST_MAX: Final = 4096  # requests to a service that is starting; beyond it EAGAIN
BACKLOG_OF_GUEST_BYTES_MAX: Final = 16 * 2**20  # of their payloads as JSON; the same

Message = TypeVar("Message")


class Allowance:
    """Counts for each user how many things of one kind are open; `most` is each user's limit.

    `what` is the plural noun for these things in the error. The owner has the limit `of_owner`, if
    it is given.
    """

    def __init__(self, most: int, what: str, *, of_owner: int | None = None) -> None:
        self._most = most
        self._of_owner = most if of_owner is None else of_owner
        self._what = what
        self._open: dict[int, int] = {}  # by userid; a user without any is absent

    def count_opened(self, userid: int, *, is_owner: bool = False) -> None:
        """Count one more. Raises FluxError(EAGAIN), which names the limit, at the limit."""
        count = self._open.get(userid, 0)
        if count >= (self._of_owner if is_owner else self._most):
            text = f"user {userid} has {count} {self._what} open, the most that one user may have"
            raise FluxError(Errno.EAGAIN, text)
        self._open[userid] = count + 1

    def count_closed(self, userid: int) -> None:
        """Count one less."""
        self._open[userid] -= 1
        if not self._open[userid]:
            del self._open[userid]


class Backlog(Generic[Message]):
    """Messages, in order, that a service gets while it starts; it takes them once it is ready.

    Requests of guests are bounded for each user in number and bytes, since nothing else counts a
    request without a response. When a guest leaves, its requests are dropped, and so is its
    disconnect request.
    """

    def __init__(self) -> None:
        self._waiting: list[Message] = []
        self._guests: dict[int, tuple[int, int]] = {}  # by userid: number and bytes
        self._senders: set[str] = set()  # peers of guests whose requests wait here

    def put(self, message: Message, forget: Callable[[str], None]) -> Response | None:
        """Keep `message`; return an error response instead if there is no room for it.

        `forget` drops the answers of this turn to a peer that leaves.
        """
        if isinstance(message, Request) and is_disconnect(message):
            forget(message.sender)
            if not message.is_owner:
                self._leave(message.sender)
                return None
            self._silence(message.sender)
        elif isinstance(message, Request) and not message.is_owner:
            count, size = self._guests.get(message.userid, (0, 0))
            count, size = count + 1, size + payload_bytes(message)
            if count > BACKLOG_OF_GUEST_MAX or size > BACKLOG_OF_GUEST_BYTES_MAX:
                text = f"too many requests of user {message.userid} wait for the service to start"
                return respond_error(message, Errno.EAGAIN, text)
            self._guests[message.userid] = count, size
            self._senders.add(message.sender)
        self._waiting.append(message)
        return None

    def __iter__(self) -> Iterator[Message]:
        return iter(self._waiting)

    def remove_all(self) -> list[Message]:
        """Remove and return all messages."""
        waiting, self._waiting = self._waiting, []
        self._guests, self._senders = {}, set()
        return waiting

    def pop_about(self, about: Collection[str]) -> list[Message]:
        """Remove and return the requests with one of these topics."""

        def is_meant(message: Message) -> bool:
            return isinstance(message, Request) and message.topic in about

        taken = [each for each in self._waiting if is_meant(each)]
        self._waiting = [each for each in self._waiting if not is_meant(each)]
        return taken

    def _silence(self, sender: str) -> None:
        """Do not answer the requests of a peer of the owner that is gone (RFC 6, Disconnection)."""
        self._waiting = [
            unanswered(each, sender) if isinstance(each, Request) else each
            for each in self._waiting
        ]

    def _leave(self, sender: str) -> None:
        """Drop what the peer has sent; it counts for its user until the service is ready."""
        if sender in self._senders:
            self._senders.discard(sender)
            self._waiting = [
                each
                for each in self._waiting
                if not isinstance(each, Request) or each.sender != sender
            ]


def is_disconnect(request: Request) -> bool:
    """Return whether `request` tells a service that the sender is gone (RFC 6, Disconnection)."""
    return request.topic == topics.disconnect_of(service_of(request.topic))
