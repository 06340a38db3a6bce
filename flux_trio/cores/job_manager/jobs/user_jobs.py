"""Counts of the active jobs of each user, and of their bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from flux_trio.cores.job_manager.jobs.jobspecs import KeptJobspec
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId

EVENT_OVERHEAD_BYTES: Final = 80  # of a line of the eventlog without its context


def event_bytes(context: dict[str, Any] | None) -> int:
    """Return about how many bytes an event adds to an eventlog."""
    return EVENT_OVERHEAD_BYTES + len(msgspec.json.encode(context or {}))


class UserJobs(Part):
    """Counts the jobs of all users but the instance owner, who has no limit."""

    sizes: dict[int, dict[JobId, int]]  # userid → job id → bytes of its jobspec
    totals: dict[int, int]  # userid → the sum of these bytes

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self.sizes = {}
        self.totals = {}

    def of(self, userid: int) -> tuple[int, int]:
        """Return the number of active jobs of a user, and the bytes of their jobspecs."""
        return len(self.sizes.get(userid, ())), self.totals.get(userid, 0)

    def jobids(self, userid: int) -> Collection[int]:
        return self.sizes.get(userid, {}).keys()

    def came(self, userid: int, jobid: int, jobspec: KeptJobspec) -> None:
        """Count a job that is active now."""
        if userid != self._owner:
            size = len(jobspec.text)
            self.sizes.setdefault(userid, {})[jobid] = size
            self.totals[userid] = self.totals.get(userid, 0) + size

    def went(self, userid: int, jobid: int) -> None:
        """Stop counting a job that is inactive now."""
        if userid != self._owner:
            sizes = self.sizes[userid]
            self.totals[userid] -= sizes.pop(jobid)
            if not sizes:
                del self.sizes[userid], self.totals[userid]


class JobBytes(Part):
    """Bytes that few active jobs have, and their sum for each user."""

    sizes: dict[JobId, int]
    totals: dict[int, int]  # by userid

    def __init__(self) -> None:
        self.sizes = {}
        self.totals = {}

    def of_job(self, jobid: int) -> int:
        """Return the bytes of a job."""
        return self.sizes.get(jobid, 0)

    def of_user(self, userid: int) -> int:
        """Return the bytes of all active jobs of a user."""
        return self.totals.get(userid, 0)

    def put(self, userid: int, jobid: int, size: int) -> None:
        """Set the bytes of a job; 0 also for a job that is no longer active."""
        before = self.sizes.pop(jobid, 0)
        if size:
            self.sizes[jobid] = size
        total = self.totals.pop(userid, 0) - before + size
        if total:
            self.totals[userid] = total
