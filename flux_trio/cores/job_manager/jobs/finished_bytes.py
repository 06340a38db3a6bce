"""How many bytes the finished jobs of each guest have, so that they can be bounded.

The index of finished jobs has the bytes of each (`job_index`). It is read, page by page, when the
first job of a guest ends; an instance without guests never reads it. Jobs that end meanwhile are
counted at once, and left out of the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from flux_trio.cores.job_index import ENDED, ended_key, read_ended
from flux_trio.cores.job_manager.calls import BytesRead
from flux_trio.cores.job_manager.jobs.ledger import JOB_BYTES, Ledger
from flux_trio.cores.kvs_calls import page_in, read_page
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions.journal import Ended
from flux_trio.formats.meanings import JobId, KvsKey
from flux_trio.messages import FluxError, Level, Response

PAGE_JOBS: Final = 1000  # of the index: a few milliseconds


def bytes_of(job: Ended) -> int:
    """Return what is counted of a finished job; those of earlier versions do not say it."""
    return job.nbytes or JOB_BYTES


class FinishedBytes(Part):
    """The sum of each guest; `grown` is called with a guest whose sum has become larger."""

    totals: dict[int, int]  # by userid
    oldest: dict[int, KvsKey]  # by userid: no job of the guest is in the index up to this key
    has_begun: bool
    unread: KvsKey | None  # where the next page of the index begins; None when all is read
    since: set[JobId]  # jobs that have ended since the index is read

    def __init__(self, ledger: Ledger, grown: Callable[[int], None]) -> None:
        self._ledger = ledger
        self._grown = grown
        self._forget()
        ledger.on_ended.append(self._ended)

    def _forget(self) -> None:
        self.totals = {}
        self.oldest = {}
        self.has_begun = False
        self.unread = ""
        self.since = set()

    def _ended(self, job: Ended) -> None:
        if job.userid == self._ledger.owner:
            return
        if self.unread is not None:
            self.since.add(job.id)
        if not self.has_begun:
            self.has_begun = True
            self._read_on()
        self.totals[job.userid] = self.totals.get(job.userid, 0) + bytes_of(job)
        self._grown(job.userid)

    def purged(self, jobs: Iterable[Ended]) -> None:
        """Take off what was counted of jobs that are gone."""
        for job in jobs:
            if job.userid == self._ledger.owner or not self._is_counted(job):
                continue
            if not job.nbytes:  # it was purged by its id
                self._forget()  # and read again when the next job of a guest ends
                return
            left = self.totals.get(job.userid, 0) - bytes_of(job)
            if left > 0:
                self.totals[job.userid] = left
            else:
                self.totals.pop(job.userid, None)
                self.oldest.pop(job.userid, None)

    def _is_counted(self, job: Ended) -> bool:
        if self.unread is None or job.id in self.since:
            return True
        return self.has_begun and ended_key(job) <= self.unread

    def _read_on(self) -> None:
        assert self.unread is not None
        self._ledger.ask_kvs(read_page(ENDED, page_size(PAGE_JOBS), self.unread), BytesRead())

    def page_read(self, response: Response) -> None:
        """Count the jobs of a page, and read the next one."""
        if self.unread is None or not self.has_begun:
            return  # it was forgotten meanwhile
        try:
            page = page_in(response)
        except FluxError as error:
            text = f"the bytes of finished jobs cannot be counted: {error.text}"
            self._ledger.outbox.send(Log(Level.ERR, text))
            self._forget()
            return
        found = set()
        for key, value in page.items:
            job = read_ended(key, value)
            if job.userid != self._ledger.owner and job.id not in self.since:
                self.totals[job.userid] = self.totals.get(job.userid, 0) + bytes_of(job)
                found.add(job.userid)
        if page.is_last(page_size(PAGE_JOBS)):
            self.unread, self.since = None, set()
        else:
            self.unread = page.keys[-1]
            self._read_on()
        for userid in sorted(found):
            self._grown(userid)
