"""Cores whose turns go into the trace, so that `flux-trio replay` can take them again.

The form of the records is in `cores/recorded.py`. A core in a process of its own is not recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from flux_trio._version import __version__
from flux_trio.broker import Handle
from flux_trio.cores.recorded import (
    raised_text,
    written_actions,
    written_inputs,
    written_making,
)
from flux_trio.cores.recorded_plugins import RecordedPlugins
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import Core
from flux_trio.protocols import Plugins

P = ParamSpec("P")
CoreT = TypeVar("CoreT", bound=CorePart)
TurnSink: TypeAlias = Callable[[dict[str, Any]], None]


class Made(Generic[CoreT]):
    """A core; `turns` takes its turns, the core itself unless they are recorded."""

    def __init__(self, core: CoreT) -> None:
        self.core = core

    @property
    def turns(self) -> Core[Any, Any]:
        core: Any = self.core
        turns: Core[Any, Any] = core
        return turns

    def turns_with(
        self, plugins: Plugins, make: Callable[[CoreT, Plugins], Core[Any, Any]]
    ) -> Core[Any, Any]:
        """Return `make(core, plugins)`, which takes the turns of the core with its plugins."""
        return make(self.core, plugins)


def make_core(
    handle: Handle, make: Callable[P, CoreT], *args: P.args, **kwargs: P.kwargs
) -> Made[CoreT]:
    """Return the core `make(*args, **kwargs)`; `make` is its class.

    If the trace of `handle` wants turns, it gets them, first how the core was made and its state.
    """
    core = make(*args, **kwargs)
    sink = handle.turn_sink()
    if sink is None:
        return Made(core)
    # The state is that of another core: an object whose attributes were listed has them in a
    # dictionary from then on, where CPython finds them more slowly than in the object itself.
    making = written_making(type(core), args, kwargs) | {"state": make(*args, **kwargs).dump()}
    return _MadeRecorded(handle, sink, core, making)


class _MadeRecorded(Made[CoreT]):
    def __init__(self, handle: Handle, sink: TurnSink, core: CoreT, making: dict[str, Any]) -> None:
        super().__init__(core)
        self._handle = handle
        self._sink = sink
        self._making = {"version": __version__, **making}

    @property
    def turns(self) -> Core[Any, Any]:
        return _Recorded(self._handle, self._sink, super().turns, self._making)

    def turns_with(
        self, plugins: Plugins, make: Callable[[CoreT, Plugins], Core[Any, Any]]
    ) -> Core[Any, Any]:
        asked = RecordedPlugins(plugins)
        return _Recorded(self._handle, self._sink, make(self.core, asked), self._making, asked)


class _Recorded:
    """Records each turn that `turns` takes; also one in which it raises."""

    def __init__(
        self,
        handle: Handle,
        sink: TurnSink,
        turns: Core[Any, Any],
        making: dict[str, Any],
        plugins: RecordedPlugins | None = None,
    ) -> None:
        self._handle = handle
        self._sink = sink
        self._turns = turns
        self._making = making
        self._plugins = plugins

    def start(self, now: float) -> list[Any]:
        return self._take({"now": now, **self._making}, lambda: self._turns.start(now))

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        written = written_inputs(inputs, self._handle.places_of_taken())
        taken = list(inputs)
        return self._take({"now": now, "inputs": written}, lambda: self._turns.turn(now, taken))

    def _take(self, data: dict[str, Any], take: Callable[[], list[Any]]) -> list[Any]:
        actions: list[Any] | None = None
        try:
            actions = take()
        finally:
            if actions is None:  # it has raised
                data["raised"] = raised_text(sys.exception())
            elif lines := written_actions(actions):
                data["actions"] = lines
            if self._plugins is not None:
                data.update(self._plugins.take_said())
            self._sink(data)
        return actions
