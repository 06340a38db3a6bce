"""Resource limits that the shell host sets for a child.

The values are checked with the jobspec, elsewhere: the host does not import that, because it must
start fast.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

UNLIMITED: Final = resource.RLIM_INFINITY  # -1, as in jobspecs


def limiting(wanted: Mapping[str, int]) -> Callable[[], None] | None:
    """Return a function that sets the limits in a child before exec; None if there is no change.

    A soft limit above the hard limit becomes the hard limit, as in flux-core's shell. Without such
    a function the child is created by vfork, which is much faster than fork.
    """
    changes: list[tuple[int, tuple[int, int]]] = []
    for name, value in wanted.items():
        number = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if number is None:  # this system does not have it
            continue
        soft, hard = resource.getrlimit(number)
        if hard != UNLIMITED and (value == UNLIMITED or value > hard):
            value = hard
        if value != soft:
            changes.append((number, (value, hard)))
    return partial(_limit, changes) if changes else None


def _limit(changes: list[tuple[int, tuple[int, int]]]) -> None:
    for number, limits in changes:
        with suppress(ValueError, OSError):  # a limit that cannot be set does not fail the job
            resource.setrlimit(number, limits)
