"""Purging: finished jobs are removed for good, the oldest first, or one job by its id.

`job-manager.purge` and `job-manager.purge-id` are flux-core's, and so are `[job-manager]
inactive-age-limit` and `inactive-num-limit`, by which jobs are purged every PURGE_S seconds. One
commit removes everything of a job: its directory with its output, and its index entry. The same
commit stores the greatest job id, so that no id is used again. When it is durable, the event
`job-purge-inactive` tells of it.

A commit removes at most one job with long output, since others wait for the commit: a gigabyte
takes seconds. Purges take turns, a page or a commit each: no job is counted twice, and a long purge
does not delay the others. As many wait as their senders may have open. A purge by the configuration
uses the present limits at every page: when they are lifted, it ends.

Jobs of a guest are also purged by their bytes (`finished_bytes.py`): such a purge goes through the
index from the oldest job on, and begins where the last one of the same guest has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flux_trio.config import JobManagerConfig
from flux_trio.cores.job_index import ENDED, UNKNOWN, ended_at, ended_key, purge_ops, read_ended
from flux_trio.cores.job_manager.calls import (
    Named,
    NamedRead,
    NamedStored,
    PurgeStep,
    Run,
    RunRead,
    RunSized,
    RunStored,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.finished_bytes import FinishedBytes, bytes_of
from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY, Ledger
from flux_trio.cores.kvs_calls import (
    check,
    commit_ops,
    look_up,
    look_up_all,
    page_in,
    read_page,
    value_in,
    values_in,
)
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import fold_eventlog, output_key
from flux_trio.cores.turns import Log
from flux_trio.editions import job_requests, journal
from flux_trio.editions.job_requests import UNLIMITED
from flux_trio.editions.journal import Ended
from flux_trio.formats import EVENTLOG, job_key, parse_duration
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    topics,
    unanswered,
)
from flux_trio.messages.types import PRIVATE
from flux_trio.protocols import Job

PURGE_S: Final = 2.0  # flux-core's heartbeat, by which it purges
PAGE_JOBS: Final = 200  # jobs of one commit
EXCESS_PART: Final = 16  # of the limit, purged beyond it, so that not every end of a job purges one
EVERY_JOB: Final = 1 << 62  # a batch without a limit


class Purge(Part):
    """Answers purge requests, and purges by the configured limits.

    `forgotten` is called with each job that plugins could still look up.
    """

    age_limit: float
    num_limit: int
    bytes_limit: int  # of the finished jobs of a guest; 0: none
    purges: deque[Run | Named]  # the first has its turn

    def __init__(
        self,
        ledger: Ledger,
        purged: Callable[[Sequence[Ended]], None],
        forgotten: Callable[[ActiveJob], None],
    ) -> None:
        self._ledger = ledger
        self._purged = purged
        self._forgotten = forgotten
        self.age_limit = UNLIMITED
        self.num_limit = UNLIMITED
        self.bytes_limit = 0
        self.purges = deque()
        self.finished = FinishedBytes(ledger, self._look_at_user)

    # --- requests

    def purge(self, request: Request) -> None:
        """job-manager.purge: answered with the number of jobs that were purged, or would be."""
        wanted = job_requests.PURGE.read(request)
        left = wanted.batch if wanted.force else EVERY_JOB
        self._begin(
            Run(request, self._before(wanted.age_limit), wanted.num_limit, left, wanted.force)
        )

    def purge_id(self, request: Request) -> None:
        """job-manager.purge-id: purge one job."""
        wanted = job_requests.PURGE_ID.read(request)
        if wanted.id in self._ledger.jobs:
            raise FluxError(Errno.EINVAL, "cannot purge active job")
        job_key(wanted.id, EVENTLOG)  # raises FormatError for an invalid id
        self._begin(Named(request, wanted.id, bool(wanted.force)))

    def forget(self, sender: str) -> None:
        """Drop the purges of a peer that is gone; those that have begun go on to their end.

        They are not answered (6.disconnect.2).
        """
        left: deque[Run | Named] = deque()
        for place, purge in enumerate(self.purges):
            request = purge.request
            if request is None or request.sender != sender:
                left.append(purge)
            elif place == 0 or (isinstance(purge, Run) and purge.count):
                request = unanswered(request, sender)
                left.append(msgspec.structs.replace(purge, request=request))
        self.purges = left

    # --- limits

    def configure(self, config: JobManagerConfig) -> None:
        """Take the limits of `config`, which has been checked."""
        age = config.inactive_age_limit
        self.age_limit = UNLIMITED if age is None else parse_duration(age)
        number = config.inactive_num_limit
        self.num_limit = UNLIMITED if number is None else number
        self.bytes_limit = config.user_limits.finished_bytes
        if age is None and number is None:
            self._ledger.outbox.clear_timer("purge")
        else:
            self._look_again()

    def look(self) -> None:
        """Purge jobs beyond the limits, each time the timer fires."""
        if not any(_is_of_config(purge) for purge in self.purges):
            self._begin(Run(None, 0, UNLIMITED, EVERY_JOB, force=True))
        self._look_again()

    def _look_again(self) -> None:
        self._ledger.outbox.set_timer("purge", self._ledger.now + PURGE_S)

    def _look_at_user(self, userid: int) -> None:
        """Purge the oldest jobs of a guest who has more of them than the limit."""
        if self._excess(userid) <= 0:
            return
        if not any(isinstance(each, Run) and each.userid == userid for each in self.purges):
            after = self.finished.oldest.get(userid, "")
            self._begin(Run(None, 0, UNLIMITED, EVERY_JOB, True, after=after, userid=userid))

    def _excess(self, userid: int) -> int:
        """Return how many bytes of a guest are to go: somewhat more than is beyond the limit."""
        most, found = self.bytes_limit, self.finished.totals.get(userid, 0)
        return found - most + most // EXCESS_PART if 0 < most < found else 0

    def _before(self, age_limit: float) -> int:
        return 0 if age_limit < 0 else ended_at(self._ledger.now - age_limit)

    # --- in turns

    def _begin(self, purge: Run | Named) -> None:
        self.purges.append(purge)
        if len(self.purges) == 1:
            self._go_on(purge)

    def _go_on(self, purge: Run | Named) -> None:
        match purge:
            case Run():
                limit = min(page_size(PAGE_JOBS), purge.left)
                self._ledger.ask_kvs(read_page(ENDED, limit, purge.after), RunRead(purge, limit))
            case Named():
                self._ledger.ask_kvs(look_up(job_key(purge.jobid, EVENTLOG)), NamedRead(purge))

    def step_answered(self, step: PurgeStep, response: Response) -> None:
        """Take the answer of one step; go on with the next, or answer the request."""
        try:
            match step:
                case RunRead():
                    self._handle_page(step, response)
                case RunSized():
                    self._handle_sizes(step, response)
                case RunStored():
                    self._handle_purged(step, response)
                case NamedRead():
                    self._handle_named(step, response)
                case NamedStored():
                    check(response)
                    self._announce([step.job])
                    self._end(1)
        except FluxError as error:
            self._failed(error)

    def _end_turn(self, run: Run) -> None:
        """Let the next purge have its turn; `run` goes on after the others."""
        first = self.purges.popleft()  # its sender may have gone meanwhile
        self.purges.append(msgspec.structs.replace(run, request=first.request))
        self._go_on(self.purges[0])

    def _end(self, count: int) -> None:
        request = self.purges[0].request
        if request is not None:
            payload = job_requests.PURGED.write(job_requests.Purged(count))
            self._ledger.send(respond(request, payload))
        self._next()

    def _next(self) -> None:
        self.purges.popleft()
        if self.purges:
            self._go_on(self.purges[0])

    def _failed(self, error: FluxError) -> None:
        request = self.purges[0].request
        self._next()
        if request is not None:
            self._ledger.send(respond_error(request, error.errnum, error.text))
        elif error.errnum != Errno.ENOSPC:  # the kvs has logged ENOSPC, and the next purge is soon
            text = f"cannot purge inactive jobs: {error.text}"
            self._ledger.outbox.send(Log(Level.ERR, text))

    # --- by age and number

    def _handle_page(self, read: RunRead, response: Response) -> None:
        run, page = read.run, page_in(response)
        jobs = [read_ended(key, value) for key, value in page.items]
        if run.userid is not None:
            self._handle_page_of_user(run, run.userid, jobs, read.limit)
            return
        before, num_limit = self._limits(run)
        surplus = 0 if num_limit < 0 else max(0, self._ledger.ninactive - num_limit)
        if not run.force:
            surplus = max(0, surplus - run.count)  # counted jobs are still stored
        number = len(jobs)
        for place, job in enumerate(jobs):
            if place >= surplus and job.usec >= before:
                number = place
                break
        goes_on = number == len(jobs) == read.limit and number < run.left
        if run.force and number:
            keys = [job_key(job.id, output_key(1)) for job in jobs[:number]]
            sized = RunSized(run, tuple(jobs[:number]), goes_on)
            # the answer ends with the first key that exists
            self._ledger.ask_kvs(look_up_all(keys, chars_max=1), sized)
            return
        run = _counted(run, number)
        if goes_on:
            self._end_turn(msgspec.structs.replace(run, after=page.keys[-1]))
        else:
            self._end(run.count)

    def _handle_page_of_user(self, run: Run, userid: int, jobs: list[Ended], limit: int) -> None:
        """Remove jobs of a guest on this page, until those that are left are within the limit."""
        left, chosen = self._excess(userid), []
        for job in jobs:
            if left > 0 and job.userid == userid:
                chosen.append(job)
                left -= bytes_of(job)
        if chosen:
            keys = [job_key(job.id, output_key(1)) for job in chosen]
            sized = RunSized(run, tuple(chosen), left > 0)
            self._ledger.ask_kvs(look_up_all(keys, chars_max=1), sized)
        elif left > 0 and len(jobs) == limit:
            after = self.finished.oldest[userid] = ended_key(jobs[-1])
            self._end_turn(msgspec.structs.replace(run, after=after))
        else:
            if left > 0:  # the clock was set back: a job may have ended before those that are gone
                self.finished.oldest.pop(userid, None)
            self._end(run.count)

    def _handle_sizes(self, sized: RunSized, response: Response) -> None:
        # job by job if a value is damaged
        number = 1 if response.errnum else len(values_in(response))
        jobs = sized.jobs[:number]
        goes_on = sized.goes_on or number < len(sized.jobs)
        self._remove(jobs, RunStored(_counted(sized.run, number), jobs, goes_on))

    def _limits(self, run: Run) -> tuple[int, int]:
        """Return the limits of `run`; those of the configuration may have changed meanwhile."""
        if run.request is None:
            return self._before(self.age_limit), self.num_limit
        return run.before, run.num_limit

    def _handle_purged(self, stored: RunStored, response: Response) -> None:
        check(response)
        self._announce(stored.jobs)
        if stored.goes_on:
            self._end_turn(stored.run)
        else:
            self._end(stored.run.count)

    # --- by id

    def _handle_named(self, read: NamedRead, response: Response) -> None:
        eventlog = value_in(response)
        named, jobid = read.named, read.named.jobid
        if eventlog is None:
            raise FluxError(Errno.ENOENT, "id not found")
        job, events = fold_eventlog(Job, jobid, eventlog)
        if job.result is None:  # it is new, or was left out at the start
            raise FluxError(Errno.EINVAL, "cannot purge active job")
        usec = ended_at(events[-1].timestamp)
        over = Ended(jobid, usec, job.userid, int(job.result), UNKNOWN, UNKNOWN)
        if named.force:
            self._remove([over], NamedStored(named, over))
        else:
            self._end(1)

    # --- both

    def _remove(self, jobs: Sequence[Ended], stored: RunStored | NamedStored) -> None:
        ops = [op for job in jobs for op in purge_ops(job)]
        ops.append(["put", MAX_JOBID_KEY, str(self._ledger.max_jobid)])
        # on a full disk it uses the room that is set aside, or is refused at once
        self._ledger.ask_kvs(commit_ops(ops, wait=False, frees=True), stored)

    def _announce(self, jobs: Sequence[Ended]) -> None:
        self._ledger.ninactive -= len(jobs)
        self.finished.purged(jobs)
        for job in jobs:
            if (recent := self._ledger.forget_inactive(job.id)) is not None:
                self._forgotten(recent)
        self._purged(jobs)
        purged = journal.Purged([job.id for job in jobs], [job.usec for job in jobs])
        payload = journal.PURGED.write(purged)
        self._ledger.send(Event(topics.JOB_PURGE_EVENT, payload, flags=PRIVATE))


def _counted(run: Run, number: int) -> Run:
    return msgspec.structs.replace(run, count=run.count + number, left=run.left - number)


def _is_of_config(purge: Run | Named) -> bool:
    return purge.request is None and isinstance(purge, Run) and purge.userid is None
