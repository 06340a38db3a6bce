"""The client: connects commands and programs to an instance, under Trio or asyncio.

`find_instance` returns the address of the instance, and `await_instance` waits while it starts.
`open_client` connects, and a `Client` calls, streams, subscribes and submits; a `Job` is followed
to its end. `connect` is the same for programs without async code, and `FluxTrioExecutor` makes
futures of jobs. An error answer of the instance is a FluxError; every failure to talk to it is a
`ClientError`. The package imports neither trio nor asyncio: anyio uses the one that runs.
"""

import importlib
from typing import TYPE_CHECKING, Final

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
    FLUX_URI_VARIABLE,
    INSIDE_VARIABLE,
    JOB_VARIABLE,
    LOCAL_SCHEME,
    NATIVE_FILE,
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
    is_of_ours,
)

if TYPE_CHECKING:
    from flux_trio.client.blocking import BlockingClient, BlockingJob, connect
    from flux_trio.client.client import Client, open_client
    from flux_trio.client.executor import FluxTrioExecutor, FluxTrioFuture, ResultUnreadable
    from flux_trio.client.jobs import Job, JobFailed, Piece, Result, command_jobspec
    from flux_trio.client.link import ClientStatistics

__all__ = [
    "BACKUP_FILE",
    "FLUX_URI_VARIABLE",
    "INSIDE_VARIABLE",
    "JOB_VARIABLE",
    "LOCAL_SCHEME",
    "NATIVE_FILE",
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
    "BlockingClient",
    "BlockingJob",
    "Client",
    "ClientError",
    "ClientStatistics",
    "ConnectionLost",
    "FluxTrioExecutor",
    "FluxTrioFuture",
    "InstanceStarting",
    "Job",
    "JobFailed",
    "MissingKey",
    "NoInstance",
    "Piece",
    "Result",
    "ResultUnreadable",
    "await_instance",
    "command_jobspec",
    "connect",
    "default_statedir",
    "find_instance",
    "is_further_task",
    "is_in_job",
    "is_of_ours",
    "open_client",
]

_HOMES: Final = {
    "BlockingClient": "blocking",
    "BlockingJob": "blocking",
    "Client": "client",
    "ClientStatistics": "link",
    "FluxTrioExecutor": "executor",
    "FluxTrioFuture": "executor",
    "Job": "jobs",
    "JobFailed": "jobs",
    "Piece": "jobs",
    "Result": "jobs",
    "ResultUnreadable": "executor",
    "command_jobspec": "jobs",
    "connect": "blocking",
    "open_client": "client",
}
"""The module of each name that a start does not need: it is imported when it is first used."""

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Import a name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
