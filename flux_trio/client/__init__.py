"""The client: what a command or a program uses to talk to an instance, under Trio or asyncio.

`find_instance` says where the instance is, `open_client` connects, and a `Client` calls, streams,
subscribes and submits. An instance's refusal is a FluxError; everything that keeps the two from
talking is a `ClientError`. It imports neither trio nor asyncio: anyio has the one that runs.
"""

from flux_trio.client.client import Client, open_client
from flux_trio.client.errors import AccessDenied, ClientError, ConnectionLost, NoInstance
from flux_trio.client.find import (
    LOCAL_SCHEME,
    SOCKET_FILE,
    STATEDIR_VARIABLE,
    TOKEN_FILE,
    TOKEN_VARIABLE,
    URI_FILE,
    URI_VARIABLE,
    Address,
    default_statedir,
    find_instance,
)
from flux_trio.client.link import ClientStatistics

__all__ = [
    "LOCAL_SCHEME",
    "SOCKET_FILE",
    "STATEDIR_VARIABLE",
    "TOKEN_FILE",
    "TOKEN_VARIABLE",
    "URI_FILE",
    "URI_VARIABLE",
    "AccessDenied",
    "Address",
    "Client",
    "ClientError",
    "ClientStatistics",
    "ConnectionLost",
    "NoInstance",
    "default_statedir",
    "find_instance",
    "open_client",
]
