"""What an instance is given: all that differs between production, a test and a simulated run."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from flux_trio.broker import Around, LogBook, LogEntry, Router, Supervisor
from flux_trio.clock import Clock
from flux_trio.config import Config
from flux_trio.cores.exec.tasks import TOP
from flux_trio.cores.job_manager.calls import User
from flux_trio.formats import Idset, ResourceSet
from flux_trio.jobtap import PluginSource, search_path
from flux_trio.services.user_database import unix_user
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import MemoryStore, Store
from flux_trio.trace import Sink, Trace, TurnSink

more_sinks: Final[ContextVar[tuple[Callable[[], Sink], ...]]] = ContextVar("more_sinks", default=())
"""Factories of additional sinks for each instance opened in this context: for tests of code that
opens instances itself (`flux_trio.testing.watched`)."""


# The modules in the order of their start; they stop in reverse. Each needs those before it.
MODULES: Final = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")


@dataclass(frozen=True)
class Enclosing:
    """The parent instance: its URI, the id of this instance's job in it, and this one's level.

    `path` has the ids of the jobs around this instance, the outermost first: /ƒ1/ƒ2. `native_uri`
    is the address of the parent for Flux's own programs, "" if they may not come in there.
    """

    uri: str
    jobid: int
    level: int  # of this instance; 0 has no parent
    path: str = TOP
    native_uri: str = ""

    @property
    def around(self) -> Around:
        """What Flux's own programs are told of it."""
        parent = {
            "jobid": self.path.rpartition("/")[2],
            "parent-kvs-namespace": f"job-{self.jobid}",
        }
        if self.native_uri:
            parent["parent-uri"] = self.native_uri
        return Around(self.path, self.level, parent)


@dataclass(frozen=True)
class Surroundings:
    """The environment of an instance; tests and simulations pass other values.

    `epoch` is the start time in seconds since the Unix epoch. From there Trio's clock counts,
    unless `clock` is given, which may be set. `missing` says which resources this machine lacks, by
    target; these targets are down. `sinks` get the trace and `log_sinks` the log, from the start;
    `turn_sinks` get the trace with the turns of the modules' cores.
    A `trace` has its own sinks, and takes the place of one with `sinks`.
    Without `statedir` nothing is stored, no process can run and no client can connect. Each of
    `plugins` is a function, a class or a file that makes one for each job manager, or one object
    for all of them. `users` looks up users for the access rules of queues. `reread` reads the
    configuration file again, None without a file.
    """

    inventory: ResourceSet
    userid: int
    epoch: float
    clock: Clock | None = None
    exclude: Idset = field(default_factory=Idset)
    missing: Mapping[int, str] = field(default_factory=dict)
    statedir: Path | None = None
    listen: bool = False
    store: Callable[[], Store] = MemoryStore
    make_token: Callable[[], str] = secrets.token_urlsafe
    plugins: Iterable[PluginSource] = ()
    users: Callable[[int], Awaitable[User]] = unix_user
    reread: Callable[[], Awaitable[Config]] | None = None
    enclosing: Enclosing | None = None
    plugin_path: tuple[Path, ...] = tuple(search_path({}))  # directories searched for plugins
    sinks: Iterable[Sink] = ()
    turn_sinks: Iterable[TurnSink] = ()
    trace: Trace | None = None
    make_supervisor: Callable[
        [Router, trio.Nursery, Callable[[], float], LogBook, int], Supervisor
    ] = Supervisor
    make_router: Callable[[Trace], Router] = Router
    log_sinks: Iterable[Callable[[LogEntry], None]] = ()
    modules: tuple[str, ...] = MODULES

    @property
    def path(self) -> str:
        """Return the jobs around this instance, the outermost first; TOP if it is in no job."""
        return TOP if self.enclosing is None else self.enclosing.path


def durable_store(config: Config, statedir: Path) -> Callable[[], Store]:
    """Return a function that opens the state file of `statedir`."""
    return functools.partial(SqliteStore, statedir / STATE_FILE, config.kvs.synchronous)
