"""An act: one thing that happens to the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from flux_trio.lab.exercise.stage import Stage

Play: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens to the program: a title, and the function that does it.

    The function raises Stuck or FluxError. When it has returned, every job must come to its end.
    """

    title: str
    play: Play


async def many(stage: Stage, count: int, **shape: Any) -> list[int]:
    """Submit `count` jobs of the same `shape`, as in `Stage.submit`, and return their ids."""
    return [await stage.submit(**shape) for _ in range(count)]


async def all_have(stage: Stage, jobids: Iterable[int], event: str) -> None:
    """Wait until each job has the event."""
    for jobid in jobids:
        await stage.event(jobid, event)
