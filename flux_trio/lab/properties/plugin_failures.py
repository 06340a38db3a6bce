"""A property of worlds with plugins of a user: no handler fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.jobtap import CANCELED
from flux_trio.lab.properties.property import over_trace
from flux_trio.lab.world.plugins import FAULTY
from flux_trio.trace import Kind, Record

PLUGIN: Final = "plugin"
"""The property that no handler of a plugin fails."""


@over_trace(PLUGIN)
def no_plugin_fails(trace: Iterable[Record]) -> str:
    """No handler of a plugin raises, or answers with what its hook does not take."""
    return next(filter(None, map(_failure_in, trace)), "")


def _failure_in(record: Record) -> str:
    """Return how the call of a plugin failed that the record is about; "" if it is about none."""
    data = record.data
    if record.kind != Kind.HOOK or data is None or data["plugin"] == FAULTY:
        return ""  # what is planned is no failure
    if data["error"] in (None, CANCELED):
        return ""
    return f"{data['plugin']} failed in {data['hook']}: {data['error']}"


def is_of_user(error: BaseException) -> bool:
    """Return whether the error of a plugin came from the user's code, and not from a fault."""
    text = [str(error), *getattr(error, "__notes__", ())][-1]
    return not text.startswith(f"plugin {FAULTY} ")
