"""A running instance: its router, supervisor, tokens, trace and log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from flux_trio._version import __version__
from flux_trio.broker import (
    TOKEN_REVOKED,
    Handle,
    LocalHandle,
    LogBook,
    LogEntry,
    LogFile,
    NativeShared,
    Processes,
    serve_connection,
    serve_native_connection,
)
from flux_trio.client import TOKEN_VARIABLE, URI_VARIABLE
from flux_trio.clock import Steps, wait_s_max
from flux_trio.config import Config
from flux_trio.instance.modules import module_specs
from flux_trio.instance.surroundings import Surroundings, more_sinks
from flux_trio.jobtap import Plugin, made, reason_of_end
from flux_trio.jobtap.builtins import Lifetime, builtin_plugins
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    Errno,
    FluxError,
    Level,
    Payload,
    topics,
)
from flux_trio.process.threads import OWN
from flux_trio.services.at_once import note_config
from flux_trio.services.module_process import module_environment
from flux_trio.store.backup import Mark, take
from flux_trio.store.state_directory import HELD_FILE, tokens_in
from flux_trio.trace import Kind, Trace
from flux_trio.transports import Connection, Credentials

TAKE_DOWN_S: Final = 30.0
"""Seconds for all modules to end one after the other; then what is left is cancelled at once."""


class Instance:
    """A running instance; `open_instance` yields it."""

    def __init__(self, config: Config, given: Surroundings, nursery: trio.Nursery) -> None:
        clock = trio.lowlevel.current_clock().current_time  # faster than trio.current_time
        started = clock()
        self.now: Callable[[], float] = lambda: given.epoch + (clock() - started)
        if given.clock is not None:
            self.now = given.clock
        elif started == given.epoch:  # a virtual clock that already shows the epoch
            self.now = clock
        self._steps = Steps(self.now)
        if given.trace is None:
            self.trace = Trace(self.now)
            for sink in (*given.sinks, *(make_sink() for make_sink in more_sinks.get())):
                self.trace.add_sink(sink)
            for sink in given.turn_sinks:
                self.trace.add_turn_sink(sink)
        else:
            self.trace = given.trace
        self.log = LogBook(LogFile(given.statedir) if given.statedir is not None else None)
        self.log.sinks.extend(given.log_sinks)
        self.router = given.make_router(self.trace)
        self.shutdown = trio.Event()  # set when a client asks the instance to end
        self.uri = ""
        self.native_uri = ""  # FLUX_URI of Flux's own programs, once they may come in
        self.owner_token = ""
        self._given = given
        self._lifetime = Lifetime(given.inventory.expiration)
        self._native_shared = NativeShared(self.router, self.write_log, given.inventory.nnodes)
        self._userid = given.userid
        self._environment: dict[str, str] = {}  # of module processes
        self.tokens = tokens_in(given.statedir, given.make_token)
        self.supervisor = given.make_supervisor(
            self.router, nursery, self.now, self.log, given.userid
        )
        self.processes = Processes(
            self.tokens,
            given.userid,
            lambda: self.uri,
            (URI_VARIABLE, TOKEN_VARIABLE),
            self._environment,
        )
        self._config = config
        self._began = False  # all modules have been loaded once
        self.configure(config)

    @property
    def expiration(self) -> float:
        """Return when the instance ends, in seconds since the Unix epoch; 0.0: never."""
        return self._lifetime.expiration

    async def set_expiration(self, expiration: float) -> None:
        """Change the end of the instance; its jobs end by then too.

        Raises FluxError; modules that are loaded later know the new end anyway.
        """
        inventory = self._given.inventory
        inventory = inventory.with_times(inventory.starttime, expiration)
        self._given = replace(self._given, inventory=inventory)
        self._lifetime.change(expiration)
        self._specify_modules()
        async with self.connect("broker") as handle:
            await handle.call(topics.RESOURCE_EXPIRATION, {"expiration": expiration})

    def modules_began(self) -> None:
        """Let modules that are loaded from now on find their resources anew."""
        self._began = True
        self._specify_modules()

    def configure(self, config: Config) -> None:
        """Use `config` for all modules that are loaded from now on."""
        note_config(self.trace, config)
        given = self._given
        self._environment.update(module_environment(config, given.statedir, given.path))
        self._config = config
        self._specify_modules()

    def _specify_modules(self) -> None:
        specs = module_specs(
            self._config,
            self._given,
            self.processes,
            self._make_plugins,
            self.write_log,
            find_again=self._began,
        )
        for spec in specs:
            self.supervisor.specs[spec.name] = spec

    def _make_plugins(self) -> list[Plugin]:
        """Return the plugins of a new job manager, which must not know what an earlier one knew."""
        given = map(made, self._given.plugins)
        return [*builtin_plugins(self._lifetime, self._given.inventory), *given]

    @asynccontextmanager
    async def connect(
        self, name: str = "client", *, userid: int | None = None, rolemask: int | None = None
    ) -> AsyncIterator[Handle]:
        """Yield the handle of a new peer in this process; by default with the owner's rights.

        Another `userid` gets a guest's rights, unless `rolemask` (RFC 12) says otherwise.
        """
        user = self._userid if userid is None else userid
        if rolemask is None:
            rolemask = ROLE_LOCAL | (ROLE_OWNER if user == self._userid else ROLE_USER)
        unique = self.router.unique_name(name)
        handle = LocalHandle(unique, self.router, self.now, self.log, user, rolemask)
        try:
            yield handle
        finally:
            handle.close()

    async def serve(self, connection: Connection, credentials: Credentials) -> None:
        """Serve a connection from outside until it ends."""
        if await self.processes.serve(connection, credentials):
            return
        if self.tokens.are_valid(credentials):
            await serve_connection(self.router, self.write_log, connection, credentials)
        else:  # it was revoked during the handshake
            await connection.aclose(TOKEN_REVOKED)

    async def serve_native(self, connection: Connection, credentials: Credentials) -> None:
        """Serve a connection of the native door until it ends."""
        await serve_native_connection(
            self.router, self.write_log, connection, credentials, self._native_shared
        )

    async def back_up(self, directory: str) -> Payload:
        """Make a backup of the state directory, and return its size in bytes. Raises FluxError."""
        statedir = self._given.statedir
        assert statedir is not None
        if not Path(directory).is_absolute():
            raise FluxError(Errno.EINVAL, f"{directory}: expected an absolute path")
        mark = Mark(str(statedir), self.now(), __version__)

        def copy_state(path: Path) -> None:
            trio.from_thread.run(self._copy_state, path)

        nbytes = await OWN.run(take, statedir, Path(directory), mark, copy_state)
        self.write_log(Level.INFO, "broker", f"a backup is in {directory}: {nbytes} bytes")
        return {"bytes": nbytes}

    async def _copy_state(self, path: Path) -> None:
        async with self.connect("backup") as handle:
            await handle.call(self._config.edition_value.kvs.own.backup, {"path": str(path)})

    async def watch_clock(self) -> None:
        """Report steps of the wall clock to the log and the trace."""
        while True:
            await trio.sleep(wait_s_max(self.now))
            if by := self._steps.found():
                self.supervisor.clock_stepped(by)
                self.trace.note(Kind.CLOCK, "broker", {"by": round(by, 3)})
                way = "forward" if by > 0 else "back"
                text = f"the wall clock was set {way} by {abs(by):.3f} s"
                self.write_log(Level.WARNING, "broker", text)

    def tell_last_end(self, statedir: Path) -> None:
        """Log which plugin has ended the last process with this state directory, if one has."""
        if reason := reason_of_end(statedir / HELD_FILE):
            self.write_log(Level.ERR, "job-manager", f"the last instance: {reason}")

    def name_who_stays(self) -> None:
        """Log the modules that have not ended."""
        names = ", ".join(module.name for module in self.supervisor.list())
        text = f"modules that have not ended after {TAKE_DOWN_S:g} s: {names}"
        self.write_log(Level.ERR, "broker", text)

    def write_log(self, level: int, party: str, text: str) -> None:
        """Write to the instance's log in the name of `party`."""
        self.log.write(LogEntry(self.now(), level, party, text))
