"""Transports: how messages get from one peer to another.

A `Connection` is one peer's two-way, ordered stream of messages, in memory (`memory_pair`) or over
a WebSocket, at a port (`serve_websocket`) or a Unix socket (`serve_unix`), to which one gets by
`connect_websocket`; who the peer is, its `Credentials` say. An `Inbox` is the queue that one task
reads. What the messages mean is the broker's business.
"""

from flux_trio.transports.base import (
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    ConnectionRefused,
    Credentials,
    EndOfConnection,
    TransportError,
)
from flux_trio.transports.connecting import connect_websocket
from flux_trio.transports.door import serve_unix, serve_websocket
from flux_trio.transports.inbox import Inbox
from flux_trio.transports.memory import MemoryConnection, memory_pair
from flux_trio.transports.websocket import WebSocketConnection

__all__ = [
    "Connection",
    "ConnectionClosed",
    "ConnectionLost",
    "ConnectionOverflow",
    "ConnectionRefused",
    "Credentials",
    "EndOfConnection",
    "Inbox",
    "MemoryConnection",
    "TransportError",
    "WebSocketConnection",
    "connect_websocket",
    "memory_pair",
    "serve_unix",
    "serve_websocket",
]
