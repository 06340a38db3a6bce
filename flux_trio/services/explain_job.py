"""`job-manager.explain`: why a job waits, as the job manager, plugins and the scheduler know it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import trio

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.editions import explain_requests
from flux_trio.jobtap import PluginHost
from flux_trio.messages import Errno, FluxError, Payload, Request, Response, topics

SCHEDULER_S: Final = 2.0
"""Seconds that the scheduler has for its answer. One in another language may ignore the request."""

AT_ONCE_MAX: Final = 8
"""Jobs that are explained at a time; further requests wait."""

AT_ONCE_OF_USER_MAX: Final = 4
"""Of these, and of those that are next: jobs that one user asks about."""

Rpc = Callable[[str, Payload], Awaitable[dict[str, Any]]]


class Explainer:
    """Asks the parties about a job; `rpc` sends a request as the job manager."""

    def __init__(self, core: JobManagerCore, host: PluginHost, rpc: Rpc) -> None:
        self._core = core
        self._host = host
        self._rpc = rpc
        self._turns = trio.CapacityLimiter(AT_ONCE_MAX)
        self._of_user: dict[int, trio.CapacityLimiter] = {}  # of users with open requests

    async def answer(self, request: Request) -> Payload:
        """Answer job-manager.explain. Raises FluxError."""
        jobid = explain_requests.EXPLAIN.read(request).id
        async with self._turn_of(request.userid):
            found = self._core.look(request, jobid)
            job = found.job.snapshot()
            said = await self._host.explain(job)
            reasons, place = found.reasons, None
            if found.is_requested:
                place, failure = await self._place(jobid)
                reasons += [failure] if failure else []
        if place is not None and not request.is_owner:
            place = self._for_guest(place, request.userid)
        explained = explain_requests.Explained(
            jobid, job.state.name, job.urgency, job.priority, said, reasons, place
        )
        return explain_requests.EXPLAINED.write(explained)

    @asynccontextmanager
    async def _turn_of(self, userid: int) -> AsyncIterator[None]:
        """Wait until one more of the user's requests may be worked on."""
        mine = self._of_user.setdefault(userid, trio.CapacityLimiter(AT_ONCE_OF_USER_MAX))
        try:
            async with mine, self._turns:
                yield
        finally:
            if not mine.borrowed_tokens and not mine.statistics().tasks_waiting:
                self._of_user.pop(userid, None)

    async def _place(self, jobid: int) -> tuple[explain_requests.Place | None, str]:
        """Return the scheduler's answer, and ""; without an answer None, and the reason."""
        problem = f"no answer in {SCHEDULER_S:g} s"
        with trio.move_on_after(SCHEDULER_S):
            try:
                asked = explain_requests.EXPLAIN.write(explain_requests.Explain(jobid))
                said = await self._rpc(topics.SCHED_EXPLAIN, asked)
                return explain_requests.PLACE.read(Response(topics.SCHED_EXPLAIN, said)), ""
            except FluxError as error:
                problem = "it has no method explain" if error.errnum == Errno.ENOSYS else error.text
        return None, f"the scheduler has its request, and cannot say why it waits: {problem}"

    def _for_guest(self, place: explain_requests.Place, userid: int) -> explain_requests.Place:
        """Leave out the jobs of other users."""
        return msgspec.structs.replace(
            place,
            ahead=[jobid for jobid in place.ahead if self._core.is_of(jobid, userid)],
            holders=[each for each in place.holders if self._core.is_of(each.id, userid)],
        )
