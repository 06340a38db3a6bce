"""Modules: loaded, removed and reloaded, each in a nursery of its own.

Before a module has started, its error belongs to whoever loads it and is raised there. After that
it is a crash: recorded, the module's names dropped, those who wait on it answered; the broker
lives. Reload is remove, then load; there is no third path. This is the one place besides the plugin
host that catches `Exception` broadly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from flux_trio.broker.handle import Clock, Handle
from flux_trio.broker.log import LogBook
from flux_trio.broker.router import Router
from flux_trio.messages import ROLE_OWNER, Errno, FluxError, Level
from flux_trio.trace import Kind

ModuleMain = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """How to run a module: `main(handle, task_status=...)` serves until cancelled.

    The instance cannot go on without an `essential` one: its crash ends the instance.
    """

    name: str
    main: ModuleMain
    essential: bool = False


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """One loaded module; `t_loaded` in seconds since the Unix epoch.

    `idle` are the seconds since it last took up or sent anything: with messages waiting, it hangs.
    """

    name: str
    services: tuple[str, ...]
    t_loaded: float
    waiting: int
    idle: float


class ModuleNotStarted(Exception):
    """A module did not come up; the text says which and why, the cause is chained."""


class ModuleCrashed(Exception):
    """An essential module went away; the cause is chained."""


@dataclass(slots=True)
class _Loaded:
    handle: Handle
    t_loaded: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    gone: trio.Event = field(default_factory=trio.Event)
    removing: bool = False


class Supervisor:
    """Runs modules in `nursery`; knows how to run those in `specs`."""

    def __init__(
        self, router: Router, nursery: trio.Nursery, clock: Clock, log: LogBook, userid: int
    ) -> None:
        self.specs: dict[str, ModuleSpec] = {}
        self._router = router
        self._nursery = nursery
        self._clock = clock
        self._log = log
        self._userid = userid
        self._loaded: dict[str, _Loaded] = {}

    async def load(self, name: str) -> None:
        """Start a module and wait until it serves.

        Raises FluxError(ENOENT) for an unknown name, FluxError(EEXIST) when it is loaded, and
        ModuleNotStarted, with the module's own error as its cause, when it does not come up.
        """
        spec = self.specs.get(name)
        if spec is None:
            known = ", ".join(sorted(self.specs))
            raise FluxError(Errno.ENOENT, f"no module {name}; there are {known}")
        if name in self._loaded:
            raise FluxError(Errno.EEXIST, f"module {name} is already loaded")
        await self._nursery.start(self._run, spec)

    async def remove(self, name: str) -> None:
        """Stop a module and wait until nothing of it is left. Raises FluxError(ENOENT)."""
        loaded = self._loaded.get(name)
        if loaded is None:
            raise FluxError(Errno.ENOENT, f"module {name} is not loaded")
        loaded.removing = True
        loaded.scope.cancel()
        await loaded.gone.wait()

    async def reload(self, name: str) -> None:
        """Remove, then load."""
        await self.remove(name)
        await self.load(name)

    def __contains__(self, name: str) -> bool:
        return name in self._loaded

    def list(self) -> list[ModuleInfo]:
        """Loaded modules in the order they were loaded."""
        return [
            ModuleInfo(
                name,
                tuple(sorted(loaded.handle.peer.services)),
                loaded.t_loaded,
                loaded.handle.waiting(),
                self._clock() - loaded.handle.t_active,
            )
            for name, loaded in self._loaded.items()
        ]

    async def _run(
        self, spec: ModuleSpec, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        handle = Handle(spec.name, self._router, self._clock, self._log, self._userid, ROLE_OWNER)
        loaded = self._loaded[spec.name] = _Loaded(handle, self._clock())
        started = _Started(task_status, lambda: self._note(spec, "started"))
        error: Exception | None = None
        try:
            with loaded.scope:
                await spec.main(handle, task_status=started)
        except Exception as exc:  # noqa: BLE001 - whatever ends a module is told, not spread
            error = exc
        finally:
            del self._loaded[spec.name]
            handle.close()
            loaded.gone.set()
        if not started.done:
            reason = "removed before it served" if loaded.removing else _reason(error)
            raise ModuleNotStarted(f"module {spec.name} did not start: {reason}") from error
        self._end(spec, loaded, error)

    def _end(self, spec: ModuleSpec, loaded: _Loaded, error: Exception | None) -> None:
        reason = _reason(error)
        if loaded.removing:
            self._note(spec, "removed")
            if error is not None:
                loaded.handle.log(Level.ERR, f"module {spec.name}: while removed: {reason}")
            return
        self._note(spec, "crashed" if error is not None else "returned", reason=reason)
        loaded.handle.log(Level.CRIT, f"module {spec.name}: {reason}")
        if spec.essential:
            raise ModuleCrashed(f"module {spec.name}: {reason}") from error

    def _note(self, spec: ModuleSpec, what: str, **more: Any) -> None:
        self._router.trace.note(Kind.MODULE, "broker", {"module": spec.name, "what": what, **more})


class _Started:
    """Tells Trio's task status on, and remembers that it was told."""

    def __init__(self, inner: trio.TaskStatus[None], on_started: Callable[[], None]) -> None:
        self._inner = inner
        self._on_started = on_started
        self.done = False

    def started(self, value: None = None) -> None:
        """The module serves."""
        self._inner.started(value)
        self.done = True
        self._on_started()


def _reason(error: Exception | None) -> str:
    return "returned without being asked to" if error is None else _describe(error)


def _describe(error: BaseException) -> str:
    """One line for an error, a group's members in turn."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_describe(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"
