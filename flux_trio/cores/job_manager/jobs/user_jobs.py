"""How many active jobs each user has, and how many bytes they have together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from flux_trio.cores.job_manager.jobs.jobspecs import KeptJobspec
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId

EVENT_OVERHEAD_BYTES: Final = 80  # of a line of the eventlog beside its context: time, name, quotes


def event_bytes(context: dict[str, Any] | None) -> int:
    """About how long an event makes an eventlog."""
    return EVENT_OVERHEAD_BYTES + len(msgspec.json.encode(context or {}))


class UserJobs(Part):
    """Counts the jobs of everybody but the instance owner, who has no limit."""

    sizes: dict[int, dict[JobId, int]]  # userid → job id → bytes of its jobspec
    totals: dict[int, int]  # userid → the sum of those

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self.sizes = {}
        self.totals = {}

    def of(self, userid: int) -> tuple[int, int]:
        """The number of active jobs of a user, and the bytes of their jobspecs."""
        return len(self.sizes.get(userid, ())), self.totals.get(userid, 0)

    def jobids(self, userid: int) -> Collection[int]:
        return self.sizes.get(userid, {}).keys()

    def came(self, userid: int, jobid: int, jobspec: KeptJobspec) -> None:
        """A job is active."""
        if userid != self._owner:
            size = len(jobspec.text)
            self.sizes.setdefault(userid, {})[jobid] = size
            self.totals[userid] = self.totals.get(userid, 0) + size

    def went(self, userid: int, jobid: int) -> None:
        """It is active no more."""
        if userid != self._owner:
            sizes = self.sizes[userid]
            self.totals[userid] -= sizes.pop(jobid)
            if not sizes:
                del self.sizes[userid], self.totals[userid]


class JobBytes(Part):
    """Bytes of something that few active jobs have, and their sum for each user."""

    sizes: dict[JobId, int]
    totals: dict[int, int]  # by userid

    def __init__(self) -> None:
        self.sizes = {}
        self.totals = {}

    def of_job(self, jobid: int) -> int:
        """How many a job has."""
        return self.sizes.get(jobid, 0)

    def of_user(self, userid: int) -> int:
        """How many all active jobs of a user have."""
        return self.totals.get(userid, 0)

    def went(self, userid: int, jobid: int) -> None:
        """A job of the user is active no more."""
        if jobid in self.sizes:
            self.put(userid, jobid, 0)

    def put(self, userid: int, jobid: int, size: int) -> None:
        """A job of the user has so many now; 0 is none."""
        total = self.of_user(userid) - self.of_job(jobid) + size
        for sizes, key, number in ((self.sizes, jobid, size), (self.totals, userid, total)):
            if number:
                sizes[key] = number
            else:
                sizes.pop(key, None)
