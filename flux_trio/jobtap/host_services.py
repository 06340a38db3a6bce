"""What the plugin host is given of the instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from flux_trio.messages import Errno, FluxError
from flux_trio.protocols import JobView


async def _no_rpc(topic: str, _payload: dict[str, Any] | None) -> dict[str, Any]:
    raise FluxError(Errno.ENOSYS, f"nobody answers {topic}")


class HostServices(msgspec.Struct, frozen=True):
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
