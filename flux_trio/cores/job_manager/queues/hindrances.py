"""job-manager.hindrance: why jobs wait for a service, so that `queue status` shows it.

A service sends a reason when jobs begin to wait for it, and "" when they wait no longer. The reason
is forgotten when the service goes away; the service sends it again when the job manager is back.
The text is for users; no decision depends on it.

The kvs also sends how much of its disk is free.
"""

from __future__ import annotations

from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import rfc33
from flux_trio.messages import Request, respond, topics


class Hindrances(Part):
    """The reasons that services have sent."""

    reasons: dict[str, str]  # by the name of the service's peer
    disk_free: int | None  # bytes; None if the kvs has not said

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reasons = {}
        self.disk_free = None

    @property
    def texts(self) -> list[str]:
        """Return the reasons, each with the name of its service."""
        return [f"{sender}: {reason}" for sender, reason in self.reasons.items()]

    def excuse(self, sender: str) -> bool:
        """Return whether a reason explains the silence of `sender`; all services need the kvs."""
        return sender in self.reasons or topics.KVS in self.reasons

    def keep(self, request: Request) -> None:
        """Keep the sender's reason, in place of its last one."""
        hindrance = rfc33.HINDRANCE.read(request)
        reason = hindrance.reason
        if hindrance.disk_free is not None:
            self.disk_free = hindrance.disk_free
        if reason:
            self.reasons[request.sender] = reason
        else:
            self.reasons.pop(request.sender, None)
        self._ledger.answer_at_once(respond(request))

    def forget(self, sender: str) -> None:
        self.reasons.pop(sender, None)
