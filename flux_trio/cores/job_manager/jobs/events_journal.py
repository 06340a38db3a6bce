"""flux-core's journal: the events of jobs, one job's a response, with what has been so far.

`job-manager.events-journal` is a stream. First comes the backlog: each active job with all its
events, its jobspec and R; with `full` the jobs that have ended, too. A response without events says
that the backlog is over. From then on each event has a response of its own, that of `submit` with
the jobspec, that of `alloc` with R. Both are without secrets: no environment, no scheduling key.

Eventlogs are not kept in memory, so a backlog is read from the kvs, page by page. Events that
happen meanwhile are held, and those that an eventlog had already are dropped then. A job that ends
before its page is read is read by itself: no job is told from its midst. A stream for which too
many would be held ends with EOVERFLOW.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import ENDED
from flux_trio.cores.job_manager.calls import Backlog, BacklogPage, BacklogRead, BacklogStep
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.jobspecs import redacted_text
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.kvs_calls import LOOKUP_JOBS_MAX, read_page, values_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import JobsWanted, active_in, fold_eventlog, read_active
from flux_trio.cores.streams import Credit, Stream, Streams
from flux_trio.editions import journal
from flux_trio.editions.common import canceled
from flux_trio.formats import EVENTLOG, Event, FormatError, apply_updates, document, parse_r
from flux_trio.formats.meanings import JobId
from flux_trio.messages import (
    Errno,
    FluxError,
    Payload,
    Request,
    Response,
    respond,
    respond_error,
    respond_stream,
)
from flux_trio.protocols import Job, JobEvent

HELD_MAX: Final = 100_000
"""Events that are held for a stream while its backlog is read."""

NO_PLACE: Final = -1
"""Of annotations, which are told as an event, but are in no eventlog."""

_PARTS: Final = (EVENTLOG, "jobspec", "R")


class JournalEvent(msgspec.Struct, frozen=True):
    """An event, and what tells it in a response; `place` counts the events of its job from 0."""

    jobid: JobId
    place: int
    name: str
    response: Payload


class Follower(Stream):
    """An open stream; `held` is None once its backlog is over. `full` and the names are as asked.

    `told` are the jobs that the backlog has told: the active ones, and others with held events.
    """

    number: int
    full: bool
    allow: frozenset[str] | None
    deny: frozenset[str]
    held: list[JournalEvent] | None = msgspec.field(default_factory=list)
    told: set[JobId] = msgspec.field(default_factory=set)

    def wants(self, name: str) -> bool:
        return (self.allow is None or name in self.allow) and name not in self.deny

    @property
    def untold(self) -> tuple[JobId, ...]:
        """The jobs whose first events are neither told nor held."""
        begun = self.told | {each.jobid for each in self.held or () if not each.place}
        missing = {each.jobid for each in self.held or () if each.jobid not in begun}
        return tuple(sorted(missing))


class EventsJournal(Part):
    """The followers, and the events of this turn."""

    followers: Streams[Follower]
    events: list[JournalEvent]
    _number: int  # followers so far

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.followers = Streams()
        self.events = []
        self._number = 0
        ledger.on_logged.append(self._logged)
        ledger.on_annotated.append(self._annotated)

    def follow(self, request: Request) -> None:
        """job-manager.events-journal: begin with the backlog. Raises FluxError."""
        self.followers.check_new(request)
        asked = journal.FOLLOW_EVENTS.read(request)
        allow, deny = asked.named()
        self._number += 1
        follower = Follower(request, Credit(), self._number, asked.full, allow, deny)
        self.followers.add(follower)
        self._ask_page(Backlog(follower.stream, follower.number), "")

    def cancel(self, request: Request) -> None:
        """job-manager.events-journal-cancel: end one of the sender's streams. Raises FluxError."""
        follower = self.followers.canceled(request)
        self.followers.remove(follower)
        self._ledger.send(canceled(follower.request, request))
        self._ledger.send(respond(request, {}))

    def forget(self, sender: str) -> None:
        """Forget a peer that is gone."""
        for each in self.followers.of_sender(sender):
            self.followers.remove(each)

    def end_turn(self) -> None:
        """Send the followers the events of this turn that they want, or hold them."""
        if not self.events:
            return
        events, self.events = self.events, []
        for follower in self.followers.all_open():
            chosen = [each for each in events if follower.wants(each.name)]
            if follower.held is None:
                self._tell(follower, chosen)
            elif len(follower.held) + len(chosen) <= HELD_MAX:
                follower.held += chosen
            else:
                text = f"more than {HELD_MAX} events came while the backlog was read"
                self._end(follower, FluxError(Errno.EOVERFLOW, text))

    def _logged(self, job: ActiveJob, event: Event) -> None:
        if not len(self.followers):
            return
        told = journal.JobEvents(
            job.id,
            [event],
            job.current_jobspec() if event.name == JobEvent.SUBMIT else None,
            job.resource_set() if event.name == JobEvent.ALLOC else None,
        )
        payload = journal.JOB_EVENTS.write(told)
        self.events.append(JournalEvent(job.id, job.nevents - 1, event.name, payload))

    def _annotated(self, job: ActiveJob) -> None:
        if len(self.followers):
            event = journal.annotations_event(self._ledger.now, job.annotations or {})
            payload = journal.JOB_EVENTS.write(journal.JobEvents(job.id, [event]))
            self.events.append(JournalEvent(job.id, NO_PLACE, event.name, payload))

    # --- the backlog

    def step_answered(self, step: BacklogStep, response: Response) -> None:
        """Take the answer of one step; go on with the next, or begin with what happens now."""
        follower = self.followers.get(step.backlog.stream)
        if follower is None or follower.number != step.backlog.number:
            return  # it has gone meanwhile
        try:
            match step:
                case BacklogPage(backlog):
                    self._page_read(follower, backlog, response)
                case BacklogRead():
                    self._jobs_read(follower, step, response)
        except FluxError as error:
            self._end(follower, error)

    def _ask_page(self, backlog: Backlog, after: str) -> None:
        ask = read_active(after)
        if backlog.of_ended:
            ask = read_page(ENDED, page_size(LOOKUP_JOBS_MAX), after, values=False)
        # later events are held; those from before must be in the eventlogs
        self._ledger.ask_kvs_when_durable(ask, BacklogPage(backlog))

    def _page_read(self, follower: Follower, backlog: Backlog, response: Response) -> None:
        page = active_in(response)
        jobids = page.jobids
        if backlog.of_ended:
            jobids = tuple(each for each in jobids if each not in follower.told)
        else:
            follower.told.update(jobids)
        if jobids:
            self._ask_jobs(BacklogRead(backlog, JobsWanted(jobids, _PARTS), page.after))
        else:
            self._go_on(follower, backlog, page.after)

    def _ask_jobs(self, read: BacklogRead) -> None:
        self._ledger.ask_kvs(read.jobs.ask(), read)

    def _jobs_read(self, follower: Follower, read: BacklogRead, response: Response) -> None:
        jobs, rest = read.jobs.take(values_in(response))
        assert follower.held is not None
        had: dict[JobId, int] = {}  # number of events that each eventlog has
        gone: set[JobId] = set()  # jobs that were refused or purged meanwhile
        for jobid, (eventlog, jobspec, r) in jobs:
            if eventlog is None:
                gone.add(jobid)
                continue
            events, told = _backlog_of(follower, jobid, eventlog, jobspec, r)
            had[jobid] = events
            self._send(follower, told)
        follower.told -= gone
        follower.told.update(had.keys() & {each.jobid for each in follower.held})
        gone.intersection_update(follower.untold)
        follower.held = [
            each
            for each in follower.held
            if each.jobid not in gone
            and (each.place == NO_PLACE or each.place >= had.get(each.jobid, 0))
        ]
        if rest is not None:
            self._ask_jobs(BacklogRead(read.backlog, rest, read.after))
        else:
            self._go_on(follower, read.backlog, read.after)

    def _go_on(self, follower: Follower, backlog: Backlog, after: str | None) -> None:
        if after is not None:
            self._ask_page(backlog, after)
        elif follower.full and not backlog.of_ended:
            self._ask_page(msgspec.structs.replace(backlog, of_ended=True), "")
        elif untold := follower.untold[: page_size(LOOKUP_JOBS_MAX)]:
            self._ask_jobs(BacklogRead(backlog, JobsWanted(untold, _PARTS), None))
        else:
            held, follower.held, follower.told = follower.held, None, set()
            over = journal.JobEvents(journal.BACKLOG_IS_OVER, [])
            self._send(follower, journal.JOB_EVENTS.write(over))
            self._tell(follower, held or [])

    def _tell(self, follower: Follower, events: list[JournalEvent]) -> None:
        for each in events:
            self._send(follower, each.response)

    def _send(self, follower: Follower, payload: Payload) -> None:
        self._ledger.send(respond_stream(follower.request, payload))

    def _end(self, follower: Follower, error: FluxError) -> None:
        self.followers.remove(follower)
        self._ledger.send(respond_error(follower.request, error.errnum, error.text))


def _current_jobspec(text: str, job: Job) -> dict[str, Any]:
    return apply_updates(document(redacted_text(text)), job.jobspec_updates or {})


def _current_r(text: str, job: Job) -> dict[str, Any]:
    resources = parse_r(text).with_scheduling(None)
    if job.expiration is not None:
        resources = resources.with_times(resources.starttime, job.expiration)
    return resources.to_json()


def _backlog_of(
    follower: Follower, jobid: int, eventlog: str, jobspec: str | None, r: str | None
) -> tuple[int, Payload]:
    """Return how many events a job has, and the response with those that are wanted.

    Raises FluxError for values that nobody can read.
    """
    job, events = fold_eventlog(Job, jobid, eventlog)
    try:
        told = journal.JobEvents(
            jobid,
            [each for each in events if follower.wants(each.name)],
            None if jobspec is None else _current_jobspec(jobspec, job),
            None if r is None else _current_r(r, job),
        )
    except FormatError as error:
        raise FluxError(Errno.EBADMSG, f"job {jobid}: {error}") from None
    return len(events), journal.JOB_EVENTS.write(told)
