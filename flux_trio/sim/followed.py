"""One job of a simulated run, as the job manager's journal reports it. Pure."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.protocols import JobEvent
from flux_trio.sim.log_rows import WorkloadJob
from flux_trio.sim.metrics import JobFacts, Outcome

# The outcome of a job by the type of its fatal exception; any other type means FAILED.
_OUTCOMES: Final = {
    "timeout": Outcome.TIMEOUT,
    "cancel": Outcome.CANCELED,
    "alloc": Outcome.DENIED,  # RFC 27, Alloc Deny
}
_BANK_KEY: Final = "attributes.system.bank"

EVENTS: Final = (
    JobEvent.PRIORITY,
    JobEvent.START,
    JobEvent.FINISH,
    JobEvent.CLEAN,
    JobEvent.EXCEPTION,
    JobEvent.JOBSPEC_UPDATE,
)
"""The events that `FollowedJob.take` accepts; only these are requested from the journal."""


class FollowedJob:
    """The state of one job, folded from its journal events."""

    __slots__ = ("_exception", "_status", "bank", "priorities", "t_end", "t_start")

    def __init__(self) -> None:
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.bank: str | None = None  # the bank, if a plugin has set one
        self.priorities: list[tuple[float, int]] = []
        self._exception: dict[str, Any] | None = None  # the first fatal one
        self._status = 0

    def take(self, event: dict[str, Any]) -> None:
        """Fold in one of EVENTS, in the form of RFC 21."""
        match event["name"]:
            case JobEvent.PRIORITY:
                self.priorities.append((event["timestamp"], event["context"]["priority"]))
            case JobEvent.START:
                self.t_start = event["timestamp"]
            case JobEvent.FINISH:
                self._status = event["context"]["status"]
            case JobEvent.CLEAN:
                self.t_end = event["timestamp"]
            case JobEvent.EXCEPTION if self._exception is None:
                self._exception = event["context"] if event["context"]["severity"] == 0 else None
            case JobEvent.JOBSPEC_UPDATE:
                self.bank = event["context"].get(_BANK_KEY, self.bank)

    def facts(self, job: WorkloadJob, ncores: int) -> JobFacts:
        assert self.t_end is not None
        return JobFacts(
            job.name,
            job.submit_s,
            self.t_start,
            self.t_end,
            ncores,
            self._outcome(),
            self._exception.get("note", "") if self._exception else "",
            job.user,
            self.bank or job.bank,
            tuple(self.priorities),
        )

    def _outcome(self) -> Outcome:
        if self._exception is not None:
            return _OUTCOMES.get(self._exception["type"], Outcome.FAILED)
        return Outcome.FAILED if self._status else Outcome.COMPLETED
