"""Prologs and epilogs that an earlier life of the job manager left open.

No eventlog says whose they are. A plugin that goes on with one says so by starting it again in
job.create, job.new or the hook of the job's state, which logs nothing. One that no plugin takes up
would hold its job for ever, as it does in flux-core; here it is finished with a nonzero status, and
since nobody knows how far a prolog came, its job gets a fatal exception; for an epilog the
exception is a note (severity 1).
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
"""The wait status of one that nobody goes on with: exit code 1."""

_KINDS = {"prolog": JobEvent.PROLOG_FINISH, "epilog": JobEvent.EPILOG_FINISH}
_SEVERITIES = {"prolog": 0, "epilog": 1}


class Orphans(Part):
    """By job, until its hooks have been asked."""

    open: dict[JobId, set[tuple[str, str]]]  # kind and description, by job id

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.open = {}

    def note(self, job: ActiveJob) -> None:
        """A job that was read back, before plugins see it."""
        found = {("prolog", each) for each in job.prologs or ()}
        found |= {("epilog", each) for each in job.epilogs or ()}
        if found:
            self.open[job.id] = found

    def claimed(self, job: ActiveJob, event: str, description: str) -> None:
        """A plugin has posted the start event of what is open."""
        kind = event.partition("-")[0]
        self.open.get(job.id, set()).discard((kind, description))

    def finish(self, job: ActiveJob) -> None:
        """The plugins have seen the job: what none of them took up is over."""
        for kind, description in sorted(self.open.pop(job.id, ())):
            context = rfc21.write(rfc21.Completed(description, LOST_STATUS))
            self._ledger.log(job, _KINDS[kind], context)
            note = f"{kind} {description} was under way at a restart, and no plugin goes on with it"
            severity = 1 if job.exception is not None else _SEVERITIES[kind]
            self._ledger.raise_exception(job, kind, severity, note)
