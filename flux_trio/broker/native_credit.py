"""Credit for Flux's own programs, which know none: the native door grants it as they read.

The eventlog of a job's output may have a million lines, of which each is a response. Without credit
the service would send them all at once, and the connection of a program that reads more slowly
would be dropped. With it the service reads on when the program has read (`cores.streams`).
"""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from flux_trio.broker.router import Router
from flux_trio.editions.common import GRANT, Grant
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.transports import Connection

WATCH_CREDIT: Final = 512  # responses of a watch that are on their way to the program


class Granter:
    """The watches of one connection, and how many responses of each were sent since its grant."""

    def __init__(self, router: Router, connection: Connection) -> None:
        self._router = router
        self._connection = connection
        self._sent: dict[str, dict[int, int]] = {}  # peer -> matchtag -> responses
        self._due: list[tuple[str, int]] = []
        self._wake = trio.Event()

    def opens(self, peer: str, request: Request) -> Request:
        """Return `request` of `peer` with credit, if it opens a watch."""
        payload = request.payload
        if request.topic != topics.INFO_WATCH or not request.is_streaming:
            return request
        if not isinstance(payload, dict) or "credit" in payload:
            return request
        self._sent.setdefault(peer, {})[request.matchtag] = 0
        return msgspec.structs.replace(request, payload={**payload, "credit": WATCH_CREDIT})

    def sent(self, peer: str, response: Response) -> None:
        """Count a response to `peer`; a grant is due for each half of the credit."""
        watches = self._sent.get(peer)
        if watches is None or response.matchtag not in watches:
            return
        if response.ends_rpc:
            del watches[response.matchtag]
            return
        watches[response.matchtag] += 1
        if watches[response.matchtag] == WATCH_CREDIT // 2:
            self._due.append((peer, response.matchtag))
            self._wake.set()

    def forget(self, peer: str) -> None:
        """Forget the watches of a peer that is gone."""
        self._sent.pop(peer, None)

    async def run(self) -> None:
        """Grant what is due whenever the program has read, until cancelled."""
        while True:
            await self._wake.wait()
            await self._connection.wait_room()
            due, self._due, self._wake = self._due, [], trio.Event()
            for peer, matchtag in due:
                self._grant(peer, matchtag)

    def _grant(self, peer: str, matchtag: int) -> None:
        watches, sender = self._sent.get(peer, {}), self._router.peers.get(peer)
        if sender is None or not (count := watches.get(matchtag, 0)):
            return  # it has ended meanwhile
        watches[matchtag] = 0
        topic = topics.credit_of(topics.INFO_WATCH)
        payload = GRANT.write(Grant(matchtag, count))
        self._router.route(sender, Request(topic, payload, flags=NORESPONSE))
