"""Checking the values that handlers return."""

from __future__ import annotations

import reprlib
from typing import Any

from flux_trio.jobtap.catalogue import Hook, Returns
from flux_trio.jobtap.errors import NotAllowed
from flux_trio.jobtap.values import UpdateAllowed
from flux_trio.protocols import PRIORITY_MAX, PRIORITY_MIN, Unavailable


def problem_with(hook: Hook, said: Any) -> str:
    """Return the text for a value that is not allowed: what was expected, what came."""
    expected = {
        Returns.PRIORITY: _PRIORITIES,
        Returns.ALLOWED: "UpdateAllowed",
        Returns.OBJECT: "a dict",
        Returns.TEXT: "a str",
    }
    return _expected(expected.get(hook.returns, "None"), said)


def shown(said: Any) -> Any:
    """Return the trace's form of a checked value."""
    if isinstance(said, int):
        return said
    if isinstance(said, Unavailable):
        return repr(said)
    if isinstance(said, UpdateAllowed):
        return {"allowed": dict(said.updates)}
    return None  # a value of the plugin's own, which may be large


def priority_of(value: Any) -> int | None:
    """Return the priority, None for UNAVAILABLE. Raises NotAllowed for another value."""
    if not is_priority(value):
        raise NotAllowed(_expected(_PRIORITIES, value))
    return value if isinstance(value, int) else None


def is_priority(value: Any) -> bool:
    """Return whether a handler may return `value` as a priority; a boolean is not allowed."""
    if type(value) is int:
        return PRIORITY_MIN <= value <= PRIORITY_MAX
    return isinstance(value, Unavailable)


_PRIORITIES = f"a priority from {PRIORITY_MIN} to {PRIORITY_MAX} or UNAVAILABLE"


def priorities_in(said: Any, count: int) -> list[int | Unavailable | None]:
    """Return what a handler says about `count` jobs. Raises NotAllowed for anything else."""
    if type(said) is not list or len(said) != count:
        raise NotAllowed(_expected(f"a list of {count} answers, one for each job", said))
    for each in said:
        if each is not None and not is_priority(each):
            raise NotAllowed(_expected(_PRIORITIES, each))
    return said


def _expected(what: str, got: Any) -> str:
    return f"expected {what}, got {reprlib.repr(got)}"
