"""An instance comes up, listens for clients, and goes down: `open_instance`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from flux_trio._version import __version__
from flux_trio.broker import (
    Around,
    BrokerServices,
    Configuration,
    LocalHandle,
    ModuleFiles,
    ModuleNotStarted,
    ModuleSpec,
    NativeServices,
    attributes_of,
    local_user,
)
from flux_trio.client import FLUX_URI_VARIABLE, NATIVE_FILE, SOCKET_FILE
from flux_trio.config import Config, add_queue_properties, queue_hosts
from flux_trio.formats import Hostlist, check_utf8
from flux_trio.instance.running import TAKE_DOWN_S, Instance
from flux_trio.instance.surroundings import Surroundings
from flux_trio.jobtap import PluginError
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, FluxError, Level, service_of, topics
from flux_trio.process.collector import rare_collections
from flux_trio.process.groups import leaves
from flux_trio.store.state_directory import address_files, open_to_guests
from flux_trio.trace import Kind
from flux_trio.transports import OnConnection, native_uri, serve_native, serve_unix, serve_websocket


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


def error_of_start(error: BaseException) -> BaseException:
    """Return the sole error of a group; for a failed start, the PluginError that caused it."""
    found = leaves(error)
    if len(found) == 1:
        error = found[0]
    if isinstance(error, ModuleNotStarted) and error.__cause__ is not None:
        cause = error_of_start(error.__cause__)
        return cause if isinstance(cause, PluginError) else error
    return error
