"""Cores whose turns go into the trace, so that `flux-trio replay` can take them again.

The form of the records is in `cores/turn_records.py`. A core in a process of its own is not
recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from flux_trio._version import __version__
from flux_trio.broker import Handle
from flux_trio.cores.recorded_plugins import RecordedPlugins
from flux_trio.cores.state import CorePart
from flux_trio.cores.turn_records import (
    raised_text,
    written_actions,
    written_inputs,
    written_making,
)
from flux_trio.cores.turns import CommonAction, CommonInput, Core, KeyT
from flux_trio.protocols import Plugins

P = ParamSpec("P")
InputT = TypeVar("InputT")
ActionT = TypeVar("ActionT")
CoreT = TypeVar("CoreT", bound=CorePart)
CoreT_co = TypeVar("CoreT_co", covariant=True)
TurnSink: TypeAlias = Callable[[dict[str, Any]], None]
Actions: TypeAlias = Sequence[CommonAction[KeyT] | ActionT]


class Made(Generic[CoreT_co]):
    """A core, and the object that takes its turns: the core itself, unless turns are recorded."""

    def __init__(self, core: CoreT_co, recorder: Recorder | None = None) -> None:
        self.core = core
        self._recorder = recorder

    @property
    def turns(self: Made[Core[KeyT, InputT, ActionT]]) -> Core[KeyT, InputT, ActionT]:
        if self._recorder is None:
            return self.core
        return _Recorded(self._recorder, self.core)

    def turns_with(
        self, plugins: Plugins, make: Callable[[CoreT_co, Plugins], Core[KeyT, InputT, ActionT]]
    ) -> Core[KeyT, InputT, ActionT]:
        """Return `make(core, plugins)`, which takes the turns of the core with its plugins."""
        if self._recorder is None:
            return make(self.core, plugins)
        asked = RecordedPlugins(plugins)
        return _Recorded(self._recorder, make(self.core, asked), asked)


class Recorder(NamedTuple):
    """The sink of a core's turns; `making` has the core's class, arguments and first state."""

    handle: Handle
    sink: TurnSink
    making: dict[str, Any]


def make_core(
    handle: Handle, make: Callable[P, CoreT], *args: P.args, **kwargs: P.kwargs
) -> Made[CoreT]:
    """Return the core `make(*args, **kwargs)`; `make` is its class.

    If the trace of `handle` records turns, the first record also has the arguments of the core and
    its state.
    """
    core = make(*args, **kwargs)
    sink = handle.turn_sink()
    if sink is None:
        return Made(core)
    # The state is dumped from a second, equal core: an object whose attributes were listed has them
    # in a dictionary from then on, where CPython finds them more slowly than in the object itself.
    making = {
        "version": __version__,
        **written_making(type(core), args, kwargs),
        "state": make(*args, **kwargs).dump(),
    }
    return Made(core, Recorder(handle, sink, making))


class _Recorded(Core[KeyT, InputT, ActionT]):
    """Records each turn that `turns` takes; also one in which it raises."""

    def __init__(
        self,
        recorder: Recorder,
        turns: Core[KeyT, InputT, ActionT],
        plugins: RecordedPlugins | None = None,
    ) -> None:
        self._recorder = recorder
        self._turns = turns
        self._plugins = plugins

    def start(self, now: float) -> Actions[KeyT, ActionT]:
        return self._recorded({"now": now, **self._recorder.making}, lambda: self._turns.start(now))

    def turn(
        self, now: float, inputs: Sequence[CommonInput[KeyT] | InputT]
    ) -> Actions[KeyT, ActionT]:
        written = written_inputs(inputs, self._recorder.handle.places_of_taken())
        taken = list(inputs)
        return self._recorded({"now": now, "inputs": written}, lambda: self._turns.turn(now, taken))

    def _recorded(
        self, data: dict[str, Any], take: Callable[[], Actions[KeyT, ActionT]]
    ) -> Actions[KeyT, ActionT]:
        actions: Actions[KeyT, ActionT] | None = None
        try:
            actions = take()
        finally:
            if actions is None:  # it has raised
                data["raised"] = raised_text(sys.exception())
            elif lines := written_actions(actions):
                data["actions"] = lines
            if self._plugins is not None:
                data.update(self._plugins.pop_answers())
            self._recorder.sink(data)
        return actions
