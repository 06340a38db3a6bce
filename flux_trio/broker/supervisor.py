"""Modules: loads, removes and reloads them, each in its own nursery.

An error before a module has started is raised to the caller of `load`. After the start, an error is
a crash: it is recorded, the module's names are freed, waiting callers get an answer, and the broker
goes on. Reload is remove, then load; there is no third path. The supervisor treats modules in this
process and in their own process alike. Only the supervisor and the plugin host catch `Exception`
broadly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import trio

from flux_trio.broker.handle import Clock, LocalHandle
from flux_trio.broker.log import LogBook
from flux_trio.broker.router import Router
from flux_trio.messages import ROLE_OWNER, Errno, FluxError, Level
from flux_trio.process.groups import leaves
from flux_trio.trace import KILLED, Kind

ModuleMain = Callable[..., Awaitable[None]]


class ModuleSpec(msgspec.Struct, frozen=True):
    """How to run a module: `main(handle, task_status=...)` serves until cancelled.

    A crash of an `essential` module ends the instance. `process` is the main function that runs the
    module in its own process, or None if that is not possible. `path` is the file of a module that
    is none of this project. `with_arguments` returns the main function for the arguments of a
    module, or raises FluxError; None: it has none. `arguments` are those that `main` has.
    """

    name: str
    main: ModuleMain
    essential: bool = False
    process: ModuleMain | None = None
    path: str = ""
    with_arguments: Callable[[Sequence[str]], ModuleMain] | None = None
    arguments: tuple[str, ...] = ()


def _with(spec: ModuleSpec, arguments: Sequence[str]) -> ModuleSpec:
    """Return how to run a module with `arguments`, in this process. Raises FluxError."""
    if not arguments:
        return spec
    if spec.with_arguments is None:
        text = f"{spec.name}: expected no arguments, got {' '.join(arguments)}"
        raise FluxError(Errno.EINVAL, text)
    main = spec.with_arguments(arguments)
    return msgspec.structs.replace(spec, main=main, process=None, arguments=tuple(arguments))


class ModuleStatus(StrEnum):
    """State of a loaded module."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class ModuleInfo(msgspec.Struct, frozen=True):
    """One loaded module; `t_loaded` is in seconds since the Unix epoch.

    `idle` is the seconds since it last received or sent a message: an idle module with waiting
    messages hangs. `pid` is the id of its own process, or None; `path` is that of its file, or "".
    """

    name: str
    services: tuple[str, ...]
    t_loaded: float
    waiting: int
    idle: float
    status: ModuleStatus
    pid: int | None
    path: str


class ModuleNotStarted(Exception):
    """A module did not start; the text says which and why, and the cause is chained."""


class ModuleKilled(Exception):
    """A module was made to crash on request, for a test."""


class ServiceExit(Exception):
    """A module ended itself, since it cannot go on; the text is the complete reason."""


class ModuleCrashed(Exception):
    """An essential module ended; the cause is chained."""


class _Loaded(msgspec.Struct):
    spec: ModuleSpec
    handle: LocalHandle
    t_loaded: float
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    gone: trio.Event = msgspec.field(default_factory=trio.Event)
    started: bool = False
    removing: bool = False
    killed: str = ""  # why, if it was made to crash

    @property
    def status(self) -> ModuleStatus:
        if self.removing:
            return ModuleStatus.STOPPING
        return ModuleStatus.RUNNING if self.started else ModuleStatus.STARTING


class Supervisor:
    """Runs modules in `nursery`; `specs` says how to run each."""

    def __init__(
        self, router: Router, nursery: trio.Nursery, clock: Clock, log: LogBook, userid: int
    ) -> None:
        self.specs: dict[str, ModuleSpec] = {}
        self._router = router
        self._nursery = nursery
        self._clock = clock
        self._log = log
        self._userid = userid
        self.crashing: list[Callable[[str], None]] = []
        """Each is called with the name of a module that ends by itself, while its names are its."""
        self._loaded: dict[str, _Loaded] = {}
        self._nbefore: Counter[str] = Counter()  # by name: how often it was loaded

    async def load(
        self, name: str, arguments: Sequence[str] = (), *, as_process: bool = False
    ) -> None:
        """Start a module and wait until it serves.

        Raises FluxError: ENOENT for an unknown name, EEXIST if it is already loaded, EINVAL if it
        cannot run `as_process` or has no such arguments. Raises ModuleNotStarted, with the
        module's own error as its cause, if it does not start.
        """
        spec = self.specs.get(name)
        if spec is None:
            raise self._unknown(name)
        await self.load_spec(_with(spec, arguments), as_process=as_process)

    async def load_spec(self, spec: ModuleSpec, *, as_process: bool = False) -> None:
        """Start a module that need not be among `specs`; see `load`."""
        name = spec.name
        if name in self._loaded:
            raise FluxError(Errno.EEXIST, f"module {name} is already loaded")
        main = spec.process if as_process else spec.main
        if main is None:
            raise FluxError(Errno.EINVAL, f"module {name} cannot run as a process of its own")
        await self._nursery.start(self._run, spec, main)

    def check_removable(self, name: str) -> None:
        """Raise FluxError(EBUSY) if the instance always needs the module."""
        spec = self.specs.get(name)
        if spec is not None and spec.essential:
            raise FluxError(Errno.EBUSY, f"module {name} is needed as long as the instance runs")

    async def remove(self, name: str) -> list[str]:
        """Stop a module and wait until it has ended; return the names of what it has abandoned.

        Raises FluxError(ENOENT).
        """
        loaded = self._loaded_one(name)
        loaded.removing = True
        if loaded.handle.ask_to_end is not None:
            with trio.move_on_after(loaded.handle.ask_to_end()) as limit:
                await loaded.gone.wait()
            if limit.cancelled_caught:
                loaded.handle.log(Level.ERR, f"module {name}: did not end when it was asked to")
        loaded.scope.cancel()
        await loaded.gone.wait()
        return loaded.handle.abandoned

    async def reload(
        self, name: str, arguments: Sequence[str] = (), *, as_process: bool = False
    ) -> list[str]:
        """Stop a module and start it again; see `remove` and `load`.

        Without `arguments` it has those that it had.
        """
        spec = self._loaded_one(name).spec
        again = _with(self.specs.get(name, spec), arguments or spec.arguments)
        abandoned = await self.remove(name)
        await self.load_spec(again, as_process=as_process)
        return abandoned

    def again(self, name: str) -> Callable[[], Awaitable[None]]:
        """Return what loads a module as it was loaded, with the specification that it has then.

        Raises FluxError(ENOENT).
        """
        loaded = self._loaded_one(name)
        spec = loaded.spec
        as_process = spec.process is not None and loaded.handle.process is not None

        async def load() -> None:
            again = _with(self.specs.get(name, spec), spec.arguments)
            await self.load_spec(again, as_process=as_process)

        return load

    async def kill(self, name: str) -> None:
        """Make a module crash, its process by SIGKILL; wait until it has ended.

        Raises FluxError(ENOENT).
        """
        loaded = self._loaded_one(name)
        if loaded.handle.process is not None:
            loaded.handle.process.kill()
        else:
            loaded.killed = KILLED
            loaded.scope.cancel()
        await loaded.gone.wait()

    def clock_stepped(self, by: float) -> None:
        """Shift `t_active`: the wall clock was set by `by` seconds; idle times are unchanged."""
        for loaded in self._loaded.values():
            loaded.handle.t_active += by

    def __contains__(self, name: str) -> bool:
        return name in self._loaded

    def _loaded_one(self, name: str) -> _Loaded:
        """Return a module that is loaded; FluxError(ENOENT)."""
        if name in self._loaded:
            return self._loaded[name]
        if name in self.specs:
            raise FluxError(Errno.ENOENT, f"module {name} is not loaded")
        raise self._unknown(name)

    def _unknown(self, name: str) -> FluxError:
        known = ", ".join(sorted(self.specs))
        return FluxError(Errno.ENOENT, f"no module {name}; there are {known}")

    def list(self) -> list[ModuleInfo]:
        """Return the loaded modules in the order of loading."""
        return [
            ModuleInfo(
                name,
                tuple(sorted(loaded.handle.peer.services)),
                loaded.t_loaded,
                loaded.handle.waiting(),
                max(0.0, self._clock() - loaded.handle.t_active),
                loaded.status,
                None if loaded.handle.process is None else loaded.handle.process.pid,
                loaded.spec.path,
            )
            for name, loaded in self._loaded.items()
        ]

    async def _run(
        self,
        spec: ModuleSpec,
        main: ModuleMain,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        nbefore = self._nbefore[spec.name]
        self._nbefore[spec.name] += 1
        handle = self.make_handle(spec.name, nbefore)
        loaded = self._loaded[spec.name] = _Loaded(spec, handle, self._clock())

        def on_started() -> None:
            loaded.started = True
            self._note(spec, "started", **({"process": True} if handle.process else {}))

        started = _Started(task_status, on_started)
        error: Exception | None = None
        try:
            error = await self._serve(loaded, main, started)
            if loaded.started and not loaded.removing:
                for listener in self.crashing:
                    listener(spec.name)
        finally:
            del self._loaded[spec.name]
            handle.close(
                "" if loaded.removing else f"{spec.name} ended: {self.reason(spec, error)}"
            )
            loaded.gone.set()
        if not loaded.started:
            reason = "removed before it served" if loaded.removing else self.reason(spec, error)
            raise ModuleNotStarted(f"module {spec.name}: {reason}") from error
        self._end(spec, loaded, error)

    async def _serve(
        self, loaded: _Loaded, main: ModuleMain, started: _Started
    ) -> Exception | None:
        """Run a module until it ends; return its error."""
        try:
            with loaded.scope:
                await main(loaded.handle, task_status=started)
            if loaded.killed:
                raise ModuleKilled(loaded.killed)
        except Exception as exc:  # noqa: BLE001 - a crash is recorded and must not end the broker
            return exc
        return None

    def _end(self, spec: ModuleSpec, loaded: _Loaded, error: Exception | None) -> None:
        reason = self.reason(spec, error)
        if loaded.removing:
            self._note(spec, "removed")
            if error is not None:
                loaded.handle.log(Level.ERR, f"module {spec.name}: while removed: {reason}")
            return
        self._note(spec, "crashed" if error is not None else "returned", reason=reason)
        loaded.handle.log(Level.CRIT, f"module {spec.name}: {reason}")
        if spec.essential:
            raise ModuleCrashed(f"module {spec.name}: {reason}") from error

    def make_handle(self, name: str, nbefore: int) -> LocalHandle:
        """Return the handle of a module that is loaded now; `nbefore` had its name before."""
        return LocalHandle(
            name, self._router, self._clock, self._log, self._userid, ROLE_OWNER, nbefore
        )

    def reason(self, _spec: ModuleSpec, error: Exception | None) -> str:
        """Return why a module has ended by itself."""
        return "returned without being asked to" if error is None else describe(error)

    def _note(self, spec: ModuleSpec, what: str, **more: Any) -> None:
        self._router.trace.note(Kind.MODULE, "broker", {"module": spec.name, "what": what, **more})


class _Started:
    """Passes `started` on to Trio's task status and to a callback."""

    def __init__(self, inner: trio.TaskStatus[None], on_started: Callable[[], None]) -> None:
        self._inner = inner
        self._on_started = on_started

    def started(self, value: None = None) -> None:
        self._inner.started(value)
        self._on_started()


def describe(error: BaseException) -> str:
    """Return one line for an error; for a group, those of its members."""
    return "; ".join(
        str(each) if isinstance(each, ServiceExit) else f"{type(each).__name__}: {each}"
        for each in leaves(error)
    )
