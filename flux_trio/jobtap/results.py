"""What handlers return, checked: a wrong type or value is the plugin's failure, named."""

from __future__ import annotations

import reprlib
from typing import Any

from flux_trio.jobtap.catalogue import Hook, Returns
from flux_trio.jobtap.errors import NotAllowed
from flux_trio.jobtap.values import UpdateAllowed
from flux_trio.protocols import PRIORITY_MAX, PRIORITY_MIN, Unavailable


def problem_with(hook: Hook, said: Any) -> str:
    """What was expected of a handler that said what its hook does not take."""
    expected = {
        Returns.PRIORITY: _PRIORITIES,
        Returns.ALLOWED: "UpdateAllowed",
        Returns.OBJECT: "a dict",
    }
    return _expected(expected.get(hook.returns, "None"), said)


def shown(said: Any) -> Any:
    """What the trace shows of a checked value."""
    if isinstance(said, int):
        return said
    if isinstance(said, Unavailable):
        return repr(said)
    if isinstance(said, UpdateAllowed):
        return {"allowed": dict(said.updates)}
    return None  # a plugin's own, and it may be large


def priority_of(value: Any) -> int | None:
    """A priority, None for one that is unavailable. Raises NotAllowed for what is neither."""
    if not is_priority(value):
        raise NotAllowed(_expected(_PRIORITIES, value))
    return value if isinstance(value, int) else None


def is_priority(value: Any) -> bool:
    """Whether a handler may say `value`: booleans are no priorities."""
    if type(value) is int:
        return PRIORITY_MIN <= value <= PRIORITY_MAX
    return isinstance(value, Unavailable)


_PRIORITIES = f"a priority from {PRIORITY_MIN} to {PRIORITY_MAX} or UNAVAILABLE"


def _expected(what: str, got: Any) -> str:
    return f"expected {what}, got {reprlib.repr(got)}"
