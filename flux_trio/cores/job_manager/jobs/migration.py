"""The index of jobs is made from all eventlogs, once, for a state directory without an index.

Versions before the index (`cores/job_index.py`) stored jobs only. The eventlogs are folded page by
page; a commit stores the part of the index for a page. A mark is in the kvs from the first commit
to the last: after a crash in between, the next start begins again, and stores the same entries
again.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_index import ended_ops, submit_op
from flux_trio.cores.job_manager.calls import (
    MigrationJobs,
    MigrationPage,
    MigrationStep,
    MigrationStored,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob, ended
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.lost_found import LostAndFound
from flux_trio.cores.job_manager.requests.submission import redacted_bytes
from flux_trio.cores.kvs_calls import check, commit_ops, page_in, read_page, values_in
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import fold_eventlog, look_up_jobs, values_by_job
from flux_trio.formats import EVENTLOG, job_key, parse_fluid
from flux_trio.messages import FluxError, Response
from flux_trio.protocols import Job

MIGRATION_KEY: Final = "job-manager.migration"
PAGE_KEYS: Final = 4000  # each job has one eventlog and at least one key more
_NAMES: Final = (EVENTLOG, "jobspec")
_EVENTLOG: Final = f".{EVENTLOG}"
_KEY_PERIODS: Final = 5  # in job.<dothex>.eventlog; keys of guests have more


class Migration(Part):
    """Makes the index; `done` is set when it is durable."""

    done: bool

    def __init__(self, ledger: Ledger, lost_found: LostAndFound) -> None:
        self._ledger = ledger
        self._lost_found = lost_found
        self.done = False

    def start(self) -> None:
        """Store the mark, then begin with the first page."""
        self._commit([["put", MIGRATION_KEY, "1"]], "")

    def take(self, step: MigrationStep, response: Response) -> None:
        """Take the answer of one step; go on with the next. Raises FluxError."""
        match step:
            case MigrationStored(after):
                check(response)
                self._go_on(after)
            case MigrationPage():
                self._take_page(page_in(response).keys)
            case MigrationJobs():
                self._take_jobs(step, values_in(response))

    def _go_on(self, after: str | None) -> None:
        if after is None:
            self.done = True
            return
        self._ledger.ask(*read_page("job", PAGE_KEYS, after, values=False), MigrationPage())

    def _take_page(self, keys: list[str]) -> None:
        after = keys[-1] if len(keys) == PAGE_KEYS else None
        logs = [key for key in keys if key.endswith(_EVENTLOG) and key.count(".") == _KEY_PERIODS]
        jobids = tuple(parse_fluid(key.removesuffix(_EVENTLOG)) for key in logs)
        self._ledger.ask(*look_up_jobs(jobids, _NAMES), MigrationJobs(jobids, after))

    def _take_jobs(self, step: MigrationJobs, values: list[str | None]) -> None:
        over, ops = [], []
        for jobid, (eventlog, jobspec) in values_by_job(step.jobids, values, len(_NAMES)):
            try:
                job, events = fold_eventlog(Job, jobid, eventlog or "")
                if job.is_active:
                    ops.append(submit_op(jobid))
                else:
                    kept = self._ledger.jobspecs.keep(
                        job.userid, redacted_bytes((jobspec or "{}").encode())
                    )
                    over.append(ended(ActiveJob(job, kept), events[-1].timestamp))
            except FluxError as error:
                self._lost_found.begin(jobid, job_key(jobid, EVENTLOG), error.text)
        ops = ended_ops(over, are_new=False) + ops  # a migration may begin anew
        if step.after is None:
            ops.append(["unlink", MIGRATION_KEY])
        self._commit(ops, step.after)

    def _commit(self, ops: list[list[str]], after: str | None) -> None:
        self._ledger.ask(*commit_ops(ops), MigrationStored(after))
