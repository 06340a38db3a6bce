"""A remote peer: its connection is a nursery on the broker's side."""

from __future__ import annotations

from collections.abc import Callable

import trio

from flux_trio.broker.router import Peer, Router
from flux_trio.messages import Level, Message
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
    dropped = ""
    scope = trio.CancelScope()

    def deliver(ref: int, message: Message) -> None:
        nonlocal dropped
        try:
            connection.send_nowait(message)
            router.trace.received(peer.name, "", message, ref)
        except ConnectionOverflow as error:
            dropped = str(error)
            router.trace.dropped(peer.name, message, ref, dropped)
            scope.cancel()
        except ConnectionClosed as error:
            router.trace.dropped(peer.name, message, ref, str(error))

    name = router.unique_name(credentials.name)
    peer = Peer(name, credentials.userid, credentials.rolemask, deliver, lambda: 0)
    router.add(peer)
    try:
        with scope:
            while True:
                for message in await connection.receive():
                    router.route(peer, message)
        write_log(Level.ERR, name, f"dropped: {dropped}")
    except ConnectionLost as error:
        write_log(Level.WARNING, name, f"connection lost: {error}")
    except EndOfConnection:
        pass  # the peer said goodbye
    finally:
        router.remove(peer)
        await connection.aclose(dropped)
