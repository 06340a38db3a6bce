"""The client: connects commands and programs to an instance, under Trio or asyncio.

`find_instance` returns the address of the instance, and `await_instance` waits while it starts.
`open_client` connects, and a `Client` calls, streams, subscribes and submits. An error answer of
the instance is a FluxError; every failure to talk to it is a `ClientError`. The package imports
neither trio nor asyncio: anyio uses the one that runs.
"""

from flux_trio.client.client import Client, open_client
from flux_trio.client.errors import (
    AccessDenied,
    ClientError,
    ConnectionLost,
    InstanceStarting,
    MissingKey,
    NoInstance,
)
from flux_trio.client.find import (
    BACKUP_FILE,
    INSIDE_VARIABLE,
    JOB_VARIABLE,
    LOCAL_SCHEME,
    SOCKET_FILE,
    STARTING_FILE,
    STATEDIR_VARIABLE,
    TASK_VARIABLE,
    TOKEN_FILE,
    TOKEN_VARIABLE,
    URI_FILE,
    URI_VARIABLE,
    Address,
    await_instance,
    default_statedir,
    find_instance,
    is_further_task,
    is_in_job,
)
from flux_trio.client.link import ClientStatistics

__all__ = [
    "BACKUP_FILE",
    "INSIDE_VARIABLE",
    "JOB_VARIABLE",
    "LOCAL_SCHEME",
    "SOCKET_FILE",
    "STARTING_FILE",
    "STATEDIR_VARIABLE",
    "TASK_VARIABLE",
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
    "InstanceStarting",
    "MissingKey",
    "NoInstance",
    "await_instance",
    "default_statedir",
    "find_instance",
    "is_further_task",
    "is_in_job",
    "open_client",
]
