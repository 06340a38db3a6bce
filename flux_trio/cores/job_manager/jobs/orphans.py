"""Prologs and epilogs that were open when the job manager stopped.

The eventlog does not tell which plugin has started them. A plugin that continues a prolog or epilog
starts it again in job.create, job.new or the hook of the job's state; this logs no event. In
flux-core, a prolog or epilog that no plugin starts again holds its job for ever. Here the job
manager finishes it with a nonzero status. Since it is unknown how far a prolog came, its job gets a
fatal exception; for an epilog the exception is a note (severity 1).
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import rfc21
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import JobEvent

LOST_STATUS: Final = 1 << 8
"""The wait status of a prolog or epilog that no plugin starts again: exit code 1."""

_KINDS = {"prolog": JobEvent.PROLOG_FINISH, "epilog": JobEvent.EPILOG_FINISH}
_SEVERITIES = {"prolog": 0, "epilog": 1}


class Orphans(Part):
    """Open prologs and epilogs of jobs whose hooks have not answered yet."""

    open: dict[JobId, set[tuple[str, str]]]  # kind and description, by job id

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.open = {}

    def note(self, job: ActiveJob) -> None:
        """Note the open prologs and epilogs of a job that was read back, before plugins see it."""
        found = {("prolog", each) for each in job.prologs or ()}
        found |= {("epilog", each) for each in job.epilogs or ()}
        if found:
            self.open[job.id] = found

    def claimed(self, job: ActiveJob, event: str, description: str) -> None:
        """Note that a plugin has started a prolog or epilog again, so that it is not an orphan."""
        kind = event.partition("-")[0]
        self.open.get(job.id, set()).discard((kind, description))

    def finish(self, job: ActiveJob) -> None:
        """Finish what no plugin has started again; every plugin has seen the job."""
        for kind, description in sorted(self.open.pop(job.id, ())):
            context = rfc21.write(rfc21.Completed(description, LOST_STATUS))
            self._ledger.log(job, _KINDS[kind], context)
            note = f"{kind} {description} was under way at a restart, and no plugin goes on with it"
            severity = 1 if job.exception is not None else _SEVERITIES[kind]
            self._ledger.raise_exception(job, kind, severity, note)
