"""An instance: which services run, with which configuration, clock, store and door.

`open_instance` brings up a whole Flux instance in the calling task's scope and takes it down again;
what differs between production, a test and a simulated run is handed in. Real processes
outlive it on purpose: they belong to the shell host of the state directory.
"""

from __future__ import annotations

import functools
import gc
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
import trio

from flux_trio._version import __version__
from flux_trio.broker import (
    BrokerServices,
    Configuration,
    Handle,
    LocalHandle,
    LogBook,
    LogEntry,
    ModuleMain,
    ModuleSpec,
    Processes,
    Router,
    Supervisor,
    TokenEntry,
    Tokens,
    local_user,
    serve_connection,
)
from flux_trio.client import SOCKET_FILE, TOKEN_FILE, TOKEN_VARIABLE, URI_FILE, URI_VARIABLE
from flux_trio.clock import LOOK_S, Clock, Steps
from flux_trio.config import Config
from flux_trio.cores.job_manager.requests.entrance import User
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.jobtap import Plugin, search_path
from flux_trio.jobtap.builtins import builtin_plugins
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, FluxError, Level, topics
from flux_trio.module_process import PROCESS_MODULES, main_of, module_command, module_environment
from flux_trio.services import ingest, job_list, job_manager, kvs, resource
from flux_trio.services.user_database import unix_user
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import MemoryStore, Store
from flux_trio.trace import Kind, Sink, Trace
from flux_trio.transports import Connection, Credentials, serve_unix, serve_websocket

STATE_FILE: Final = "state.sqlite"
TOKENS_FILE: Final = "tokens.json"
SOCKET_MODE_OWNER: Final = 0o600
SOCKET_MODE_ALL: Final = 0o666  # who may do what is decided for each connection
STATEDIR_MODE_ALL: Final = 0o711  # to get at the socket by its name; all else in it is private

COLLECT_AT: Final = (20_000, 2, 50)
"""How seldom the collector of cycles looks (`gc.set_threshold`). An instance makes hardly any, and
its many small objects outlive Python's 700: a third of its time went into looking at them. More
than these at once, and requests wait for it."""

more_sinks: Final[ContextVar[tuple[Callable[[], Sink], ...]]] = ContextVar("more_sinks", default=())
"""What makes a further sink for each instance that is opened in this context: for who tests code
that opens instances itself (`flux_trio.testing.watched`)."""

# The order in which modules come up, and the reverse in which they go: each needs those before it.
MODULES: Final = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")


@dataclass(frozen=True)
class Enclosing:
    """The instance that this one runs in: where it is, the job that this one is, how deep it is."""

    uri: str
    jobid: int
    level: int  # of this one; 0 is one that runs in no other


@dataclass(frozen=True)
class Surroundings:
    """What an instance is given rather than finds: tests and simulations give other things.

    `epoch` is the time at start, seconds since the Unix epoch; from there the clock is Trio's,
    unless there is a `clock`, which may be set.
    `missing` says what this machine lacks of some targets, which are down then.
    `sinks` get the trace, `log_sinks` the log, both from the beginning.
    Without `statedir` nothing is kept, no process can run and nobody can connect. `users` tell who
    may use a queue; `reread` reads the configuration anew, None when it came from nowhere.
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
    plugins: Iterable[Plugin] = ()
    users: Callable[[int], Awaitable[User]] = unix_user
    reread: Callable[[], Awaitable[Config]] | None = None
    enclosing: Enclosing | None = None
    plugin_path: tuple[Path, ...] = tuple(search_path({}))  # where plugins are found by name
    sinks: Iterable[Sink] = ()
    log_sinks: Iterable[Callable[[LogEntry], None]] = ()
    modules: tuple[str, ...] = MODULES


def durable_store(config: Config, statedir: Path) -> Callable[[], Store]:
    """How to open the state file of `statedir`."""
    return functools.partial(SqliteStore, statedir / STATE_FILE, config.kvs.synchronous)


class Instance:
    """A running instance, as `open_instance` gives it."""

    def __init__(self, config: Config, given: Surroundings, nursery: trio.Nursery) -> None:
        clock = trio.lowlevel.current_clock().current_time  # what trio.current_time looks up
        started = clock()
        self.now: Callable[[], float] = lambda: given.epoch + (clock() - started)
        if given.clock is not None:
            self.now = given.clock
        elif started == given.epoch:  # a virtual clock may be one that shows this very time
            self.now = clock
        self._steps = Steps(self.now)
        self.trace = Trace(self.now)
        further = [make_sink() for make_sink in more_sinks.get()]
        for sink in (*given.sinks, *further):
            self.trace.add_sink(sink)
        self.log = LogBook()
        self.log.sinks.extend(given.log_sinks)
        self.router = Router(self.trace)
        self.shutdown = trio.Event()  # somebody asked the instance to end
        self.uri = ""
        self.owner_token = ""
        self._given = given
        self._userid = given.userid
        self._environment: dict[str, str] = {}  # of processes of modules
        self.tokens = _tokens(given)
        self.supervisor = Supervisor(self.router, nursery, self.now, self.log, given.userid)
        self.processes = Processes(
            self.tokens,
            given.userid,
            lambda: self.uri,
            (URI_VARIABLE, TOKEN_VARIABLE),
            self._environment,
        )
        self._config = config
        self.configure(config)

    @property
    def expiration(self) -> float:
        """When the instance ends: seconds since the Unix epoch, 0.0 never."""
        return self._given.inventory.expiration

    async def set_expiration(self, expiration: float) -> None:
        """The instance ends at another time than it was told to; jobs end by then too.

        Raises FluxError; modules that are loaded later know of it all the same.
        """
        inventory = self._given.inventory
        inventory = inventory.with_times(inventory.starttime, expiration)
        self._given = replace(self._given, inventory=inventory)
        self._specify_modules()
        async with self.connect("broker") as handle:
            await handle.call(topics.RESOURCE_EXPIRATION, {"expiration": expiration})

    def configure(self, config: Config) -> None:
        """Have modules that are loaded from here on go by `config`."""
        tables = config.to_json()
        self.trace.note(Kind.CONFIG, "config", {key: tables[key] for key in ("policy", "queues")})
        self._environment.update(module_environment(config, self._given.statedir))
        self._config = config
        self._specify_modules()

    def _specify_modules(self) -> None:
        plugins = builtin_plugins(lambda: self.expiration)
        for spec in _module_specs(self._config, self._given, self.processes, plugins):
            self.supervisor.specs[spec.name] = spec

    @asynccontextmanager
    async def connect(
        self, name: str = "client", *, userid: int | None = None, rolemask: int | None = None
    ) -> AsyncIterator[Handle]:
        """A peer in this process, gone with the block: the instance owner's, unless told.

        Another `userid` is a guest's, unless `rolemask` (RFC 12) says that it is an owner's too.
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
        """A connection from outside, until it ends."""
        if not await self.processes.take(connection, credentials):
            await serve_connection(self.router, self.write_log, connection, credentials)

    async def watch_clock(self) -> None:
        """Tell the log and the trace when the wall clock is set."""
        while True:
            await trio.sleep(LOOK_S)
            if by := self._steps.found():
                self.supervisor.clock_stepped(by)
                self.trace.note(Kind.CLOCK, "broker", {"by": round(by, 3)})
                way = "forward" if by > 0 else "back"
                text = f"the wall clock was set {way} by {abs(by):.3f} s"
                self.write_log(Level.WARNING, "broker", text)

    def write_log(self, level: int, party: str, text: str) -> None:
        """Write to the instance's log in the name of `party`."""
        self.log.write(LogEntry(self.now(), level, party, text))


class ListenError(Exception):
    """Nobody could reach the instance; the text says where it was to listen, and why not."""


@asynccontextmanager
async def open_instance(config: Config, given: Surroundings) -> AsyncIterator[Instance]:
    """Run an instance for the length of the block.

    Raises, in an exception group, ModuleNotStarted or what else does not come up, before the block
    is entered; ModuleCrashed when an essential module ends inside it.
    """
    async with trio.open_nursery() as nursery:
        instance = Instance(config, given, nursery)
        try:
            with _collecting_seldom():
                await _bring_up(instance, given, config, nursery)
                if given.clock is not None:
                    nursery.start_soon(instance.watch_clock)
                with _announced(instance, given.statedir):
                    yield instance
        finally:
            with trio.CancelScope(shield=True):
                await _take_down(instance)
            nursery.cancel_scope.cancel()


async def _bring_up(
    instance: Instance, given: Surroundings, config: Config, nursery: trio.Nursery
) -> None:
    for name in given.modules:
        await instance.supervisor.load(name)
    if given.listen:
        listen = functools.partial(
            serve_websocket,
            config.broker.host,
            config.broker.port,
            instance.tokens.authenticate,
            instance.serve,
        )
        try:
            instance.uri = await nursery.start(listen)
        except OSError as error:
            where = f"{config.broker.host}:{config.broker.port}"
            raise ListenError(f"cannot listen at {where}: {error.strerror}") from error
        instance.owner_token = instance.tokens.issue(given.userid, "owner", owner=True)
    enclosing = given.enclosing
    info = {
        "version": __version__,
        "edition": config.edition,
        "userid": given.userid,
        "uri": instance.uri,
        "statedir": str(given.statedir or ""),
        "t_start": given.epoch,
        "parent_uri": enclosing.uri if enclosing else None,
        "jobid": enclosing.jobid if enclosing else None,
        "level": enclosing.level if enclosing else 0,
    }
    broker = BrokerServices(
        instance.router,
        instance.supervisor,
        instance.tokens,
        info,
        instance.shutdown,
        instance.write_log,
        instance.log,
    )
    configuration = Configuration(config, given.reread, instance.configure)
    instance.supervisor.specs["config"] = ModuleSpec("config", configuration.run, essential=True)
    await instance.supervisor.load("config")
    instance.supervisor.specs["broker"] = ModuleSpec("broker", broker.run, essential=True)
    await instance.supervisor.load("broker")
    await _wait_until_jobs_are_taken(instance, given.userid)
    if given.listen and given.statedir is not None:
        await _listen_locally(instance, given.statedir, config, given.userid, nursery)


async def _wait_until_jobs_are_taken(instance: Instance, owner: int) -> None:
    """Wait until a submission would be answered.

    Both services answer once they have read what an earlier life left. A service that cannot read
    it leaves with an error that is in the log, and the instance comes up without that service.
    """
    rolemask = ROLE_LOCAL | ROLE_OWNER
    handle = LocalHandle("ready", instance.router, instance.now, instance.log, owner, rolemask)
    try:
        for service in (topics.JOB_MANAGER, topics.JOB_INGEST):
            if service in instance.router.services:
                await handle.call(topics.stats_of(service))
    except FluxError:
        pass  # nobody takes jobs: the instance is up for who finds out why
    finally:
        handle.close()


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """In this block the collector works as COLLECT_AT has it, unless it is set to be as seldom."""
    before = gc.get_threshold()
    if 0 < before[0] < COLLECT_AT[0]:
        gc.set_threshold(*COLLECT_AT)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _announced(instance: Instance, statedir: Path | None) -> Iterator[None]:
    """Commands find the instance by files in `statedir`; one that did not come up has none.

    They go while the store is still held: nobody else can have written them.
    """
    if statedir is None or not instance.uri:
        yield
        return
    token, uri = statedir / TOKEN_FILE, statedir / URI_FILE
    try:
        write_private(token, instance.owner_token)
        write_private(uri, instance.uri)
        yield
    finally:
        for path in (uri, token, statedir / SOCKET_FILE):
            path.unlink(missing_ok=True)


async def _listen_locally(
    instance: Instance, statedir: Path, config: Config, owner: int, nursery: trio.Nursery
) -> None:
    """Open the Unix socket; one that cannot be, for the length of its path, is done without."""
    path = statedir / SOCKET_FILE
    who_is = functools.partial(local_user, owner=owner, access=config.access)
    mode = _open_to_guests(statedir, config)
    try:
        await nursery.start(serve_unix, path, mode, who_is, instance.serve)
    except OSError as error:
        instance.write_log(Level.WARNING, "broker", f"no Unix socket at {path}: {error}")


def _open_to_guests(statedir: Path, config: Config) -> int:
    """Make way to the socket in `statedir` if guests are allowed; the socket's mode."""
    if not config.access.allow_guest_user:
        return SOCKET_MODE_OWNER
    statedir.chmod(STATEDIR_MODE_ALL)
    return SOCKET_MODE_ALL


async def _take_down(instance: Instance) -> None:
    instance.trace.note(Kind.INSTANCE, "broker", {"what": "ending"})
    for name in reversed([module.name for module in instance.supervisor.list()]):
        if name in instance.supervisor:  # may have ended by itself meanwhile
            await instance.supervisor.remove(name)


def _module_specs(
    config: Config, given: Surroundings, processes: Processes, builtin: Iterable[Plugin]
) -> list[ModuleSpec]:
    plugins = [*builtin, *given.plugins]
    mains: dict[str, ModuleMain] = {
        "kvs": functools.partial(kvs.run, store_factory=given.store),
        "resource": functools.partial(
            resource.run,
            inventory=given.inventory,
            exclude=given.exclude,
            missing={} if config.exec.simulate else given.missing,
            check=None if config.exec.simulate else config.resource.check,
            edition=config.edition_value,
        ),
        "job-manager": functools.partial(
            job_manager.run,
            plugins=plugins,
            config=config,
            users=given.users,
            search_path=given.plugin_path,
        ),
        "job-ingest": ingest.run,
        "job-list": functools.partial(job_list.run, config=config),
    }
    here = [ModuleSpec(name, main, essential=name == "kvs") for name, main in mains.items()]
    anywhere = [
        ModuleSpec(
            name,
            main_of(name, config, given.statedir),
            process=functools.partial(processes.run, module_command(name)),
        )
        for name in PROCESS_MODULES
    ]
    return here + anywhere


def _tokens(given: Surroundings) -> Tokens:
    if given.statedir is None:
        return Tokens(given.make_token, lambda _entries: None)
    path = given.statedir / TOKENS_FILE

    def save(entries: list[TokenEntry]) -> None:
        write_private(path, msgspec.json.encode(entries).decode())

    guests = [
        entry for entry in _kept_tokens(path) if not entry.rolemask & ROLE_OWNER
    ]  # the owner's is new
    return Tokens(given.make_token, save, guests)


def _kept_tokens(path: Path) -> list[TokenEntry]:
    """The tokens of an earlier life. Raises FormatError for a file that is damaged."""
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[TokenEntry])
    except msgspec.DecodeError as error:
        raise FormatError.of_msgspec(error).at(str(path)) from None


def write_private(path: Path, text: str) -> None:
    """Put `text` into a file that only this user can read, whole or not at all.

    Raises OSError, which names the file.
    """
    draft = path.with_name(path.name + ".new")
    try:
        draft.unlink(missing_ok=True)
        with open(draft, "x", opener=_open_private) as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
