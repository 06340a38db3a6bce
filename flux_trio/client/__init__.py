"""The client: connects commands and programs to an instance, under Trio or asyncio.

`find_instance` returns the address of the instance, `open_client` connects, and a `Client` calls,
streams, subscribes and submits. An error answer of the instance is a FluxError; every failure to
talk to it is a `ClientError`. The package imports neither trio nor asyncio: anyio uses the one that
runs.
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
