"""A remote peer: its connection is a nursery on the broker's side."""

from __future__ import annotations

from collections.abc import Callable

import trio

from flux_trio.broker.router import Peer, Router
from flux_trio.messages import Errno, Level, LocalProtocolError, Message, Response
from flux_trio.trace import Trace
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    Credentials,
    EndOfConnection,
)

WriteLog = Callable[[int, str, str], None]  # level, party, text


async def serve_connection(
    router: Router, write_log: WriteLog, connection: Connection, credentials: Credentials
) -> None:
    """Route what comes over `connection` until it ends; then its services are told.

    A peer that does not take up what is sent to it is dropped, by name, in the log.
    """
    name = router.unique_name(credentials.name)
    outgoing = _Outgoing(name, router.trace, write_log, connection)
    peer = Peer(name, credentials.userid, credentials.rolemask, outgoing.deliver, lambda: 0)
    router.add(peer)
    try:
        with outgoing.scope:
            while True:
                for message in await connection.receive():
                    router.route(peer, message)
    except ConnectionLost as error:
        write_log(Level.WARNING, name, f"connection lost: {error}")
    except EndOfConnection:
        pass  # the peer said goodbye
    finally:
        router.remove(peer)
        await connection.aclose(outgoing.dropped)


class _Outgoing:
    """What the broker has for one peer. The first overflow ends it: nothing follows a gap."""

    def __init__(
        self, name: str, trace: Trace, write_log: WriteLog, connection: Connection
    ) -> None:
        self._name = name
        self._trace = trace
        self._write_log = write_log
        self._connection = connection
        self.scope = trio.CancelScope()  # around the reader of the connection
        self.dropped = ""  # why, once the peer has been given up

    def deliver(self, ref: int, message: Message) -> None:
        """Queue `message`; a message that cannot go is this peer's loss, not its sender's."""
        if self.dropped:
            self._trace.dropped(self._name, message, ref, self.dropped)
            return
        try:
            self._connection.send_nowait(message)
        except ConnectionOverflow as error:
            self.dropped = str(error)
            self._trace.dropped(self._name, message, ref, self.dropped)
            self._write_log(Level.ERR, self._name, f"dropped: {self.dropped}")
            self.scope.cancel()
        except ConnectionClosed as error:
            self._trace.dropped(self._name, message, ref, str(error))
        except LocalProtocolError as error:
            self._trace.dropped(self._name, message, ref, str(error))
            self._write_log(Level.ERR, self._name, str(error))
            self._fail(ref, message, str(error))
        else:
            self._trace.received(self._name, "", message, ref)

    def _fail(self, ref: int, message: Message, text: str) -> None:
        """In place of an answer that no frame can carry, most likely for its size."""
        if isinstance(message, Response) and message.errnum == 0:
            errnum = int(Errno.EMSGSIZE)
            routes = message.routes
            self.deliver(
                ref, Response(message.topic, text, errnum, message.matchtag, routes=routes)
            )
