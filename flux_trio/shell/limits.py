"""Limits of processes, as the shell host gives them to a child.

What they may be is `limits`'s; it is left out here, with all of jobspecs, so that the host is up
at once.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

UNLIMITED: Final = resource.RLIM_INFINITY  # -1, as in jobspecs


def limiting(wanted: Mapping[str, int]) -> Callable[[], None] | None:
    """What a child has to do before it is the task; None if it has these limits anyway.

    A soft limit above the hard one becomes that, as in flux-core's shell. With nothing to be done
    there is a vfork, which is much faster than a fork.
    """
    changes: list[tuple[int, tuple[int, int]]] = []
    for name, value in wanted.items():
        number = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if number is None:  # this system has none
            continue
        soft, hard = resource.getrlimit(number)
        if hard != UNLIMITED and (value == UNLIMITED or value > hard):
            value = hard
        if value != soft:
            changes.append((number, (value, hard)))
    return partial(_limit, changes) if changes else None


def _limit(changes: list[tuple[int, tuple[int, int]]]) -> None:
    for number, limits in changes:
        with suppress(ValueError, OSError):  # it is the task's, not worth the job
            resource.setrlimit(number, limits)
