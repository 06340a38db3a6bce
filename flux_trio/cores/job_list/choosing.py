"""The candidates of a list: active jobs in order, then finished jobs, the newest first. Pure."""

from __future__ import annotations

from array import array
from typing import Final

from flux_trio.cores.job_index import ended_at
from flux_trio.cores.job_list.exchange import Listed
from flux_trio.cores.job_list.finished import Finished
from flux_trio.cores.job_list.one_list import Listing
from flux_trio.cores.job_list.records import Records
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.streams import StreamKey
from flux_trio.messages import USERID_UNKNOWN
from flux_trio.protocols import JobState

SLICE_JOBS: Final = 64  # twice as many lookups at most; made in 2 ms
LOOKS_MAX: Final = 4096  # at jobs a turn, for a slice: about 2 ms


class Chooser(Part):
    """Chooses candidates; a job that ends while a list is made is not listed twice."""

    _begun: dict[StreamKey, Listing]

    def __init__(self, records: Records, finished: Finished) -> None:
        self._records = records
        self._finished = finished
        # Begun lists that show finished jobs: those of each user that take turns, and with credit.
        self._begun = {}

    def ended(self, jobid: int) -> None:
        """Note a job that is over, so that no list has it twice."""
        for listing in self._begun.values():
            listing.arrived.add(jobid)

    def forget(self, listing: Listing) -> None:
        """Forget a list that is closed."""
        self._begun.pop(listing.stream, None)

    def choose(self, listing: Listing) -> tuple[list[Listed], bool]:
        """Return the next candidates, and False if further finished jobs are not known yet."""
        if listing.active is None:
            listing.active = array("Q", self._records.in_order(listing.states))
            if listing.states & JobState.INACTIVE:
                self._begun[listing.stream] = listing
        wanted, looks_max = page_size(SLICE_JOBS), page_size(LOOKS_MAX)
        if listing.rows_left is not None:
            wanted = min(wanted, listing.rows_left)
        found: list[Listed] = []
        looks = self._choose_active(listing, found, wanted)
        if len(found) == wanted or looks == looks_max:
            return found, True
        if not listing.states & JobState.INACTIVE:
            listing.is_over = True
            return found, True
        return found, self._choose_finished(listing, found, wanted, looks_max - looks)

    def _choose_active(self, listing: Listing, found: list[Listed], wanted: int) -> int:
        """Add candidates to `found`; return how many jobs were looked at."""
        assert listing.active is not None
        states, userid = listing.states, listing.wanted.userid
        end = min(len(listing.active), listing.at + page_size(LOOKS_MAX))
        begun = listing.at
        while listing.at < end and len(found) < wanted:
            jobid = listing.active[listing.at]
            listing.at += 1
            record = self._records.jobs.get(jobid)
            if record is None:
                listing.arrived.discard(jobid)  # it is over: it is listed with the finished jobs
            elif record.state & states and userid in (USERID_UNKNOWN, record.userid):
                found.append(record)
        return listing.at - begun

    def _choose_finished(
        self, listing: Listing, found: list[Listed], wanted: int, looks: int
    ) -> bool:
        """Add candidates to `found`; return False if further jobs are not known yet."""
        since = ended_at(listing.wanted.since)
        while looks:
            asked = min(looks, wanted)  # mostly all of them are found
            jobs, are_all = self._finished.before(listing.place, asked)
            for job in jobs:
                if job.usec <= since:
                    listing.is_over = True
                    return True
                listing.place = (job.usec, job.id)
                is_elsewhere = job.id in listing.arrived or job.id in self._records.jobs
                if not is_elsewhere and listing.may_want(job):
                    found.append(job)
                    if len(found) == wanted:
                        return True
            looks -= len(jobs)
            if are_all or len(jobs) < asked:
                listing.is_over = are_all
                return are_all
        return True
