"""What the host gets from the instance, and the record of one call of a plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import format_fluid
from flux_trio.jobtap.loaded import Entry
from flux_trio.jobtap.results import shown
from flux_trio.messages import Errno, FluxError
from flux_trio.protocols import JobView

CANCELED: Final = "canceled"
"""The error, in the trace, of a call whose answer is no longer awaited; it is not a failure."""


async def _no_rpc(topic: str, _payload: dict[str, Any] | None) -> dict[str, Any]:
    raise FluxError(Errno.ENOSYS, f"nobody answers {topic}")


class Given(msgspec.Struct, frozen=True):
    """The parts of the instance that the host uses.

    `post` sends an input to the job manager; `note_all` puts records into the trace, and
    `is_traced` says whether somebody reads them; `now` is the instance's clock; `owner` is the
    instance owner's userid and `users` the user database. `abandon` is told the names of the tasks
    that went on when the host ended.
    """

    post: Callable[[Any], None]
    note_all: Callable[[str, Sequence[dict[str, Any]]], None]
    is_traced: Callable[[], bool]
    now: Callable[[], float]
    log: Callable[[int, str], None]
    rpc: Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]] = _no_rpc
    owner: int = 0
    users: Any = None
    abandon: Callable[[list[str]], None] = lambda _names: None


class NoJobs:
    """The `Jobs` of a host without a job manager: there are no jobs."""

    def get(self, _jobid: int) -> JobView | None:
        """Return None."""
        return None

    def active(self) -> Iterable[JobView]:
        """Return no job."""
        return ()


class Call(NamedTuple):
    """One call of a handler: how many operations there were before it, and when it began."""

    entry: Entry
    mark: int
    began: float
    t_began: float

    @property
    def times(self) -> tuple[float, float]:
        """When the call began, by the instance's clock and by the real clock."""
        return self.began, self.t_began


def note_of(
    plugin: str, hook: str, jobid: int | None, result: Any, error: str | None, duration: float
) -> dict[str, Any]:
    """Return the trace record of a call; `duration` is in seconds."""
    return {
        "plugin": plugin,
        "hook": hook,
        "id": jobid,
        "result": result,
        "error": error,
        "duration": duration,
    }


def notes_of_many(
    entry: Entry, hook: str, views: Sequence[JobView], said: Sequence[Any], duration: float
) -> list[dict[str, Any]]:
    """Return the trace records of a call about many jobs; `duration` is for each of them."""
    common = note_of(entry.plugin, hook, None, None, None, duration)
    return [
        {**common, "id": view.id, "result": value if type(value) is int else shown(value)}
        for view, value in zip(views, said, strict=True)
    ]


def blame(entry: Entry, hook: str, view: JobView | None, problem: str) -> str:
    """Return a text that names plugin, hook, job and problem."""
    return f"plugin {entry.owner.name} failed in {hook}{of_job(view)}: {problem}"


def of_job(view: JobView | None) -> str:
    """Return a text that names the job behind what is done for it, if there is one."""
    return "" if view is None else f" for job {format_fluid(view.id, 'f58')}"
