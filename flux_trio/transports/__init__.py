"""Transports: carry messages from one peer to another.

A `Connection` is a two-way, ordered stream of messages with one peer. It runs in memory
(`memory_pair`), over a WebSocket at a port (`serve_websocket`) or a Unix socket (`serve_unix`), or
on Flux's own wire (`serve_native`); clients use `connect_websocket` or `connect_native`.
`Credentials` say who the peer is. An `Inbox` is the queue that one task reads. The broker
interprets the messages.
"""

from flux_trio.transports.base import (
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOverflow,
    ConnectionRefused,
    Credentials,
    EndOfConnection,
    OnConnection,
    TransportError,
)
from flux_trio.transports.connecting import connect_websocket
from flux_trio.transports.door import serve_unix, serve_websocket
from flux_trio.transports.inbox import Inbox
from flux_trio.transports.memory import MemoryConnection, memory_pair
from flux_trio.transports.native import NativeConnection, connect_native, open_native
from flux_trio.transports.native_door import native_uri, serve_native
from flux_trio.transports.paced import PacedConnection

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
    "NativeConnection",
    "OnConnection",
    "PacedConnection",
    "TransportError",
    "connect_native",
    "connect_websocket",
    "memory_pair",
    "native_uri",
    "open_native",
    "serve_native",
    "serve_unix",
    "serve_websocket",
]
