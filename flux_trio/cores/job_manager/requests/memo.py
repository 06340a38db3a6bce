"""job-manager.memo: a user's notes on a job, key by key (RFC 21, Memo Event).

Left out: volatile memos, which flux-core keeps out of the eventlog.
"""

from __future__ import annotations

from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.user_jobs import event_bytes
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.messages import Request, respond
from flux_trio.protocols import JobEvent


class Memos(Part):
    """Answers job-manager.memo."""

    def __init__(self, ledger: Ledger, limits: UserLimits) -> None:
        self._ledger = ledger
        self._limits = limits

    def memo(self, request: Request) -> None:
        """Log the memo of an active job, by its user or the owner."""
        payload = job_requests.MEMO.read(request)
        denied = "guests can only add a memo to their own jobs"
        job = self._ledger.asked_about(request, payload.id, denied)
        if job is None:
            return
        self._ledger.check_room()
        size = self._limits.check_memo(job, payload.memo)
        self._limits.check_event(request, job, event_bytes(payload.memo))
        self._ledger.memo_bytes.put(job.userid, job.id, size)
        self._ledger.log(job, JobEvent.MEMO, payload.memo)
        self._ledger.send(respond(request))
