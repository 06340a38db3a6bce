"""The jobs of a world, by their eventlogs: those of the trace and those that are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.cores.job_index import ACTIVE, jobid_in
from flux_trio.formats import EVENTLOG, Event, FormatError, job_key, parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import InvalidTransition, Job, JobEvent, JobState, replay
from flux_trio.store.stores import Store
from flux_trio.trace import Kind, Record

# As strings: every record is looked at, and access to a member of Kind is slow.
_SEND: Final[str] = Kind.SEND.value
_EVENT: Final[str] = Kind.EVENT.value


class Jobs:
    """The jobs of a trace that are neither over nor refused.

    `active` are their ids, and `urgencies` the last urgency that an event gave to a job.
    """

    def __init__(self) -> None:
        self.active: set[int] = set()
        self.urgencies: dict[int, int] = {}
        self._all: set[int] = set()
        self._is_purging = False  # finished jobs may be removed

    def observe(self, record: Record) -> None:
        """Note what the next record of the trace says about jobs."""
        kind = record.kind
        if kind == _SEND and getattr(record.message, "topic", "") == topics.JOB_PURGE:
            self._is_purging = True
        elif kind == _EVENT and record.data is not None:
            match record.data["name"]:
                case JobEvent.SUBMIT:
                    self.active.add(record.data["id"])
                    self._all.add(record.data["id"])
                case JobEvent.URGENCY:
                    self.urgencies[record.data["id"]] = record.data["context"]["urgency"]
                case JobEvent.CLEAN | JobEvent.INVALIDATE:
                    self.active.discard(record.data["id"])

    def unfinished(self, store: Store) -> list[int]:
        """Return the ids of the jobs that are not over, by the trace and by what is stored."""
        stored = {jobid_in(key) for key in store.dir(ACTIVE)}
        return sorted(self.active | stored)

    def read(self, store: Store) -> set[int]:
        """Compare with the store when the instance starts again; return the jobs that are lost.

        The jobs that are stored and not over are the active ones from then on.
        """
        lost = set()
        for jobid in self._all:
            (text,) = store.lookup([job_key(jobid, EVENTLOG)])
            was_active = jobid in self.active
            self.active.discard(jobid)
            if not isinstance(text, str):
                if was_active or not self._is_purging:
                    lost.add(jobid)
            elif not _is_over(text):
                self.active.add(jobid)
        return lost


class States:
    """The state of each job by the events in the trace.

    `store` returns the store of the world: an event may be told and not stored when the job manager
    ends, and the next job manager begins from what is stored. For a job of which it has told
    nothing, the store is asked each time: a commit of its predecessor may be stored later.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._jobs: dict[int, Job | None] = {}  # None: nothing readable is stored
        self._unread: set[int] = set()  # those of which the present job manager has told no event

    def job_of(self, jobid: int) -> Job | None:
        """Return a job as its events made it; None if the trace has no event of it."""
        if jobid in self._unread:
            return stored_job(jobid, self._store())
        return self._jobs.get(jobid)

    def state_of(self, jobid: int) -> JobState | None:
        """Return the state of a job; None if the trace has no event of it."""
        found = self.job_of(jobid)
        return None if found is None else found.state

    def observe(self, record: Record) -> None:
        """Note the event that the next record of the trace tells of, if it does."""
        data = record.data
        if data is None:
            return
        match record.kind:
            case Kind.EVENT:
                self._add(data["id"], Event(record.t, data["name"], data["context"]))
            case Kind.CONFIG:  # a life begins
                self._unread.update(self._jobs)
            case Kind.MODULE if data["module"] == topics.JOB_MANAGER and data["what"] != "started":
                self._unread.update(self._jobs)

    def _add(self, jobid: int, event: Event) -> None:
        if event.name == JobEvent.SUBMIT:
            self._jobs[jobid] = Job(jobid, event)
        else:
            if jobid in self._unread or jobid not in self._jobs:
                self._jobs[jobid] = stored_job(jobid, self._store())
            if (job := self._jobs[jobid]) is not None:
                job.apply(event)
        self._unread.discard(jobid)


def stored_job(jobid: int, store: Store) -> Job | None:
    """Return a job as its stored eventlog has it; None if that is missing or not valid."""
    (text,) = store.lookup([job_key(jobid, EVENTLOG)])
    if not isinstance(text, str):
        return None
    try:
        return replay(jobid, parse_eventlog(text))
    except (FormatError, InvalidTransition):
        return None


def _is_over(eventlog: str) -> bool:
    """Whether a job is over; of a text that is no eventlog the property `stored` tells."""
    try:
        return any(event.name == JobEvent.CLEAN for event in parse_eventlog(eventlog))
    except FormatError:
        return False
