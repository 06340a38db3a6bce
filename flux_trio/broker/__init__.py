"""The broker: who is who, which service a message goes to, and which modules run.

A `Router` moves messages between peers and tells services when a peer they talked to is gone.
A `Supervisor` runs modules, each in a nursery of its own; `Handle` is what a module gets. Remote
peers come in through `serve_connection`. The broker never looks into a payload.
"""

from flux_trio.broker.connections import serve_connection
from flux_trio.broker.handle import Handle
from flux_trio.broker.log import LogBook, LogEntry
from flux_trio.broker.router import Peer, Router
from flux_trio.broker.services import BrokerServices
from flux_trio.broker.supervisor import (
    ModuleCrashed,
    ModuleInfo,
    ModuleMain,
    ModuleNotStarted,
    ModuleSpec,
    Supervisor,
)
from flux_trio.broker.tokens import TokenEntry, Tokens

__all__ = [
    "BrokerServices",
    "Handle",
    "LogBook",
    "LogEntry",
    "ModuleCrashed",
    "ModuleInfo",
    "ModuleMain",
    "ModuleNotStarted",
    "ModuleSpec",
    "Peer",
    "Router",
    "Supervisor",
    "TokenEntry",
    "Tokens",
    "serve_connection",
]
