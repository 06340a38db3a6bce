"""The plugin of a world of the whole stack: a real one, whose handlers do what the faults say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from flux_trio.jobtap import Plugin, on
from flux_trio.lab.world.plugins import FAULTY, Answering
from flux_trio.protocols import AskHook


def faulty_plugin(topics: Iterable[str], fault_of: Callable[[AskHook], Answering | None]) -> Plugin:
    """Return a plugin that is asked about `topics`, and says nothing unless there is a fault."""

    def handler_of(topic: str) -> Callable[..., Any]:
        @on(topic)
        def handler(_plugin: Plugin, *_: Any) -> Any:
            fault = fault_of(AskHook(0, topic, None))
            return None if fault is None else fault.act()

        return handler

    handlers = {f"handler_{place}": handler_of(topic) for place, topic in enumerate(topics)}
    return cast(Plugin, type("Faulty", (Plugin,), {"name": FAULTY, **handlers})())
