"""An instance inside another program, under Trio or asyncio: `open_instance`.

An instance is a Trio program. In a Trio program it runs in the block itself. In an asyncio program
it runs in a thread of its own, with its own event loop: guest mode would put each of its turns into
the host's loop, and a host that blocks for a second would make the instance miss deadlines.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import anyio
import anyio.to_thread
import msgspec
import trio

from flux_trio.broker import ModuleCrashed
from flux_trio.client import SOCKET_FILE, BlockingClient, Client, connect, open_client
from flux_trio.config import (
    Config,
    FakeResourcesConfig,
    check_edition,
    check_policy_name,
    parse_config,
)
from flux_trio.instance import (
    IDLE_S_MAX,
    Instance,
    Surroundings,
    durable_store,
    end_jobs,
    error_of_start,
)
from flux_trio.instance import open_instance as run_instance
from flux_trio.jobtap import PluginSource, plugin_sources, search_path
from flux_trio.messages import FluxError, topics
from flux_trio.process.groups import error_of_block, leaves, sole_error
from flux_trio.process.loop_thread import LoopThread
from flux_trio.process.private import DIRECTORY_MODE, make_directory
from flux_trio.services.inventory import find_inventory
from flux_trio.services.module_process import system_clock
from flux_trio.store.living import Living, sole_instance
from flux_trio.store.original import is_copy
from flux_trio.store.state_directory import STATE_FILE, foreign_file, other_edition

END_S_MAX: Final = 2 * IDLE_S_MAX  # of the jobs, then of the modules
SIMULATED_CORES: Final = 4


class InstanceFailed(Exception):
    """The instance could not start, or has ended by itself; the cause is its own error."""


class Embedded:
    """A running instance; `open_instance` yields it.

    Each call of it raises FluxError if the instance refuses.
    """

    def __init__(self, statedir: Path) -> None:
        self.statedir = statedir
        self.uri = f"unix://{statedir / SOCKET_FILE}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Yield a client, connected during the block, which is the instance's owner."""
        async with open_client(self.uri) as client:
            yield client

    async def crash(self, module: str) -> None:
        """Let a module end without a farewell: resource, job-manager, job-exec, sched, ...

        It is refused for kvs, without which an instance ends.
        """
        await self._ask(topics.MODULE_KILL, name=module)

    async def unload(self, module: str) -> None:
        """End a module in order."""
        await self._ask(topics.MODULE_REMOVE, name=module)

    async def load(self, module: str) -> None:
        """Start a module that has crashed or was unloaded."""
        await self._ask(topics.MODULE_LOAD, name=module, exec=False)

    async def reload(self, module: str) -> None:
        """End a module in order, and start it again."""
        await self._ask(topics.MODULE_RELOAD, name=module, exec=False)

    async def take_down(self, targets: str, reason: str = "") -> None:
        """Take nodes, an idset or a hostlist, for lost: their jobs end with an exception."""
        given = {"reason": reason} if reason else {}
        await self._ask(topics.RESOURCE_DOWN, targets=targets, **given)

    async def bring_up(self, targets: str) -> None:
        """Take nodes for working again."""
        await self._ask(topics.RESOURCE_UP, targets=targets)

    async def _ask(self, topic: str, **payload: Any) -> None:
        async with self.connect() as client:
            await client.call(topic, payload)


@asynccontextmanager
async def open_instance(
    *,
    nodes: int | None = None,
    cores: int | None = None,
    policy: str | None = None,
    edition: str | None = None,
    plugins: Iterable[PluginSource] = (),
    simulate: bool = False,
    statedir: str | os.PathLike[str] | None = None,
    config: str | Config = "",
) -> AsyncIterator[Embedded]:
    """Run an instance during the block.

    This machine acts as `nodes` nodes (1), each with `cores` cores, or with its own. `policy` is
    fifo, easy, conservative or FILE.py:Class; `edition`, of the RFCs, is classic or current. Each
    of `plugins` is a jobtap plugin, makes one, or is the path of its file.
    With `simulate` jobs run for their duration without processes, on 4 cores a node. Without
    `statedir` the state is temporary, and jobs that are active at the end are canceled; else they
    go on, and the next instance there takes them over. `config` has everything else, as TOML.

    Raises ValueError for fewer than one node or core, TypeError for a number that is not whole and
    for `plugins` of another type,
    FormatError for a wrong `config`, `edition` or name of a `policy`, and InstanceFailed if the
    instance does not start, and also if it ends by itself, when a service has crashed that it
    cannot do without: then the block is cancelled. Errors of the block are raised as they are.
    """
    wanted = _config(config, nodes, cores, policy, edition, simulate=simulate)
    opening = partial(_opened, wanted, plugin_sources(plugins), statedir)
    async with opening() if trio.lowlevel.in_trio_run() else _beside(opening) as embedded:
        yield embedded


class StartedInstance:
    """An instance that `start_instance` has started; its calls wait.

    It ends at the end of a `with` block, at `stop`, or with the program.
    """

    def __init__(self, loop: LoopThread[Embedded]) -> None:
        self._embedded = loop.start()
        self._loop = loop
        self.statedir = self._embedded.statedir
        self.uri = self._embedded.uri
        atexit.register(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def connect(self) -> BlockingClient:
        """Return a client, which is the instance's owner; the caller closes it."""
        return connect(self.uri)

    def stop(self) -> None:
        """End the instance; a second call has no effect.

        Raises InstanceFailed if it has ended by itself.
        """
        atexit.unregister(self.stop)
        self._loop.stop()

    def crash(self, module: str) -> None:
        """Let a module end without a farewell, as `Embedded.crash`."""
        self._loop.portal.call(self._embedded.crash, module)

    def unload(self, module: str) -> None:
        """End a module in order."""
        self._loop.portal.call(self._embedded.unload, module)

    def load(self, module: str) -> None:
        """Start a module that has crashed or was unloaded."""
        self._loop.portal.call(self._embedded.load, module)

    def reload(self, module: str) -> None:
        """End a module in order, and start it again."""
        self._loop.portal.call(self._embedded.reload, module)

    def take_down(self, targets: str, reason: str = "") -> None:
        """Take nodes, an idset or a hostlist, for lost: their jobs end with an exception."""
        self._loop.portal.call(self._embedded.take_down, targets, reason)

    def bring_up(self, targets: str) -> None:
        """Take nodes for working again."""
        self._loop.portal.call(self._embedded.bring_up, targets)


def start_instance(**wanted: Any) -> StartedInstance:
    """Start an instance in a thread of its own, and return when it is ready.

    It is for programs without async code, for fixtures of tests, and for notebooks, where one cell
    starts an instance and another one stops it. `wanted` is what `open_instance` takes; so are the
    errors.
    """
    return StartedInstance(
        LoopThread("flux-trio instance", lambda: open_instance(**wanted), trio.run)
    )


def _config(
    config: str | Config,
    nodes: int | None,
    cores: int | None,
    policy: str | None,
    edition: str | None,
    *,
    simulate: bool,
) -> Config:
    """Return `config` with what the other arguments say; what they do not say stays."""
    for name, number in (("nodes", nodes), ("cores", cores)):
        if number is not None and type(number) is not int:
            raise TypeError(f"{name}: expected a whole number, got {number!r}")
        if number is not None and number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    read = parse_config(config) if isinstance(config, str) else config
    replace = msgspec.structs.replace
    if cores is not None or (simulate and not read.names_resources):
        machine = FakeResourcesConfig(nodes or 1, cores_per_node=cores or SIMULATED_CORES)
        read = replace(read, fake_resources=machine)
    elif nodes is not None:
        read = replace(read, resource=replace(read.resource, targets=nodes))
    if simulate:
        read = replace(read, exec=replace(read.exec, simulate=True))
    if policy is not None:
        check_policy_name(policy, "policy")
        read = replace(read, sched=replace(read.sched, policy=policy))
    if edition is not None:
        check_edition(edition)
        read = replace(read, edition=edition)
    return read


def _directory(opened: ExitStack, statedir: str | os.PathLike[str] | None, edition: str) -> Path:
    if statedir is not None:
        directory = Path(statedir).absolute()
        try:
            make_directory(directory)
            if found := foreign_file(directory):
                raise InstanceFailed(found)
            if is_copy(directory / STATE_FILE):
                raise InstanceFailed(f"{directory} is a copy: `flux-trio restore` makes another")
            opened.enter_context(sole_instance(directory))
            if found := other_edition(directory, edition):
                raise InstanceFailed(found)
        except (OSError, Living) as error:
            raise InstanceFailed(str(error)) from error
        return directory
    temporary = tempfile.TemporaryDirectory(prefix="flux-trio-", ignore_cleanup_errors=True)
    directory = Path(opened.enter_context(temporary))
    directory.chmod(DIRECTORY_MODE)
    return directory


def _surroundings(config: Config, directory: Path, plugins: Iterable[PluginSource]) -> Surroundings:
    try:
        inventory, exclude = find_inventory(config.resource, config.fake_resources)
    except FluxError as error:
        raise InstanceFailed(error.text) from error
    return Surroundings(
        inventory=inventory,
        userid=os.getuid(),
        epoch=time.time(),
        clock=system_clock(),
        exclude=exclude,
        statedir=directory,
        listen=True,
        store=durable_store(config, directory),
        plugins=plugins,
        plugin_path=tuple(search_path(os.environ, directory)),
    )


@asynccontextmanager
async def _opened(
    config: Config, plugins: Iterable[PluginSource], statedir: str | os.PathLike[str] | None
) -> AsyncIterator[Embedded]:
    """Run the instance in this Trio run; the directory is its own until it has ended."""
    with ExitStack() as opened:
        directory = _directory(opened, statedir, config.edition)
        given = _surroundings(config, directory, plugins)
        async with _running(config, given, lasting=statedir is not None):
            yield Embedded(directory)


@asynccontextmanager
async def _running(
    config: Config, given: Surroundings, *, lasting: bool
) -> AsyncIterator[Instance]:
    """Run the instance in this Trio run; errors come in no group, unless the block's are one."""
    has_begun = False
    try:
        async with run_instance(config, given) as instance:
            has_begun = True
            yield instance
            if not lasting:
                await end_jobs(instance)
    except BaseExceptionGroup as group:
        if not has_begun:  # a cancel of the caller comes with what it did to modules that started
            await trio.lowlevel.checkpoint_if_cancelled()
        crash = next((each for each in leaves(group) if isinstance(each, ModuleCrashed)), None)
        if crash is None and has_begun:
            error = sole_error(group)
            if error is None:
                raise
            raise error from error.__cause__
        failure = crash or error_of_start(group)
        raise InstanceFailed(str(failure)) from failure


@asynccontextmanager
async def _beside(
    opening: Callable[[], AbstractAsyncContextManager[Embedded]],
) -> AsyncIterator[Embedded]:
    """Run the instance in a thread of its own, while the block runs in this event loop.

    A second cancel of asyncio is not kept waiting for its end: it goes on to end in its thread.
    """
    loop = LoopThread("flux-trio instance", opening, trio.run)
    loop.begin()
    try:
        await anyio.to_thread.run_sync(wait, [loop.opened], abandon_on_cancel=True)
        with error_of_block():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch, loop.ended)
                if loop.opened.exception() is None:
                    yield loop.opened.result()
                    tasks.cancel_scope.cancel()
    finally:
        loop.let_end()
        with anyio.move_on_after(END_S_MAX, shield=True):
            await anyio.to_thread.run_sync(wait, [loop.ended], abandon_on_cancel=True)
        if loop.ended.done():
            loop.ended.result()  # why it has ended is the cause of what the block has met


async def _watch(ended: Future[None]) -> None:
    """Raise what ends the instance by itself, which cancels the block."""
    await anyio.to_thread.run_sync(ended.result, abandon_on_cancel=True)
