"""Run an instance in the foreground: as long as a command runs, or until it is told to end.

This module has the instance, its log and its signals; `start` reads the options. An
instance with a temporary directory, for a command or inside a job, leaves nothing behind: it
cancels its jobs before it ends. An instance with a lasting directory leaves its jobs running for
the next instance.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
import trio

from flux_trio.broker import ConfigRefused, LogEntry, ModuleCrashed, ModuleNotStarted
from flux_trio.broker.supervisor import describe
from flux_trio.cli.instance.enclosing import (
    Allocation,
    EnclosingError,
    environment_inside,
    find_allocation,
    follow_expiration,
    write_address,
)
from flux_trio.cli.instance.ending import FORCED, INSTANCE_S, SPARE_S, Ending
from flux_trio.cli.instance.log_output import LogOptions, open_log_sink
from flux_trio.cli.instance.reloading import Hangups, open_hangups, reload_at
from flux_trio.cli.instance.service_manager import ServiceManager
from flux_trio.cli.judge.monitoring import FINISH_S_MAX, Monitoring, open_monitor
from flux_trio.cli.judge.traces import written_trace
from flux_trio.cli.terminal.config_file import read_config_file
from flux_trio.cli.terminal.errors import CommandError, complain
from flux_trio.client import FLUX_URI_VARIABLE, STATEDIR_VARIABLE
from flux_trio.config import Config, read_config
from flux_trio.formats import FormatError, Idset, parse_duration
from flux_trio.instance import (
    Enclosing,
    Instance,
    ListenError,
    Step,
    Surroundings,
    cancel_jobs,
    durable_store,
    end_jobs,
    open_instance,
)
from flux_trio.jobtap import OwnProcess, own_process, search_path
from flux_trio.messages import FluxError
from flux_trio.process.collector import SERVING
from flux_trio.process.console import STDERR, STDOUT, fill_standard_descriptors
from flux_trio.process.exit_code import code_of
from flux_trio.process.groups import sole_error, unwrapping
from flux_trio.process.threads import OWN
from flux_trio.services.inventory import core_differences, find_inventory
from flux_trio.services.module_process import system_clock
from flux_trio.store.living import Living, sole_instance
from flux_trio.store.original import inode_path, is_copy
from flux_trio.store.room import reserve
from flux_trio.store.state_directory import STATE_FILE, foreign_file, other_edition
from flux_trio.trace import TurnSink

NOT_FOUND: Final = 127  # exit codes of shells, and of flux start
NOT_EXECUTABLE: Final = 126
ENDED_AT_START: Final = 1  # the instance was told to end before it was ready
# Errors that are not bugs: only their text is printed.
EXPECTED: Final = (
    FluxError, FormatError, OSError, ModuleNotStarted, ModuleCrashed, EnclosingError, ListenError,
    Living,
)  # fmt: skip
DESCRIPTORS_MIN: Final = 32
"""An idle instance has 18; each client has one more, and so have reads of output and a backup."""
COMMAND_S_MAX: Final = 5.0  # from SIGTERM to the command's end, when the instance has crashed
RECORDED_S_MAX: Final = FINISH_S_MAX + SPARE_S


class ConfigSource(msgspec.Struct, frozen=True):
    """The source of the configuration: a file (None means the defaults), and options."""

    path: Path | None = None
    targets: int | None = None  # --test-size
    policy: str | None = None  # --policy
    edition: str | None = None  # --edition

    def read(self) -> Config:
        """Read the configuration. Raises CommandError."""
        if self.path is None:
            config = read_config({}, edition=self.edition)
        else:
            config = read_config_file(self.path, self.edition)
        if self.policy is not None:
            if "policy" in config.policy.scheduler:
                got = f"expected --policy or policy.scheduler.policy in {self.path}, got both"
                raise CommandError(got)
            sched = msgspec.structs.replace(config.sched, policy=self.policy)
            config = msgspec.structs.replace(config, sched=sched)
        if self.targets is None:
            return config
        if config.names_resources:
            raise CommandError(f"expected --test-size or resources in {self.path}, got both")
        resource = msgspec.structs.replace(config.resource, targets=self.targets)
        return msgspec.structs.replace(config, resource=resource)


class Startup(msgspec.Struct, frozen=True):
    """What to run: an instance in `statedir`, with a command or until it is told to end."""

    source: ConfigSource
    config: Config  # read from `source`
    statedir: Path
    lasting: bool  # the directory outlives the instance
    command: tuple[str, ...] = ()
    trace: Path | None = None  # a file for JSON lines
    trace_environments: bool = False  # of jobs
    monitor: bool = False
    log: LogOptions = msgspec.field(default_factory=LogOptions)
    manager: ServiceManager = msgspec.field(default_factory=ServiceManager)
    started: Callable[[], None] = lambda: None  # called when commands can reach the instance
    opened: ExitStack = msgspec.field(default_factory=ExitStack)  # closed when the process ends
    ending: Ending = msgspec.field(default_factory=Ending)


def reread(source: ConfigSource) -> Callable[[], Awaitable[Config]] | None:
    """Return a function that reads the configuration file again, or None without a file."""
    if source.path is None:
        return None
    path = source.path.absolute()  # the directory of the process may change
    source = msgspec.structs.replace(source, path=path)

    async def read() -> Config:
        try:
            return await OWN.run(source.read, abandon_on_cancel=True)
        except CommandError as error:
            raise ConfigRefused(error.message) from None

    return read


def run(startup: Startup) -> int:
    """Run the instance, and return the exit code of the command, or 0. Raises CommandError."""
    fill_standard_descriptors()
    try:
        if found := foreign_file(startup.statedir):
            raise CommandError(found)
        _refuse_a_copy(startup.statedir)
        _check_descriptors()
        gc.freeze()  # what was imported stays: no collection looks through it while requests wait
        gc.set_threshold(*SERVING)
        with unwrapping(*EXPECTED), startup.ending.taking(_ending_signals(startup.manager)):
            startup.opened.enter_context(sole_instance(startup.statedir))
            if found := other_edition(startup.statedir, startup.config.edition):
                raise CommandError(found)
            if startup.lasting:
                startup.opened.enter_context(reserve(startup.statedir))
            return trio.run(_run, startup)
    except EXPECTED as error:
        raise CommandError(_explain(error)) from None


def _refuse_a_copy(statedir: Path) -> None:
    """Raise CommandError if somebody has copied the directory: its jobs could run twice."""
    path = statedir / STATE_FILE
    if is_copy(path):
        raise CommandError(
            f"{statedir} is a copy of a state directory: its {STATE_FILE} is another file than its "
            "instances have used.\nThe jobs in it may have run since, and would run again. "
            f"`flux-trio backup --statedir {statedir} DIR`, then `flux-trio restore DIR NEW` make "
            "a directory that starts no job by itself.\nIf you have moved the directory, and no "
            f"instance ran in the original since: remove {inode_path(path)}, and start again"
        )


def _check_descriptors() -> None:
    """Raise CommandError if this process may not open enough files.

    Otherwise the start would wait for ever for a client or a shell host that it cannot reach.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_MIN:
        raise CommandError(
            f"expected a limit of at least {DESCRIPTORS_MIN} open files (`ulimit -n`), got {soft}"
        )


def _explain(error: BaseException) -> str:
    """Return the text of the error, or of the error that kept a module from starting."""
    if isinstance(error, ModuleNotStarted) and isinstance(error.__cause__, EXPECTED):
        error = error.__cause__
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@asynccontextmanager
async def _monitoring(startup: Startup) -> AsyncIterator[Monitoring | None]:
    if not startup.monitor:
        yield None
        return
    async with open_monitor(startup.config.edition) as monitoring:
        yield monitoring


async def _run(startup: Startup) -> int:
    code = FORCED
    with ExitStack() as last:
        last.callback(lambda: startup.ending.all_has_ended(code))
        last.push(partial(_complain_if_left_behind, startup))
        turn_sinks = last.enter_context(
            written_trace(startup.trace, environments=startup.trace_environments)
        )
        log = last.enter_context(open_log_sink(startup.log, os.environ))
        async with _monitoring(startup) as monitoring:
            code = await _run_instance(startup, turn_sinks, log, monitoring)
            startup.ending.step(lambda: "the judge and the trace", RECORDED_S_MAX)
    return code


def _complain_if_left_behind(
    startup: Startup, _: object, raised: BaseException | None, __: object
) -> None:
    """Say what was raised, if a thread is left: `all_has_ended` ends this process then."""
    if raised is not None and startup.ending.left_behind():
        error = sole_error(raised, EXPECTED)
        complain(describe(raised) if error is None else _explain(error))


async def _run_instance(
    startup: Startup,
    turn_sinks: tuple[TurnSink, ...],
    log: Callable[[LogEntry], None],
    monitoring: Monitoring | None,
) -> int:
    allocation = await find_allocation(os.environ)
    inventory, exclude = find_inventory(
        startup.config.resource,
        startup.config.fake_resources,
        allocation.resources if allocation else None,
    )
    enclosing = allocation.enclosing if allocation else None
    given = Surroundings(
        inventory=inventory,
        userid=os.getuid(),
        epoch=time.time(),
        clock=system_clock(),
        exclude=exclude,
        missing=core_differences(
            startup.config.resource,
            inventory,
            socket.gethostname(),
            Idset.of(os.sched_getaffinity(0)),
        ),
        statedir=startup.statedir,
        listen=True,
        store=durable_store(startup.config, startup.statedir),
        enclosing=enclosing,
        sinks=() if monitoring is None else (monitoring.append,),
        turn_sinks=turn_sinks,
        log_sinks=(log,),
        reread=reread(startup.source),
        plugin_path=tuple(search_path(os.environ, startup.statedir)),
    )
    manager, signals = startup.manager, startup.ending.signals()
    own_process.set(OwnProcess(startup.ending.note, partial(startup.ending.leave, FORCED)))
    with open_hangups(manager) as hangups:
        config = (
            _with_shorter_kill_timeout(allocation, startup.config) if allocation else startup.config
        )
        code = ENDED_AT_START
        async with _ending_at(signals) as is_ready, open_instance(config, given) as instance:
            await is_ready()
            startup.started()
            manager.ready(f"{instance.uri}, state in {startup.statedir}")
            if monitoring is not None:
                monitoring.report_to(instance.write_log)
            async with _following(instance, startup, allocation, hangups):
                code = await _serve(instance, startup, enclosing, signals)
                manager.stopping(
                    "the instance ends; jobs that run go on" if startup.lasting else ""
                )
                if not startup.lasting:
                    await end_jobs(instance, _with_spare(startup.ending))
            startup.ending.step(lambda: _modules_left(instance), INSTANCE_S)
    return code


def _with_spare(ending: Ending) -> Step:
    return lambda text, limit_s: ending.step(text, limit_s + SPARE_S)


def _modules_left(instance: Instance) -> str:
    """Return a text that names the modules that have not ended."""
    names = [each.name for each in instance.supervisor.list()]
    return f"the modules {', '.join(names)}" if names else "what the modules have left"


@asynccontextmanager
async def _ending_at(signals: AsyncIterator[int]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Cancel the block at a signal, until the block calls the function that this yields.

    After that call the block reads the signals itself. The start of an instance may take long: it
    reads the state of all active jobs.
    """

    async def on_signal() -> None:
        with starting:
            async for _ in signals:
                STDERR.write("flux-trio: a signal has ended the instance before it was ready")
                nursery.cancel_scope.cancel()
        read.set()

    async def leave_signals() -> None:
        starting.cancel()
        await read.wait()

    starting, read = trio.CancelScope(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(on_signal)
        yield leave_signals


def _with_shorter_kill_timeout(allocation: Allocation, config: Config) -> Config:
    """Limit kill-timeout to half of the enclosing job's, so that our jobs are killed first."""
    half_s = allocation.kill_timeout_s / 2
    if parse_duration(config.exec.kill_timeout) <= half_s:
        return config
    quicker = msgspec.structs.replace(config.exec, kill_timeout=f"{half_s:.3f}s")
    return msgspec.structs.replace(config, exec=quicker)


@asynccontextmanager
async def _following(
    instance: Instance, startup: Startup, allocation: Allocation | None, hangups: Hangups
) -> AsyncIterator[None]:
    """In this block, publish the address on the enclosing job and follow its expiration.

    Each SIGHUP of `hangups` reloads the configuration.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reload_at, hangups, instance, startup.manager)
        if allocation is not None:
            where = str(startup.statedir)
            nursery.start_soon(write_address, os.environ, allocation, instance, where)
            if not startup.config.names_resources:
                nursery.start_soon(follow_expiration, os.environ, allocation, instance)
        yield
        nursery.cancel_scope.cancel()


async def _serve(
    instance: Instance, startup: Startup, enclosing: Enclosing | None, signals: AsyncIterator[int]
) -> int:
    """Serve until the command ends, and return its exit code; without one, until told to end."""
    if not startup.command:
        _announce(instance, startup.statedir)
        await _wait_for_end(instance, signals)
        return 0
    environment = environment_inside(
        os.environ, str(startup.statedir), enclosing, instance.native_uri
    )
    cancels = enclosing is not None and not startup.lasting
    startup.ending.forwards = True
    try:
        return await _run_command(instance, startup.command, environment, signals, cancels=cancels)
    finally:
        startup.ending.forwards = False


def _ending_signals(manager: ServiceManager) -> list[int]:
    """Return the signals that end the instance; SIGALRM comes at a job's time limit.

    Under a service manager there is no terminal to hang up: SIGHUP reloads the configuration.
    """
    ignored = manager or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    hangup = [] if ignored else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, signal.SIGALRM, *hangup]


def _announce(instance: Instance, statedir: Path) -> None:
    STDOUT.write(
        f"flux-trio: instance at {instance.uri} is ready; to reach it from elsewhere: "
        f"export {STATEDIR_VARIABLE}={quote(str(statedir))}"
    )
    if instance.native_uri:
        STDOUT.write(
            "flux-trio: for Flux's own programs: "
            f"export {FLUX_URI_VARIABLE}={quote(instance.native_uri)}"
        )


async def _wait_for_end(instance: Instance, signals: AsyncIterator[int]) -> None:
    """Wait for a signal or a broker.shutdown request."""
    async with trio.open_nursery() as nursery:

        async def on_signal() -> None:
            async for _ in signals:
                nursery.cancel_scope.cancel()

        nursery.start_soon(on_signal)
        await instance.shutdown.wait()
        nursery.cancel_scope.cancel()


async def _run_command(
    instance: Instance,
    command: tuple[str, ...],
    environment: dict[str, str],
    signals: AsyncIterator[int],
    *,
    cancels: bool,
) -> int:
    """Run the command, and return its exit code; terminate it when the instance is told to end.

    SIGINT is not forwarded: the terminal sends it to the command as well. With `cancels`, a signal
    cancels the jobs at once, because there is no time to wait for the command.
    """
    try:
        process = await trio.lowlevel.open_process(command, env=environment)
    except FileNotFoundError:
        return _refuse(command, "command not found", NOT_FOUND)
    except OSError as error:
        return _refuse(command, str(error.strerror), NOT_EXECUTABLE)
    async with trio.open_nursery() as nursery:

        async def on_signal() -> None:
            async for signum in signals:
                if signum != signal.SIGINT:
                    process.send_signal(signum)
                    if cancels:
                        nursery.start_soon(cancel_jobs, instance)

        async def on_shutdown() -> None:
            await instance.shutdown.wait()
            process.terminate()

        nursery.start_soon(on_signal)
        nursery.start_soon(on_shutdown)
        try:
            code = await process.wait()
        finally:  # the wait is cancelled when the instance has crashed
            await _terminate(process)
        nursery.cancel_scope.cancel()
    return code_of(code)


async def _terminate(process: trio.Process) -> None:
    """Tell a command that still runs to end, and wait for that: it may write to the terminal."""
    if process.returncode is not None:
        return
    process.terminate()
    with trio.move_on_after(COMMAND_S_MAX, shield=True):
        await process.wait()
    if process.returncode is None:
        STDERR.write(f"flux-trio start: the command goes on as process {process.pid}")


def _refuse(command: tuple[str, ...], reason: str, code: int) -> int:
    STDERR.write(f"flux-trio start: ERROR: {command[0]}: {reason}")
    return code
