"""Damaged jobs are set aside: `job.<id>` becomes `job-lost+found.<id>`, as in flux-core.

A job is set aside if a value of a finished job, or its index entry, is damaged (an event of the kvs
tells of it), or if its eventlog is invalid. Its values, and the readable parts of damaged values,
are copied, some at a time. Then one commit adds the `reason`, and removes the job's directory and
its index entry. After a crash in between, the job is at its old place until the damage is found
again. An active job whose values are damaged is not set aside, since its user waits for it.
"""

from __future__ import annotations

import re
from typing import Final

from flux_trio.cores.job_index import ENDED, active_key, jobid_in
from flux_trio.cores.job_manager.calls import (
    Aside,
    AsideStep,
    RowsRead,
    SetAside,
    ValuesCopied,
    ValuesRead,
)
from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY, Ledger
from flux_trio.cores.kvs_calls import check, commit_ops, page_in, read_page
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import journal, kvs
from flux_trio.formats import LOST_AND_FOUND, job_directory_of, parse_fluid
from flux_trio.formats.meanings import JobId
from flux_trio.messages import ROLE_OWNER, Event, FluxError, Level, Response, topics
from flux_trio.messages.types import PRIVATE

PAGE_VALUES: Final = 16  # copied at a time; a piece of output has 256 KiB
PAGE_ROWS: Final = 10_000  # index entries that are searched at a time

_ENDED_KEY: Final = re.compile(rf"{ENDED}\.[0-9a-f]{{16}}\.[0-9a-f]{{16}}")


class LostAndFound(Part):
    """Sets jobs aside, each in several steps."""

    jobs: set[JobId]  # jobs that are being set aside

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.jobs = set()

    def event(self, event: Event) -> None:
        """Take kvs-damaged: set a finished job aside. The same event of a guest is ignored."""
        if not event.rolemask & ROLE_OWNER:
            return
        found = kvs.DAMAGE.read(event)
        jobid = _job_of(found.key)
        if jobid is not None and jobid not in self._ledger.jobs:
            self.begin(jobid, found.key, found.text)

    def begin(self, jobid: int, key: str, reason: str) -> None:
        """Set the job aside for the value of `key`; `reason` names the key too."""
        if jobid not in self.jobs:
            self.jobs.add(jobid)
            self._read_values(Aside(jobid, key, reason), "")

    def step_answered(self, step: AsideStep, response: Response) -> None:
        """Take the answer of one step; go on with the next."""
        job = step.job
        try:
            match step:
                case ValuesRead():
                    self._copy(job, page_in(response))
                case ValuesCopied(after=str(after)):
                    check(response)
                    self._read_values(job, after)
                case ValuesCopied():
                    check(response)
                    self._read_rows(job, "")
                case RowsRead():
                    self._find_row(job, page_in(response))
                case SetAside():
                    check(response)
                    self._announce(step)
        except FluxError as error:
            self.jobs.discard(job.jobid)
            text = f"{job.directory}: cannot be moved to {LOST_AND_FOUND}: {error.text}"
            self._ledger.outbox.send(Log(Level.ERR, text))

    def _read_values(self, job: Aside, after: str) -> None:
        self._ledger.ask_kvs(
            read_page(job.directory, page_size(PAGE_VALUES), after), ValuesRead(job)
        )

    def _copy(self, job: Aside, page: kvs.KeysPage) -> None:
        values = {key: value for key, value in page.items if value is not None}
        remains = {key: text for key, (_, text) in (page.damaged or {}).items()}
        if job.key in values:
            remains[job.key] = values.pop(job.key)
        ops = [["put", job.new_key(key), text] for key, text in values.items()]
        ops += [["put", job.bad_key(key), text] for key, text in remains.items()]
        after = None if page.is_last(page_size(PAGE_VALUES)) else page.keys[-1]
        self._ledger.ask_kvs(commit_ops(ops), ValuesCopied(job, after))

    def _read_rows(self, job: Aside, after: str) -> None:
        self._ledger.ask_kvs(
            read_page(ENDED, page_size(PAGE_ROWS), after, values=False), RowsRead(job)
        )

    def _find_row(self, job: Aside, page: kvs.KeysPage) -> None:
        row = next((key for key in page.keys if _job_of(key) == job.jobid), None)
        if row is None and not page.is_last(page_size(PAGE_ROWS)):
            self._read_rows(job, page.keys[-1])
            return
        ops = [
            ["put", job.new_key(f"{job.directory}.reason"), job.reason],
            ["put", MAX_JOBID_KEY, str(self._ledger.max_jobid)],  # no id is used again
            ["unlink", active_key(job.jobid)],
            ["unlink", job.directory],
        ]
        if row is not None:
            ops.append(["unlink", row])
        usec = None if row is None else int(row.split(".")[1], 16)
        self._ledger.ask_kvs(commit_ops(ops), SetAside(job, usec))

    def _announce(self, done: SetAside) -> None:
        job = done.job
        self.jobs.discard(job.jobid)
        self._ledger.forget_inactive(job.jobid)
        if done.usec is not None:
            self._ledger.ninactive -= 1
            payload = journal.PURGED.write(journal.Purged([job.jobid], [done.usec]))
            self._ledger.send(Event(topics.JOB_PURGE_EVENT, payload, flags=PRIVATE))
        text = f"{job.directory}: moved to {LOST_AND_FOUND}: {job.reason}"
        self._ledger.outbox.send(Log(Level.CRIT, text))


def _job_of(key: str) -> int | None:
    """Return the job whose value or index entry has this key."""
    directory = job_directory_of(key)
    if directory is not None:
        return parse_fluid(directory)
    return jobid_in(key) if _ENDED_KEY.fullmatch(key) else None
