"""An instance: its services, configuration, clock, store and listening addresses.

`open_instance` starts a whole Flux instance in the calling task's scope and stops it at the end.
The caller passes in everything that differs between production, a test and a simulated run. Real
processes outlive the instance on purpose: they belong to the shell host of the state directory.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio

from flux_trio._version import __version__
from flux_trio.broker import (
    TOKEN_REVOKED,
    Around,
    BrokerServices,
    Configuration,
    Handle,
    LocalHandle,
    LogBook,
    LogEntry,
    LogFile,
    ModuleFiles,
    ModuleMain,
    ModuleNotStarted,
    ModuleSpec,
    NativeServices,
    NativeShared,
    Processes,
    Router,
    Supervisor,
    attributes_of,
    local_user,
    serve_connection,
    serve_native_connection,
)
from flux_trio.client import (
    FLUX_URI_VARIABLE,
    NATIVE_FILE,
    SOCKET_FILE,
    TOKEN_VARIABLE,
    URI_VARIABLE,
)
from flux_trio.clock import Clock, Steps, wait_s_max
from flux_trio.config import Config, add_queue_properties, queue_hosts, with_arguments
from flux_trio.cores.exec.tasks import TOP
from flux_trio.cores.job_manager.calls import User
from flux_trio.cores.resource.definition import Kept
from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet, check_utf8
from flux_trio.jobtap import Plugin, PluginError, PluginSource, made, reason_of_end, search_path
from flux_trio.jobtap.builtins import Lifetime, builtin_plugins
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    Errno,
    FluxError,
    Level,
    Payload,
    service_of,
    topics,
)
from flux_trio.process.collector import rare_collections
from flux_trio.process.groups import leaves
from flux_trio.process.threads import OWN
from flux_trio.services import ingest, job_list, job_manager, kvs, resource
from flux_trio.services.at_once import note_config
from flux_trio.services.inventory import find_inventory
from flux_trio.services.module_process import (
    PROCESS_MODULES,
    main_of,
    module_command,
    module_environment,
)
from flux_trio.services.user_database import unix_user
from flux_trio.store.backup import Mark, take
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import (
    HELD_FILE,
    STATE_FILE,
    address_files,
    open_to_guests,
    tokens_in,
)
from flux_trio.store.stores import MemoryStore, Store
from flux_trio.trace import Kind, Sink, Trace, TurnSink
from flux_trio.transports import (
    Connection,
    Credentials,
    OnConnection,
    native_uri,
    serve_native,
    serve_unix,
    serve_websocket,
)

more_sinks: Final[ContextVar[tuple[Callable[[], Sink], ...]]] = ContextVar("more_sinks", default=())
"""Factories of additional sinks for each instance opened in this context: for tests of code that
opens instances itself (`flux_trio.testing.watched`)."""

# The modules in the order of their start; they stop in reverse. Each needs those before it.
MODULES: Final = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")

TAKE_DOWN_S: Final = 30.0
"""Seconds for all modules to end one after the other; then what is left is cancelled at once."""


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


def durable_store(config: Config, statedir: Path) -> Callable[[], Store]:
    """Return a function that opens the state file of `statedir`."""
    return functools.partial(SqliteStore, statedir / STATE_FILE, config.kvs.synchronous)


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
        self._environment.update(module_environment(config, given.statedir, _path(given)))
        self._config = config
        self._specify_modules()

    def _specify_modules(self) -> None:
        specs = _module_specs(
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


class ListenError(Exception):
    """The instance cannot listen for clients; the text has the address and the reason."""


SETTLE_S_MAX: Final = 15.0
"""Seconds that a start waits for the execution service: it names a slow shell host after 10 s."""
ROOM_LOOK_S: Final = 0.2
"""Seconds between two looks at whether a start waits for room on the disk."""


@asynccontextmanager
async def open_instance(config: Config, given: Surroundings) -> AsyncIterator[Instance]:
    """Run an instance during the block.

    Before anything runs, raises FormatError, in no group, if the path of the state directory is not
    UTF-8: jobs have it in their environment. Everything else comes in an ExceptionGroup, even a
    single error, since the instance is a nursery around the block. Before the block begins that is
    ModuleNotStarted, whose cause is the module's own error, ListenError, or an OSError of the state
    directory. During the block it is ModuleCrashed, when an essential module has ended; the block
    is cancelled then, and what it raises while it ends is in the group too. An error of the block
    is in a group as well. `error_of_start` returns the single error of the group, `except*` and
    `flux_trio.process.groups` take it apart.
    """
    if given.statedir is not None:
        check_utf8(str(given.statedir), "statedir")
    async with trio.open_nursery() as nursery:
        instance = Instance(config, given, nursery)
        if given.statedir is not None:
            instance.tell_last_end(given.statedir)
        try:
            with rare_collections():
                await _bring_up(instance, given, config, nursery)
                if given.clock is not None:
                    nursery.start_soon(instance.watch_clock)
                with address_files(given.statedir, instance.uri, instance.owner_token):
                    yield instance
        finally:
            with trio.move_on_after(TAKE_DOWN_S, shield=True) as limit:
                await _shut_down(instance)
            if limit.cancelled_caught:
                instance.name_who_stays()
            nursery.cancel_scope.cancel()
            instance.log.close()


async def _bring_up(
    instance: Instance, given: Surroundings, config: Config, nursery: trio.Nursery
) -> None:
    for name in given.modules:
        await instance.supervisor.load(name)
    instance.modules_began()
    if given.listen:
        listen = functools.partial(
            serve_websocket,
            config.broker.host,
            config.broker.port,
            instance.tokens.authenticate,
            instance.serve,
            tell=functools.partial(instance.write_log, Level.ERR, "broker"),
        )
        try:
            instance.uri = await nursery.start(listen)
        except OSError as error:
            where = f"{config.broker.host}:{config.broker.port}"
            raise ListenError(f"cannot listen at {where}: {error.strerror}") from error
        instance.owner_token = instance.tokens.issue(given.userid, "owner", owner=True)
    enclosing = given.enclosing
    configuration = Configuration(
        config,
        given.reread,
        instance.configure,
        lambda new: add_queue_properties(queue_hosts(new), given.inventory),
    )
    attributes: dict[str, str] | None = None
    module_files: ModuleFiles | None = None
    if config.has_native_door and given.statedir is not None:
        attributes = _attributes(given, given.statedir)
        module_files = ModuleFiles(
            instance.router,
            attributes,
            configuration.differing,
            {FLUX_URI_VARIABLE: attributes["local-uri"]},
        )
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
        instance.back_up if given.statedir is not None else None,
        module_files,
        config.has_native_door,
    )
    instance.supervisor.specs["config"] = ModuleSpec("config", configuration.run, essential=True)
    await instance.supervisor.load("config")
    instance.supervisor.specs["broker"] = ModuleSpec("broker", broker.run, essential=True)
    await instance.supervisor.load("broker")
    if attributes is not None:
        native = NativeServices(instance.router, attributes, given.inventory.nnodes)
        instance.supervisor.specs["attr"] = ModuleSpec("attr", native.run)
        await instance.supervisor.load("attr")
    await _wait_until_jobs_run(instance, given.userid)
    if given.listen and given.statedir is not None:
        await _listen_locally(instance, given.statedir, config, given.userid, nursery)
    if given.statedir is not None:  # the log has the entries of earlier instances, too
        text = f"an instance has started: flux-trio {__version__}, edition {config.edition}"
        instance.write_log(Level.INFO, "broker", text)


def _attributes(given: Surroundings, statedir: Path) -> dict[str, str]:
    """Return what Flux's own programs ask of a broker itself and never changes."""
    enclosing = given.enclosing
    return attributes_of(
        owner=given.userid,
        hostlist=str(Hostlist.of(given.inventory.hosts.values())),
        ranks=given.inventory.nnodes,
        uri=native_uri(statedir / NATIVE_FILE),
        statedir=str(statedir),
        started=given.epoch,
        around=Around() if enclosing is None else enclosing.around,
    )


async def _wait_until_jobs_run(instance: Instance, owner: int) -> None:
    """Wait until a submission would get an answer, and it is settled which service runs jobs.

    The services answer when they have read the stored state. A service that cannot read it ends
    with an error in the log, and the instance starts without that service. Without the second
    condition job-exec could take the jobs back from a service that the user's command starts. On a
    full disk the wait ends, so that the user can make room.
    """
    rolemask = ROLE_LOCAL | ROLE_OWNER
    handle = LocalHandle("ready", instance.router, instance.now, instance.log, owner, rolemask)

    async def end_without_room() -> None:
        while topics.KVS in instance.router.services:
            await trio.sleep(ROOM_LOOK_S)
            stats = await handle.call(topics.stats_of(topics.KVS))
            if stats["held"]["requests"]:
                nursery.cancel_scope.cancel()

    async def ask(topic: str) -> None:
        if service_of(topic) in instance.router.services:
            await handle.call(topic)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_without_room)
            with suppress(FluxError):  # the user can find out the reason in the running instance
                await ask(topics.stats_of(topics.JOB_MANAGER))
                await ask(topics.stats_of(topics.JOB_INGEST))
                with trio.move_on_after(SETTLE_S_MAX):
                    await ask(topics.EXEC_SETTLED)
            nursery.cancel_scope.cancel()
    finally:
        handle.close()


async def _listen_locally(
    instance: Instance, statedir: Path, config: Config, owner: int, nursery: trio.Nursery
) -> None:
    """Open the Unix sockets; if one fails, for example for a long path, only log a warning."""
    who_is = functools.partial(local_user, owner=owner, access=config.access)
    mode = open_to_guests(statedir, config)
    tell = functools.partial(instance.write_log, Level.ERR, "broker")

    async def listen(
        serve: Callable[..., Awaitable[None]], name: str, serve_one: OnConnection
    ) -> str:
        path = statedir / name
        try:
            doing = functools.partial(serve, path, mode, who_is, serve_one, tell=tell)
            uri: str = await nursery.start(doing)
        except OSError as error:
            instance.write_log(Level.WARNING, "broker", f"no Unix socket at {path}: {error}")
            return ""
        return uri

    await listen(serve_unix, SOCKET_FILE, instance.serve)
    if config.has_native_door:
        instance.native_uri = await listen(serve_native, NATIVE_FILE, instance.serve_native)


async def _shut_down(instance: Instance) -> None:
    instance.trace.note(Kind.INSTANCE, "broker", {"what": "ending"})
    instance.router.ends = "the instance ends"
    for name in reversed([module.name for module in instance.supervisor.list()]):
        if name in instance.supervisor:  # it may have ended by itself meanwhile
            await instance.supervisor.remove(name)


def _module_specs(
    config: Config,
    given: Surroundings,
    processes: Processes,
    make_plugins: Callable[[], list[Plugin]],
    write_log: Callable[[int, str, str], None],
    *,
    find_again: bool,
) -> list[ModuleSpec]:
    def main_with(name: str, arguments: Sequence[str]) -> ModuleMain:
        try:
            changed, remarks = with_arguments(config, name, arguments)
        except FormatError as error:
            raise FluxError(Errno.EINVAL, str(error)) from None
        for remark in remarks:
            write_log(Level.NOTICE, name, remark)
        return _mains(changed, given, make_plugins, find_again)[name]

    return [
        ModuleSpec(
            name,
            main,
            essential=name == "kvs",
            process=functools.partial(processes.run, module_command(name))
            if name in PROCESS_MODULES
            else None,
            with_arguments=functools.partial(main_with, name),
        )
        for name, main in _mains(config, given, make_plugins, find_again).items()
    ]


def _mains(
    config: Config, given: Surroundings, make_plugins: Callable[[], list[Plugin]], find_again: bool
) -> dict[str, ModuleMain]:
    """Return the main function of each module, with this configuration."""
    mains: dict[str, ModuleMain] = {
        "kvs": functools.partial(kvs.run, store_factory=given.store, edition=config.edition_value),
        "resource": functools.partial(_run_resource, config, given, find_again),
        "job-manager": functools.partial(
            job_manager.run,
            make_plugins=make_plugins,
            config=config,
            users=given.users,
            search_path=given.plugin_path,
        ),
        "job-ingest": functools.partial(ingest.run, config=config),
        "job-list": functools.partial(job_list.run, config=config),
    }
    ours = {name: main_of(name, config, given.statedir, _path(given)) for name in PROCESS_MODULES}
    return mains | ours


async def _run_resource(
    config: Config,
    given: Surroundings,
    find_again: bool,
    handle: Handle,
    *,
    missing: Mapping[int, str] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the resource service; with `find_again`, by the configuration of now or R in the kvs.

    `missing` is what a simulated machine lacks; without it, it is what this machine lacks.
    Raises FormatError or FluxError that names the invalid key of `[resource]`.
    """
    inventory, exclude = given.inventory, given.exclude
    kept: Kept | None = "written" if config.has_native_door else None
    excluded: Idset | str = exclude
    if find_again and config.has_native_door:
        if config.resource.config or config.resource.path is not None:
            found, excluded = find_inventory(config.resource)
            inventory = found.with_times(inventory.starttime, inventory.expiration)
        else:
            kept, excluded = "read", config.resource.exclude
    is_unchecked = config.exec.simulate or config.resource.noverify
    if missing is None:
        is_other = is_unchecked or inventory.hosts != given.inventory.hosts
        missing = {} if is_other else given.missing
    await resource.run(
        handle,
        inventory,
        excluded,
        queues=queue_hosts(config),
        kept=kept,
        missing=missing,
        check=None if config.exec.simulate else config.resource.check,
        edition=config.edition_value,
        waits=find_again,
        task_status=task_status,
    )


def _path(given: Surroundings) -> str:
    return TOP if given.enclosing is None else given.enclosing.path


def error_of_start(error: BaseException) -> BaseException:
    """Return the sole error of a group; for a failed start, the PluginError that caused it."""
    found = leaves(error)
    if len(found) == 1:
        error = found[0]
    if isinstance(error, ModuleNotStarted) and error.__cause__ is not None:
        cause = error_of_start(error.__cause__)
        return cause if isinstance(cause, PluginError) else error
    return error
