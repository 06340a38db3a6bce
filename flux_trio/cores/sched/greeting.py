"""RFC 27, Hello and Ready: learning what is allocated, and saying that requests may come.

ENOSYS comes from the broker while there is no job manager, so it is no answer to hello, neither to
the first one nor to a later one. Hello is said again once somebody holds the job manager's name
(readings: Job manager gone), which the event `service-back` tells.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from flux_trio.config import SchedConfig
from flux_trio.cores.lookups import LOOKUP_JOBS_MAX, values_in
from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.requests import HelloAnswer
from flux_trio.cores.turns import Note
from flux_trio.formats import job_key, parse_r
from flux_trio.messages import Errno, FluxError, Request, Response, expect_payload, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.policies import PoolError, Schedule
from flux_trio.protocols import AllocEvent, AllocState
from flux_trio.trace import Kind


class Greeting:
    """One hello, its lookups of R, and ready. A new one is made for each job manager."""

    def __init__(
        self,
        context: Context,
        schedule: Schedule,
        config: SchedConfig,
        on_ready: Callable[[], None],
    ) -> None:
        self._context = context
        self._schedule = schedule
        self._config = config
        self._on_ready = on_ready
        self._over = False  # the job manager is gone: answers mean nothing
        self.waits = False  # for somebody to hold the job manager's name
        self._told_all = False  # ENODATA has come
        self._told: list[int] = []  # jobs whose R is not asked for yet
        self._lookups = 0  # of R, not answered
        self._allocated: list[list[Any]] = []  # [id, R]

    def say_hello(self) -> None:
        """Ask for the jobs that hold resources."""
        self._context.ask(topics.SCHED_HELLO, None, self._hello, STREAMING)

    def abandon(self) -> None:
        """The job manager is gone."""
        self._over = True

    def _hello(self, response: Response) -> None:
        if self._over:
            return
        match response.errnum:
            case 0:
                self._job(response)
            case Errno.ENODATA:
                self._told_all = True
                if self._told:
                    self._look_up()
                self._ready_if_complete()
            case Errno.ENOSYS:
                self.waits = True
            case _:
                self._context.give_up(f"{response.topic}: {response.error_text}")

    def _job(self, response: Response) -> None:
        try:
            jobid = expect_payload(response, HelloAnswer).id
        except FluxError as error:
            self._context.give_up(error.text)
            return
        if self._context.stand(jobid) is AllocState.ALLOCATED:
            self._context.log_error(f"job {jobid}: told twice in answer to {response.topic}")
            return
        self._context.step(jobid, AllocEvent.HELLO)
        self._told.append(jobid)
        if len(self._told) == LOOKUP_JOBS_MAX:
            self._look_up()

    def _look_up(self) -> None:
        """Read R of the jobs told of since the last time."""
        jobids, self._told = self._told, []
        keys = [job_key(jobid, "R") for jobid in jobids]
        self._lookups += 1
        self._context.ask(topics.KVS_LOOKUP_ALL, {"keys": keys}, partial(self._found, jobids))

    def _found(self, jobids: list[int], response: Response) -> None:
        if self._over:
            return
        self._lookups -= 1
        try:
            for jobid, text in zip(jobids, values_in(response), strict=True):
                self._mark(jobid, text)
        except (FluxError, ValueError) as error:
            self._context.give_up(f"{response.topic}: {error}")
        else:
            self._ready_if_complete()

    def _mark(self, jobid: int, text: str | None) -> None:
        """The job holds the R of that text."""
        if text is None:
            self._refuse(jobid, "its R is not in the kvs")
            return
        try:
            self._schedule.mark(jobid, parse_r(text))
        except (PoolError, ValueError) as error:
            self._refuse(jobid, f"cannot hold its resources: {error}")
        else:
            self._allocated.append([jobid, msgspec.json.decode(text)])

    def _refuse(self, jobid: int, note: str) -> None:
        """A job whose resources cannot be marked must not go on using them."""
        self._context.log_error(f"job {jobid}: {note}")
        payload = {"id": jobid, "type": "scheduler-restart", "severity": 0, "note": note}
        self._context.do(Request(topics.JOB_RAISE, payload, flags=NORESPONSE))

    def _ready_if_complete(self) -> None:
        if not self._told_all or self._lookups:
            return
        payload: dict[str, Any] = {"mode": self._config.mode}
        if self._config.mode == "limited":
            payload["limit"] = self._config.limit
        self._context.ask(topics.SCHED_READY, payload, self._ready)

    def _ready(self, response: Response) -> None:
        if self._over or response.errnum == Errno.ENOSYS:
            return  # the job manager is gone; its disconnect says so too
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")
            return
        data = {"service": topics.SCHED, "allocated": self._allocated, "pending": 0}
        self._context.do(Note(Kind.STATE, data))
        self._allocated = []
        self._on_ready()
