"""A client of an instance: a connection that submits jobs, follows them and lists them.

It knows ingest by name, because most clients submit many jobs at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from flux_trio.client.connection import Connection
from flux_trio.client.jobs import Job, list_jobs
from flux_trio.client.link import Link
from flux_trio.client.responses import Answer
from flux_trio.client.websocket import open_websocket
from flux_trio.formats import Jobspec, parse_fluid
from flux_trio.messages import USERID_UNKNOWN, FluxError, topics
from flux_trio.process.groups import error_of_block

CLOSE_S_MAX: Final = 2.0  # to send queued messages and the close frame; then the socket is cut
PIPELINE_MAX: Final = 1024  # submissions without an answer yet: enough to keep the line full


@asynccontextmanager
async def open_client(uri: str, token: str = "") -> AsyncIterator[Client]:
    """Yield a client of the instance at `uri`; it is connected during the block.

    At unix://PATH the kernel tells the server the user of this process; at ws://HOST:PORT `token`
    identifies the user. Raises NoInstance and AccessDenied; errors of the block pass unchanged.
    """
    socket = await open_websocket(uri, token)
    link = Link(socket, uri)
    try:
        with error_of_block():
            async with anyio.create_task_group() as tasks:  # owns the link's reader and writer
                tasks.start_soon(link.read)
                tasks.start_soon(link.write)
                try:
                    yield Client(link)
                finally:
                    with anyio.move_on_after(CLOSE_S_MAX, shield=True):
                        await link.close()
                    tasks.cancel_scope.cancel()
    finally:
        await socket.aclose()


class Client(Connection):
    """One connection to an instance; any number of tasks may use it."""

    _first_flag: int | None = None  # of the instance's edition, once it was asked for

    async def submit(
        self, jobspec: Jobspec | dict[str, Any], urgency: int = 16, flags: int = 0
    ) -> Job:
        """Submit a jobspec, also as the object of RFC 25; return the job when it is durable.

        `flags` is a mask of `JobFlag`.
        """
        spec = jobspec.to_json() if isinstance(jobspec, Jobspec) else jobspec
        flags = await self._numbers_of(flags)
        payload = {"jobspec": spec, "urgency": urgency, "flags": flags}
        answer = self._link.open_call(topics.INGEST_SUBMIT, payload)
        return self.job(_job_id(await self._wait_for_answer(answer)))

    async def _numbers_of(self, flags: int) -> int:
        """Return `flags`, a mask of `JobFlag`, in the numbers of the instance's edition."""
        if not flags:
            return 0
        if self._first_flag is None:
            from flux_trio.editions import CLASSIC, EDITIONS

            info = await self.call(topics.BROKER_INFO)
            edition = info.get("edition", CLASSIC.name)  # older instances do not say it
            self._first_flag = EDITIONS[edition].first_flag
        return flags * self._first_flag

    def job(self, jobid: int | str) -> Job:
        """Return a job by its id, in any form of RFC 19. FormatError for a text that is no id."""
        return Job(self, parse_fluid(jobid) if isinstance(jobid, str) else jobid)

    async def jobs(
        self,
        *,
        states: int | None = None,
        results: int = 0,
        userid: int = USERID_UNKNOWN,
        queues: Iterable[str] = (),
        name: str = "",
        since: float = 0.0,
        limit: int = 0,
    ) -> list[dict[str, Any]]:
        """Return what job-list knows of the jobs in one of `states`, a mask of `JobState`.

        By default these are the active ones. With `results`, a mask of `JobResult`, only those are
        returned that ended so. The jobs are those of all users and queues, unless `userid` or
        `queues` select some. Inactive jobs are left out if they ended before `since`, seconds since
        the Unix epoch. At most `limit` are returned; 0 is all. Raises FluxError.
        """
        from flux_trio.protocols import ACTIVE

        wanted = {
            "max_entries": limit,
            "states": int(ACTIVE if states is None else states),
            "results": int(results),
            "userid": userid,
            "name": name,
            "queues": list(queues),
            "since": since,
        }
        return await list_jobs(self, wanted, limit)

    async def submit_many(
        self, jobspecs: Iterable[dict[str, Any]], urgency: int = 16, flags: int = 0
    ) -> list[int | FluxError]:
        """Submit many jobs, PIPELINE_MAX at a time; return an id or an error for each."""
        results: list[int | FluxError] = []
        waiting: deque[Answer] = deque()
        flags = await self._numbers_of(flags)
        try:
            for jobspec in jobspecs:
                if len(waiting) >= PIPELINE_MAX:
                    results.append(await self._wait_for_submission(waiting.popleft()))
                payload = {"jobspec": jobspec, "urgency": urgency, "flags": flags}
                waiting.append(self._link.open_call(topics.INGEST_SUBMIT, payload))
            while waiting:
                results.append(await self._wait_for_submission(waiting.popleft()))
        finally:
            for answer in waiting:
                self._link.close_call(answer)
        return results

    async def _wait_for_submission(self, answer: Answer) -> int | FluxError:
        try:
            return _job_id(await self._wait_for_answer(answer))
        except FluxError as error:
            return error


def _job_id(payload: dict[str, Any]) -> int:
    jobid: int = payload["id"]
    return jobid
