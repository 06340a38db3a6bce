"""The active jobs, folded from their eventlogs (RFC 21), and the order they are listed in.

Pending jobs come first, by priority and then by id; then running jobs, newest first, as in
flux-core; then finished jobs (`finished`). Jobs in NEW have not been accepted and are not listed. A
job that changed gets its new place once, at the end of the turn: often several of its events come
in one turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Annotated, Any, Final

from sortedcontainers import SortedList

from flux_trio.cores.job_index import UNKNOWN, ended_at
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.editions.journal import Ended
from flux_trio.editions.rfc21 import RaisedException, read_exception
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId, Meaning, Stamp
from flux_trio.messages import ProtocolError
from flux_trio.protocols import (
    PENDING,
    PRIORITY_MAX,
    RUNNING,
    Job,
    JobEvent,
    JobState,
    JobStory,
    Rare,
)

ID_BITS: Final = 64
ID_MASK: Final = (1 << ID_BITS) - 1

# The places that are not a rank among the pending jobs, which is 0 or more.
UNLISTED: Final = -1
AMONG_RUNNING: Final = -2
OVER: Final = -3

_NEW: Final = JobState.NEW  # looked up once, since all jobs pass here
_INACTIVE: Final = JobState.INACTIVE

_TIMES: Final = {
    JobState.DEPEND: "t_depend",
    JobState.PRIORITY: "t_priority",
    JobState.SCHED: "t_sched",
    JobState.RUN: "t_run",
    JobState.CLEANUP: "t_cleanup",
    JobState.INACTIVE: "t_inactive",
}


class JournalGap(ProtocolError):
    """An event of the journal came without the event before it."""


class Record(Job):
    """One job as listed. Times are seconds since the Unix epoch, None until the state was entered.

    `t_run` is set exactly when the job has had resources.
    """

    __slots__ = (
        "counted",  # the state that it is counted in; 0 if it is not counted
        "place",  # where it is listed: a rank among the pending, or one of the constants
        "t_cleanup",
        "t_depend",
        "t_inactive",
        "t_priority",
        "t_run",
        "t_sched",
    )

    place: Annotated[int, Meaning.DERIVED]
    t_cleanup: Stamp | None
    t_depend: Stamp | None
    t_inactive: Stamp | None
    t_priority: Stamp | None
    t_run: Stamp | None
    t_sched: Stamp | None

    worst = Rare[RaisedException | None](None)
    """The most severe exception; the first one if several are equally severe."""

    stepped = Rare(0.0)
    """Seconds by which the wall clock was set between `t_run` and `t_cleanup`, or until now."""

    is_corrected = Rare(False)
    """Whether `t_run` or `t_cleanup` is by the clock, which was behind the event's timestamp."""

    def __init__(self, jobid: int, submit: Event) -> None:
        super().__init__(jobid, submit)
        self.counted = 0
        self.place = UNLISTED
        self.t_depend = None
        self.t_priority = None
        self.t_sched = None
        self.t_run = None
        self.t_cleanup = None
        self.t_inactive = None

    def apply(self, event: Event) -> None:
        """Fold one event in. Raises InvalidTransition as `Job.apply` does."""
        before = self.state
        super().apply(event)
        name = _TIMES.get(self.state) if self.state is not before else None
        if name is not None and getattr(self, name) is None:  # not when it goes back to PRIORITY
            setattr(self, name, event.timestamp)
        if event.name == _EXCEPTION:
            raised, worst = read_exception(event.context or {}), self.worst
            if worst is None or raised.severity < worst.severity:
                self.worst = raised

    def keep_times_of(self, old: Record) -> None:
        """Take what the job's eventlog does not tell from the record before."""
        if old.stepped:
            self.stepped = old.stepped
        if old.is_corrected:
            self.t_run, self.is_corrected = old.t_run, True
            self.t_cleanup = old.t_cleanup or self.t_cleanup

    def correct(self, now: float) -> None:
        """Note that the job has entered its state now, not at the timestamp of its last event."""
        if self.state is JobState.RUN:
            self.t_run, self.is_corrected = now, True
        elif self.state is JobState.CLEANUP and self.t_run is not None:
            self.t_cleanup, self.is_corrected = now, True


_EXCEPTION: Final = JobEvent.EXCEPTION.value
_INVALIDATE: Final = JobEvent.INVALIDATE.value


def folded(jobid: int, eventlog: str) -> Record:
    """Return a job as its eventlog tells it. Raises FluxError(EBADMSG)."""
    return fold_eventlog(Record, jobid, eventlog)[0]


def ended_of(record: Record) -> Ended:
    """Return the entry of a finished job; its name and queue are unknown without the journal's."""
    usec = ended_at(_time(record.t_inactive))
    return Ended(record.id, usec, record.userid, int(record.result or UNKNOWN), UNKNOWN, UNKNOWN)


STEPS_MAX: Final = 10_000
"""Finished jobs whose run time is right although the wall clock was set while they ran: the last
ones since the start of job-list. The run time of other jobs follows from their eventlogs."""


class Records(Part):
    """The active jobs by id, and in order."""

    jobs: dict[JobId, Record]
    counts: Counter[int]
    _running: dict[JobId, Record]
    _steps: dict[JobId, tuple[Stamp | None, Stamp | None, float]]
    _changed: dict[JobId, Record]
    _story: JobStory
    _dropped: list[Record]
    finished: Record | None
    _unsorted: bool

    def __init__(self) -> None:
        self.jobs = {}
        self.counts = Counter()  # of `Record.counted`, as of the last turn
        self._pending: SortedList[int] = SortedList()  # ranks; the id is in them
        self._running = {}  # oldest first
        self._steps = {}  # of jobs that are over: t_run, t_cleanup, stepped; oldest first
        self._changed = {}  # in this turn
        self._story = JobStory()
        self._dropped = []  # jobs that the last reading did not find: they are over
        self.finished = None  # a finished job, while a request about it is answered
        self._unsorted = False  # running jobs are not in order of their times

    def taken_up(self) -> None:
        places = (record.place for record in self.jobs.values())
        self._pending = SortedList(place for place in places if place >= 0)

    def clock_stepped(self, by: float) -> None:
        """Count `by` seconds by which the wall clock was set as time that jobs did not run."""
        for record in self._running.values():
            if record.state is JobState.RUN:
                record.stepped += by

    def in_order(self, states: int) -> list[int]:
        """Return the ids of jobs that may be in any of `states`, a mask, in order.

        Only numbers are copied, for a million jobs in a few milliseconds.
        """
        pending = [rank & ID_MASK for rank in self._pending] if states & PENDING else []
        running = reversed(self._running) if states & RUNNING else ()
        return [*pending, *running]

    def find(self, jobid: int) -> Record | None:
        """Return an active job, or the job in `finished`; None for another id."""
        if self.finished is not None and self.finished.id == jobid:
            return self.finished
        return self.jobs.get(jobid)

    def fold_event(self, jobid: int, place: int, event: Event, now: float) -> None:
        """Fold in the event at `place` of the job's eventlog, unless it was folded before.

        It is of this moment, `now`. Its timestamp is later if the clock was set back after the
        event before it: then the job began or ended now. Raises InvalidTransition if RFC 21 does
        not allow the event, JournalGap if earlier events are missing.
        """
        record = self.jobs.get(jobid)
        nevents = 0 if record is None else record.nevents
        if place < nevents:
            return
        if place > nevents:
            raise JournalGap(f"job {jobid}: expected event {nevents}, got {place}")
        if record is None:
            record = Record(jobid, event)
            self._story.begin(record)
        else:
            before = record.state
            self._story.apply(record, event)
            if event.timestamp > now and record.state is not before:
                record.correct(now)
        self.jobs[jobid] = self._changed[jobid] = record
        if event.name == _INVALIDATE:  # the job was refused
            del self.jobs[jobid], self._changed[jobid]

    def annotate(self, jobid: int, annotations: dict[str, Any]) -> None:
        """Set the annotations of a job without resources; later they come with the alloc event."""
        record = self.jobs.get(jobid)
        if record is not None and record.t_run is None:
            record.annotations = annotations or None

    def put(self, record: Record) -> None:
        """Replace a job's record by one that was folded from its eventlog."""
        old = self.jobs.get(record.id)
        if old is not None:
            record.place, record.counted = old.place, old.counted
            record.keep_times_of(old)
            if old.place == AMONG_RUNNING:
                self._running[record.id] = record
        self.jobs[record.id] = record
        self._changed[record.id] = record

    def _keep_step(self, record: Record) -> None:
        if record.stepped or record.is_corrected:
            self._steps[record.id] = record.t_run, record.t_cleanup, record.stepped
            if len(self._steps) > STEPS_MAX:
                del self._steps[next(iter(self._steps))]

    def restore_step(self, record: Record) -> None:
        """Set the times of a finished job's record that its eventlog does not have."""
        if record.id in self._steps:
            record.t_run, record.t_cleanup, record.stepped = self._steps[record.id]

    def keep_only(self, jobids: Container[int]) -> None:
        """Drop the active jobs that are not in `jobids`: they are over."""
        for record in list(self.jobs.values()):
            if record.id not in jobids:
                self._drop(record)

    def sort(self) -> None:
        """Sort running jobs by their start times at the end of this turn."""
        self._unsorted = True

    @property
    def changed(self) -> set[JobId]:
        """The jobs that have changed in this turn, or were found to be over."""
        return {*self._changed, *(record.id for record in self._dropped)}

    def settle(self) -> list[Record]:
        """Put changed jobs into their places; return the jobs that became inactive."""
        changed, self._changed = self._changed, {}
        ended, self._dropped = self._dropped, []
        for record in changed.values():
            if record.counted != record.state:
                self._count(record)
            place = _place_of(record)
            if place != record.place:
                self._move(record, place)
                if place == OVER:
                    del self.jobs[record.id]
                    ended.append(record)
                    self._keep_step(record)
        if self._unsorted:
            self._sort()
        return ended

    def _count(self, record: Record) -> None:
        """Count the job in its state, except in NEW: it may be refused."""
        if record.state is not _NEW:
            self.counts[record.counted] -= 1
            self.counts[record.state] += 1
            record.counted = int(record.state)

    def _sort(self) -> None:
        self._unsorted = False
        by_start = sorted(self._running.values(), key=lambda job: (_time(job.t_run), job.id))
        self._running = {record.id: record for record in by_start}

    def _move(self, record: Record, place: int) -> None:
        if record.place >= 0:
            self._pending.remove(record.place)
        elif record.place == AMONG_RUNNING:
            del self._running[record.id]
        record.place = place
        if place >= 0:
            self._pending.add(place)
        elif place == AMONG_RUNNING:
            self._running[record.id] = record

    def _drop(self, record: Record) -> None:
        self._changed.pop(record.id, None)
        del self.jobs[record.id]
        self._move(record, OVER)
        self.counts[record.counted] -= 1
        self._dropped.append(record)


def _place_of(record: Record) -> int:
    state = record.state
    if state & PENDING:
        return (PRIORITY_MAX - record.priority) << ID_BITS | record.id
    if state & RUNNING:
        return AMONG_RUNNING
    return OVER if state is _INACTIVE else UNLISTED


def _time(entered: float | None) -> float:
    return 0.0 if entered is None else entered
