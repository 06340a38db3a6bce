"""The broker: identifies peers, routes messages to services, and runs modules.

A `Router` moves messages between peers. It notifies services when a peer they talked to is gone. A
`Supervisor` runs each module in its own nursery. Each module gets a `Handle`, the same wherever it
runs; `Processes` runs modules in other processes, which use `open_remote`. Other peers connect
through `serve_connection`, or `serve_native_connection` if they speak Flux's own wire. The broker
never reads a payload.
"""

from flux_trio.broker.configuration import ConfigRefused, Configuration
from flux_trio.broker.connections import serve_connection
from flux_trio.broker.handle import Clock, Handle, LocalHandle
from flux_trio.broker.log import LOG_FILE, OLDER_LOG_FILE, LogBook, LogEntry, LogFile
from flux_trio.broker.module_file import ModuleFiles
from flux_trio.broker.native import NativeShared, serve_native_connection
from flux_trio.broker.native_services import FLUX_VERSION, Around, NativeServices, attributes_of
from flux_trio.broker.process import READY, ProcessEnded, Processes
from flux_trio.broker.remote import RemoteHandle, open_remote, taking_in
from flux_trio.broker.router import Peer, Router
from flux_trio.broker.services import BrokerServices
from flux_trio.broker.supervisor import (
    ModuleCrashed,
    ModuleInfo,
    ModuleKilled,
    ModuleMain,
    ModuleNotStarted,
    ModuleSpec,
    ModuleStatus,
    ServiceExit,
    Supervisor,
)
from flux_trio.broker.tokens import TOKEN_REVOKED, TokenEntry, Tokens, local_user

__all__ = [
    "FLUX_VERSION",
    "LOG_FILE",
    "OLDER_LOG_FILE",
    "READY",
    "TOKEN_REVOKED",
    "Around",
    "BrokerServices",
    "Clock",
    "ConfigRefused",
    "Configuration",
    "Handle",
    "LocalHandle",
    "LogBook",
    "LogEntry",
    "LogFile",
    "ModuleCrashed",
    "ModuleFiles",
    "ModuleInfo",
    "ModuleKilled",
    "ModuleMain",
    "ModuleNotStarted",
    "ModuleSpec",
    "ModuleStatus",
    "NativeServices",
    "NativeShared",
    "Peer",
    "ProcessEnded",
    "Processes",
    "RemoteHandle",
    "Router",
    "ServiceExit",
    "Supervisor",
    "TokenEntry",
    "Tokens",
    "attributes_of",
    "local_user",
    "open_remote",
    "serve_connection",
    "serve_native_connection",
    "taking_in",
]
