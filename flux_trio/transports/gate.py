"""The gate of a door: who may come in, how many, and how much of the instance they get.

A door of any kind asks its gate. The gate counts connections by user, gives each guest a `Share` of
the instance's time and memory, and makes room for honest clients by dropping the oldest connection
that has not said who it is. How a peer says so, and how it is refused, is the door's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from flux_trio.messages import ROLE_OWNER, Errno
from flux_trio.transports.base import Credentials
from flux_trio.transports.share import Share

CONNECTIONS_MAX: Final = 1024  # open at one door; the next one replaces an unfinished handshake
CONNECTIONS_OF_OWNER_MAX: Final = 512  # of the instance owner
CONNECTIONS_OF_GUEST_MAX: Final = 64  # of each guest; each may hold two frames and a part of one
CONNECTIONS_OF_GUESTS_MAX: Final = 768  # of all guests: the rest is reserved for the owner
GUEST_FRAME_BYTES_MAX: Final = 2**20  # a jobspec with a full environment is 100 kB

NO_ACCESS: Final = "user {} has no access to this instance"


class Refusal(NamedTuple):
    """The reason for refusing a connection; each door tells the peer in its own way."""

    errnum: Errno
    text: str


class Newcomer:
    """A connection that has not said yet who it is; the gate cancels `scope` to make room."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope
        self.dropped = False


class Gate:
    """The admission of one door."""

    def __init__(self) -> None:
        self._open = 0
        self._newcomers: dict[Newcomer, None] = {}  # the oldest first
        self._of_owner = 0
        self._shares: dict[int, Share] = {}  # by userid, of guests that have a connection
        self._of_refused = Share()  # of all who are refused

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Take one of CONNECTIONS_MAX places for the block; yield False if there is none."""
        if self._open >= CONNECTIONS_MAX and not self._drop_oldest_newcomer():
            yield False
            return
        self._open += 1
        try:
            yield True
        finally:
            self._open -= 1

    @contextmanager
    def handshake(self, scope: trio.CancelScope) -> Iterator[Newcomer]:
        """Count the block as a handshake that another connection may replace."""
        newcomer = Newcomer(scope)
        self._newcomers[newcomer] = None
        try:
            yield newcomer
        finally:
            self._newcomers.pop(newcomer, None)

    def _drop_oldest_newcomer(self) -> bool:
        """Make room for a connection; return False if no handshake is unfinished.

        Anybody can open connections and send nothing. An honest client finishes its handshake fast.
        """
        oldest = next(iter(self._newcomers), None)
        if oldest is None:
            return False
        del self._newcomers[oldest]
        oldest.dropped = True
        oldest.scope.cancel()
        return True

    @contextmanager
    def counted(self, peer: Credentials | Refusal) -> Iterator[Credentials | Refusal]:
        """Count `peer` as a connection during the block; yield `peer`, or a refusal."""
        if isinstance(peer, Refusal):
            yield peer
        elif refusal := self._too_many(peer):
            yield refusal
        elif is_guest(peer):
            share = self._shares.setdefault(peer.userid, Share())
            share.connections += 1
            try:
                yield peer
            finally:
                share.connections -= 1
                if not share.connections:
                    del self._shares[peer.userid]
        else:
            self._of_owner += 1
            try:
                yield peer
            finally:
                self._of_owner -= 1

    def _too_many(self, peer: Credentials) -> Refusal | None:
        if not is_guest(peer):
            if self._of_owner >= CONNECTIONS_OF_OWNER_MAX:
                return Refusal(
                    Errno.EAGAIN, f"{self._of_owner} connections of the instance owner are open"
                )
            return None
        share = self._shares.get(peer.userid)
        if share is not None and share.connections >= CONNECTIONS_OF_GUEST_MAX:
            return Refusal(
                Errno.EAGAIN, f"{share.connections} connections of user {peer.userid} are open"
            )
        of_guests = sum(each.connections for each in self._shares.values())
        if of_guests >= CONNECTIONS_OF_GUESTS_MAX:
            return Refusal(Errno.EAGAIN, f"{of_guests} connections of guests are open")
        return None

    def share(self, peer: Credentials) -> Share | None:
        """Return the share of a guest that is `counted`; None for the instance owner."""
        return self._shares[peer.userid] if is_guest(peer) else None

    async def wait_for_turn(self, peer: Credentials | Refusal) -> None:
        """Let a new connection of a guest, or a refused one, wait as a message of a guest does."""
        share = self._of_refused if isinstance(peer, Refusal) else self.share(peer)
        if share is not None:
            async with share.turn():
                pass


def is_guest(peer: Credentials) -> bool:
    """Return whether `peer` is anybody but the instance owner."""
    return not peer.rolemask & ROLE_OWNER
