"""What the host is given, and what is said of one call of a plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from types import CoroutineType
from typing import Any, NamedTuple

import trio

from flux_trio.formats import format_fluid
from flux_trio.jobtap.catalogue import Hook
from flux_trio.jobtap.errors import Reject
from flux_trio.jobtap.loaded import Entry
from flux_trio.jobtap.plain import readable
from flux_trio.messages import Errno, FluxError
from flux_trio.protocols import JobView


async def _no_rpc(topic: str, _payload: dict[str, Any] | None) -> dict[str, Any]:
    raise FluxError(Errno.ENOSYS, f"nobody answers {topic}")


@dataclass(frozen=True)
class Given:
    """What the host is given of the instance.

    `tell` takes what the job machine is to be told; `note_all` puts records into the trace, and
    `is_traced` says whether somebody reads them; `now` is the instance's clock; `owner` is the
    instance owner's userid and `users` the user database.
    """

    tell: Callable[[Any], None]
    note_all: Callable[[str, Sequence[dict[str, Any]]], None]
    is_traced: Callable[[], bool]
    now: Callable[[], float]
    log: Callable[[int, str], None]
    rpc: Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]] = _no_rpc
    owner: int = 0
    users: Any = None


class NoJobs:
    """Where there is no job machine."""

    def get(self, _jobid: int) -> JobView | None:
        """None."""
        return None

    def active(self) -> Iterable[JobView]:
        """None at all."""
        return ()


class NoAnswer(Exception):
    """An async handler took too long."""


class Call(NamedTuple):
    """One call of a handler: how many operations there were before, and when it began."""

    entry: Entry
    mark: int
    began: float
    t_began: float

    @property
    def times(self) -> tuple[float, float]:
        """By the instance's clock, and by the real one."""
        return self.began, self.t_began


def note_of(
    entry: Entry, hook: str, jobid: int | None, result: Any, error: str | None, duration: float
) -> dict[str, Any]:
    """What the trace has of a call; `duration` in seconds."""
    return {
        "plugin": entry.plugin,
        "hook": hook,
        "id": jobid,
        "result": result,
        "error": error,
        "duration": duration,
    }


def is_awaitable(said: Any) -> bool:
    """Whether a handler is async: it has only begun."""
    return type(said) is CoroutineType or hasattr(type(said), "__await__")


def failure_in(raised: BaseException) -> BaseException:
    """What an async function of a plugin raised, without that it was cancelled besides.

    What was only cancelled, or interrupted, is raised again. A Cancelled that belongs to no scope
    around here, since somebody kept it, is a failure as any other.
    """
    failure = raised.split(trio.Cancelled)[1] if isinstance(raised, BaseExceptionGroup) else raised
    if failure is None or isinstance(failure, KeyboardInterrupt):
        raise raised
    if isinstance(failure, trio.Cancelled) and trio.current_effective_deadline() == -inf:
        raise raised
    return failure


def refusal_in(error: BaseException | None, hook: Hook) -> str | None:
    """The sentence of a Reject where it is an answer to `hook`; None for any other error."""
    reason = getattr(error, "reason", None) if isinstance(error, Reject) and hook.rejects else None
    return readable(reason) if isinstance(reason, str) and reason.strip() else None


def describe(error: BaseException) -> str:
    """One line about what a plugin raised."""
    try:
        text = str(error)
    except Exception as another:  # noqa: BLE001 - the plugin's own code
        text = f"(its text cannot be told: {type(another).__name__})"
    return text if isinstance(error, NoAnswer) else readable(f"{type(error).__name__}: {text}")


def blame(entry: Entry, hook: str, view: JobView | None, problem: str) -> str:
    """Plugin, hook, job, and what was wrong."""
    job = "" if view is None else f" for job {format_fluid(view.id, 'f58')}"
    return f"plugin {entry.owner.name} failed in {hook}{job}: {problem}"
