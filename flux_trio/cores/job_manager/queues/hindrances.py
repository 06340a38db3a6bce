"""job-manager.hindrance: why a service cannot do its part for now, so that `queue status` says it.

A service says {"reason": TEXT} when jobs begin to wait for it, and "" when they no longer do. The
reason is forgotten when the service goes away, and the service says it again when the job manager
is back. The text is for people; no decision depends on it.
"""

from __future__ import annotations

from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import rfc33
from flux_trio.messages import Request, respond, topics


class Hindrances(Part):
    """What services have said."""

    reasons: dict[str, str]  # by the name of the service's peer

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reasons = {}

    @property
    def texts(self) -> list[str]:
        """The reasons that hold, each with who gave it."""
        return [f"{sender}: {reason}" for sender, reason in self.reasons.items()]

    def excuse(self, sender: str) -> bool:
        """Whether it is said why that service does not answer; without the kvs none of them can."""
        return sender in self.reasons or topics.KVS in self.reasons

    def tell(self, request: Request) -> None:
        """Keep what the sender says, in place of what it said before."""
        reason = rfc33.HINDRANCE.read(request).reason
        if reason:
            self.reasons[request.sender] = reason
        else:
            self.reasons.pop(request.sender, None)
        self._ledger.answer_at_once(respond(request))

    def forget(self, sender: str) -> None:
        """A peer is gone."""
        self.reasons.pop(sender, None)
