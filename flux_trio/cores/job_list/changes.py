"""What Flux's own programs want to hear when jobs change, beside eventlogs.

- `job-info.update-watch`: R or jobspec of a job, now and after each event that updates it.
- `job-list.list-id` with `state`: a job, once it has been in one of these states, or is over.
- `job-list.job-stats` as a stream: the numbers of jobs, now and at most every STATS_S seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Set
from typing import Any, Final

from flux_trio.cores.job_list.details import JOBSPEC, R, current_jobspec, current_r
from flux_trio.cores.job_list.exchange import STATS_TIMER, Exchange, UpdatedRead
from flux_trio.cores.job_list.records import Record, Records
from flux_trio.cores.kvs_calls import look_up, value_in
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.state import Part
from flux_trio.cores.streams import Credit, JobStream, JobStreams, Stream, StreamKey, Streams
from flux_trio.editions import job_list
from flux_trio.editions.common import canceled
from flux_trio.formats import FormatError, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
)
from flux_trio.protocols import JobState

STATS_S: Final = 0.5  # as in flux-core
UPDATES_OF_USER_MAX: Final = 1024  # update watches open at once; beyond it EAGAIN
_TIMES: Final = {
    JobState.DEPEND: "t_depend",
    JobState.PRIORITY: "t_priority",
    JobState.SCHED: "t_sched",
    JobState.RUN: "t_run",
    JobState.CLEANUP: "t_cleanup",
    JobState.INACTIVE: "t_inactive",
}


class _Updates(JobStream):
    """A stream of one value; `text` is what is stored, and `told` what the last response had."""

    key: str
    asked: int = 0  # the matchtag of the lookup
    text: str = ""
    told: Any = None
    last: Record | None = None  # of a job that is over


class Changes(Part):
    """The streams, and the requests that wait."""

    _updates: JobStreams[_Updates]
    _waiting: dict[JobId, list[Request]]
    _stats: Streams[Stream]
    _of_user: Allowance

    def __init__(self, exchange: Exchange, records: Records) -> None:
        self._exchange = exchange
        self._records = records
        self._updates = JobStreams()
        self._waiting = {}  # list-id; bounded by the requests that their senders have open
        self._stats = Streams()
        self._of_user = Allowance(UPDATES_OF_USER_MAX, "update watches")

    @property
    def waiting_jobs(self) -> Set[JobId]:
        """The jobs for whose state list-id requests wait."""
        return self._waiting.keys()

    @property
    def stats_count(self) -> int:
        """The number of those who follow job-stats."""
        return len(self._stats)

    @property
    def updates_count(self) -> int:
        """The number of those who follow updates of R or jobspec."""
        return len(self._updates)

    # --- update-watch

    def watch(self, request: Request, wanted: job_list.UpdateWatch, record: Record) -> None:
        """Open the stream of a job that the sender may read. Raises FluxError."""
        self._updates.check_new(request)
        if wanted.flags:
            raise FluxError(Errno.EPROTO, "update-watch request rejected with invalid flag")
        if wanted.key not in (R, JOBSPEC):
            raise FluxError(Errno.EINVAL, "update-watch unsupported key specified")
        self._of_user.count_opened(request.userid)
        stream = _Updates(request, Credit(), record.id, wanted.key)
        stream.last = None if record.is_active else record
        asked = look_up(job_key(record.id, wanted.key))
        stream.asked = self._exchange.ask_kvs(asked, UpdatedRead(stream.stream))
        self._updates.add(stream)

    def read(self, key: StreamKey, response: Response) -> None:
        """Take the stored value of a stream, and tell it."""
        stream = self._updates.get(key)
        assert stream is not None, "a stream has ended without its read"
        stream.asked = 0
        try:
            text = value_in(response)
        except FluxError as error:
            self._end(stream, respond_error(stream.request, error.errnum, error.text))
            return
        if text is None:
            error_text = f"{stream.key}: key not found"
            self._end(stream, respond_error(stream.request, Errno.ENOENT, error_text))
            return
        stream.text = text
        record = self._records.jobs.get(stream.jobid) or stream.last
        assert record is not None  # what is over has left its last state
        if stream.last is None:
            self._tell(stream, record)
        else:
            self._tell_last(stream, record)

    def _tell(self, stream: _Updates, record: Record) -> None:
        """Send the value if it is another than before."""
        updates = record.expiration if stream.key == R else dict(record.jobspec_updates or {})
        if stream.told is not None and stream.told == [updates]:
            return
        stream.told = [updates]
        try:
            value = (current_r if stream.key == R else current_jobspec)(stream.text, record)
        except FormatError as error:
            text = f"{stream.key}: cannot apply its updates: {error}"
            self._end(stream, respond_error(stream.request, Errno.EINVAL, text))
            return
        self._exchange.send(respond_stream(stream.request, job_list.updated(stream.key, value)))

    def _tell_last(self, stream: _Updates, record: Record) -> None:
        self._tell(stream, record)
        if self._updates.is_open(stream):
            self._end(stream, end_of_stream(stream.request))

    def cancel(self, request: Request) -> None:
        """job-info.update-watch-cancel: end one of the sender's streams."""
        stream = self._updates.canceled(request)
        self._end(stream, canceled(stream.request, request))
        self._exchange.send(respond(request, {}))

    def _end(self, stream: _Updates, last: Response | None) -> None:
        self._exchange.calls.close(stream.asked)
        self._updates.remove(stream)
        self._of_user.count_closed(stream.request.userid)
        self._exchange.send(last)

    # --- list-id with a state

    def must_wait(self, request: Request, record: Record, states: int) -> bool:
        """Keep `request` until the job has been in one of `states`; return False if it has."""
        visited = JobState.NEW | sum(
            state for state, name in _TIMES.items() if getattr(record, name) is not None
        )
        if not states or states & visited or not record.is_active:
            return False
        self._waiting.setdefault(record.id, []).append(request)
        return True

    def pop_waiting(self, changed: Container[JobId]) -> list[Request]:
        """Remove and return the requests whose jobs may have come to their states, or are gone."""
        jobs = self._records.jobs
        due = [each for each in self._waiting if each in changed or each not in jobs]
        return [request for jobid in due for request in self._waiting.pop(jobid)]

    # --- job-stats as a stream

    def follow_stats(self, request: Request) -> None:
        """Keep a stream of job-stats. Raises FluxError(EPROTO) if it is none, or open already."""
        self._stats.check_new(request)
        self._stats.add(Stream(request, Credit()))

    @property
    def stats_due(self) -> list[Request]:
        """The streams of job-stats that get a response now."""
        return [stream.request for stream in self._stats.all_open()]

    def tell_later(self) -> None:
        """Let the streams of job-stats have a response after STATS_S."""
        self._exchange.set_timer(STATS_TIMER, self._exchange.now + STATS_S)

    # --- what happens meanwhile

    def end_turn(self, changed: Collection[JobId]) -> None:
        """Tell the streams about the jobs that have changed in this turn."""
        if len(self._updates):
            for jobid in sorted(changed):
                self._tell_about(jobid)
        if changed and len(self._stats) and STATS_TIMER not in self._exchange.timers:
            self.tell_later()

    def _tell_about(self, jobid: JobId) -> None:
        record = self._records.jobs.get(jobid)
        if record is not None:
            for stream in self._updates.of_job(jobid):
                if not stream.asked:
                    self._tell(stream, record)

    def ended(self, record: Record) -> None:
        """Tell the last value of a job that is over, and end its streams."""
        for stream in self._updates.of_job(record.id):
            stream.last = record
            if not stream.asked:
                self._tell_last(stream, record)

    def forget_info(self, sender: str) -> None:
        """End the update watches of a peer that is gone."""
        for stream in self._updates.of_sender(sender):
            self._end(stream, None)

    def forget_list(self, sender: str) -> None:
        """Forget what else a peer that is gone has asked."""
        for each in self._stats.of_sender(sender):
            self._stats.remove(each)
        for jobid, requests in list(self._waiting.items()):
            self._waiting[jobid] = [each for each in requests if each.sender != sender]
            if not self._waiting[jobid]:
                del self._waiting[jobid]
