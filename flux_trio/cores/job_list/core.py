"""The job list: what users read about jobs. Pure.

What it asks, and what it is asked, in order:

    asks   job-manager.journal         → events from now on, until the job manager leaves (`follow`)
    asks   kvs: the index of active jobs, their eventlogs; then the index of finished jobs (`scan`)
    user   job-list.list               → rows, page by page, then ENODATA (`listing`)
    user   job-list.list-id            → one row
    user   job-info.lookup             → values of a job (`info`)
    user   job-info.eventlog-watch     → each line, to the end of the job; ENODATA (`watches`)
    user   <topic>-cancel              ends a stream with ECANCELED

It holds a small record of each active job, folded from eventlog and journal (`follow`), a few
numbers of each finished job (`finished`), and the rows of those that were listed lately
(`details`). It reads the rest from the kvs when a request needs it.
At the start, requests wait until every active job has been read; they are refused if there is no
job manager then. If the job manager goes away later, lists show the last known state. The next job
manager may have new jobs before job-list knows them: requests about such a job wait until it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Never, assert_never

from flux_trio.config import Config
from flux_trio.cores.job_list import exchange
from flux_trio.cores.job_list.changes import Changes
from flux_trio.cores.job_list.details import Details
from flux_trio.cores.job_list.exchange import (
    ActiveListed,
    ActiveLogs,
    EndedPage,
    Exchange,
    IdRead,
    JobCounted,
    JobListAction,
    JobListInput,
    JobListTimer,
    JournalFollowed,
    KeyRead,
    LogChanged,
    LogRead,
    OutputStored,
    QueuesCounted,
    RecordRead,
    SliceRead,
    StrayLog,
    UpdatedRead,
    WaitingRequests,
)
from flux_trio.cores.job_list.finished import Finished
from flux_trio.cores.job_list.follow import Follower
from flux_trio.cores.job_list.info import Info
from flux_trio.cores.job_list.listing import Listings
from flux_trio.cores.job_list.records import Records, folded
from flux_trio.cores.job_list.watches import Watches
from flux_trio.cores.kvs_calls import look_up, value_in
from flux_trio.cores.methods import Methods, configuration_in
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.sharing import Backlog
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, Core, TimerFired
from flux_trio.editions import job_list, journal
from flux_trio.formats import EVENTLOG, FormatError, job_key
from flux_trio.messages import (
    ROLE_OWNER,
    Event,
    FluxError,
    Request,
    Response,
    respond,
    respond_error,
    tells_return_of,
    topics,
)
from flux_trio.protocols import PENDING, RUNNING, JobState

_ABOUT_A_JOB: Final = (topics.LIST_ID, topics.INFO_LOOKUP, topics.INFO_WATCH, topics.INFO_UPDATES)
_ABOUT_A_WATCH: Final = (topics.credit_of(topics.INFO_WATCH), topics.INFO_WATCH_CANCEL)


class JobListCore(CorePart, Core[JobListTimer, Never, Never]):
    """The whole state of job-list and job-info."""

    _backlog: Backlog[Request]

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        self._exchange: Exchange = Outbox(config.edition_value)
        self._records = Records()
        self._finished = Finished()
        self._details = Details(self._exchange, self._records)
        self._follower = Follower(self._exchange, self._records, self._finished)
        self._asked = WaitingRequests(self._exchange)
        self._changes = Changes(self._exchange, self._records)
        self._listings = Listings(
            self._exchange, self._records, self._finished, self._details, self._asked, self._changes
        )
        self._listings.config = config
        self._watches = Watches(self._exchange)
        self._info = Info(self._exchange, self._records, self._watches, self._changes)
        self._backlog = Backlog()  # until all active jobs have been read
        self._methods = Methods(
            for_owner={
                topics.config_reload_of(topics.JOB_LIST): self._configure,
                topics.stats_of(topics.JOB_INFO): self._info_stats,
                topics.LIST_PAUSE: self._pause,
                topics.LIST_UNPAUSE: self._unpause,
            },
            for_all={
                topics.LIST_LIST: self._listings.list_jobs,
                topics.credit_of(topics.LIST_LIST): self._listings.grant,
                topics.LIST_CANCEL: self._listings.cancel,
                topics.LIST_ID: self._listings.list_id,
                topics.LIST_STATS: self._listings.stats,
                topics.LIST_ATTRS: self._list_attrs,
                topics.INFO_LOOKUP: self._info.lookup,
                topics.INFO_WATCH: self._info.watch,
                topics.credit_of(topics.INFO_WATCH): self._watches.grant,
                topics.INFO_WATCH_CANCEL: self._watches.cancel,
                topics.INFO_UPDATES: self._info.watch_updates,
                topics.INFO_UPDATES_CANCEL: self._changes.cancel,
            },
            stats=(topics.stats_of(topics.JOB_LIST), self._stats),
            farewells={
                topics.JOB_LIST: self._disconnect_list,
                topics.JOB_INFO: self._disconnect_info,
            },
            forget=self._exchange.forget,
        )

    @property
    def active(self) -> list[tuple[int, JobState]] | None:
        """The ids and states of the active jobs, in the order in which they are listed.

        None while job-list does not follow the journal, and may be behind.
        """
        if self._follower.hindrance is not None:
            return None
        jobs = self._records.jobs
        return [(each, jobs[each].state) for each in self._records.in_order(PENDING | RUNNING)]

    def start(self, now: float) -> list[JobListAction]:
        """Follow the jobs from here on."""
        self._exchange.now = now
        self._follower.open()
        return self._exchange.pop_actions()

    def turn(self, now: float, inputs: Sequence[JobListInput]) -> list[JobListAction]:
        """Take answers first, so that requests see the newest state; then answer requests."""
        self._exchange.now = now
        self._listings.start_turn()
        requests: list[Request] = []
        for message in inputs:
            match message:
                case Response():
                    self._response(message)
                case Request():
                    self._keep(message, requests)
                case Event() if tells_return_of(topics.JOB_MANAGER, message):
                    self._follower.manager_is_back()
                case Event(topic=topics.JOB_PURGE_EVENT) if message.rolemask & ROLE_OWNER:
                    self._purged(message)
                case Event():
                    pass  # about another service
                case ClockStepped(by):
                    self._exchange.clock_stepped(by)
                    self._records.clock_stepped(by)
                case TimerFired(key):
                    self._exchange.fired(key)
                    self._fired(key)
                case _:
                    assert_never(message)
        if not self._follower.is_behind:
            requests = [*self._asked.pop_late(), *requests]
        if requests:
            self._follower.catch_up()
        changed = self._records.changed
        self._settle()
        if changed:
            requests = [*self._changes.pop_waiting(changed), *requests]
        self._answer(requests)
        self._changes.end_turn(changed)
        return self._exchange.pop_actions()

    def _settle(self) -> None:
        """Give the jobs that have changed their places; those that are over are not active."""
        for record in self._records.settle():
            self._changes.ended(record)
            self._details.ended(record.id)
            self._listings.chooser.ended(record.id)
            self._watches.ended(record)

    def _fired(self, key: JobListTimer) -> None:
        match key:
            case exchange.RETRY_TIMER:
                self._follower.open()
            case exchange.SLICE_TIMER:
                self._follower.go_on()
            case exchange.STATS_TIMER:
                self._listings.tell_followers()
            case int(userid):
                self._listings.go_on(userid)
            case _:
                assert_never(key)

    def _answer(self, requests: list[Request]) -> None:
        if self._follower.ready:
            for request in [*self._backlog.remove_all(), *requests]:
                self._call(request)
        elif (hindrance := self._follower.hindrance) is not None:  # no job is known yet
            for request in self._backlog.remove_all():
                self._exchange.send(respond_error(request, *hindrance))

    def _keep(self, request: Request, requests: list[Request]) -> None:
        """Add `request` to the `requests` of this turn, or to the backlog."""
        if request.topic == topics.LIST_UNPAUSE and request.rolemask & ROLE_OWNER:
            self._follower.unpause()  # now, so that this turn has what was held
        if self._follower.ready:
            requests.append(request)
            return
        self._exchange.send(self._backlog.put(request, self._exchange.forget))

    def _call(self, request: Request) -> None:
        """Call the method; for a job that is not active, first read its eventlog."""
        with suppress(FluxError, FormatError):  # the method answers with the error
            jobid = self._unread_job(request)
            if jobid is not None and self._follower.paused and request.topic == topics.LIST_ID:
                self._asked.put_off(request)
                return
            if jobid is not None:
                read = RecordRead(request, jobid)
                tag = self._exchange.ask_kvs(look_up(job_key(jobid, EVENTLOG)), read)
                self._asked.began(request, tag)
                return
        self._exchange.send(self._methods.call(request))

    def _unread_job(self, request: Request) -> int | None:
        """Return the job whose eventlog is to be read before the method of `request` is called.

        A credit or cancel of a watch that waits for such a read waits behind it. Raises FluxError
        or FormatError.
        """
        if request.topic in _ABOUT_A_WATCH:
            return self._asked.watched(request)
        if request.topic not in _ABOUT_A_JOB:
            return None
        if request.topic == topics.INFO_WATCH:
            self._watches.check(request)
        jobid = job_list.id_in(request)
        return None if self._records.find(jobid) is not None else jobid

    def _response(self, response: Response) -> None:
        call = self._exchange.calls.match(response)
        match call:
            case JournalFollowed():
                self._journal_answered(response)
            case ActiveListed() | ActiveLogs() | EndedPage() | StrayLog() as step:
                self._follower.scan.step_answered(step, response)
                self._listings.filled()
            case SliceRead() as read:
                self._listings.add_slice(read, response)
            case IdRead(request) as read:
                self._asked.ended(request, response.matchtag)
                self._listings.answer_id(read, response)
            case QueuesCounted(request):
                self._asked.ended(request, response.matchtag)
                self._listings.queues_counted(request, response)
            case RecordRead(request, jobid):
                self._asked.ended(request, response.matchtag)
                self._call_about(request, jobid, response)
            case KeyRead():
                self._info.found(call, response)
            case LogChanged() | OutputStored() | LogRead() | JobCounted() | UpdatedRead():
                self._stream_answered(call, response)
            case None:
                pass  # no open call has this matchtag
            case _:
                assert_never(call)

    def _stream_answered(
        self,
        call: LogChanged | OutputStored | LogRead | JobCounted | UpdatedRead,
        response: Response,
    ) -> None:
        match call:
            case LogChanged(stream):
                self._watches.changed(stream, response)
            case OutputStored(stream):
                self._watches.output_stored(stream)
            case LogRead():
                self._watches.read(call, response)
            case JobCounted():
                self._watches.counted(call, response)
            case UpdatedRead(stream):
                self._changes.read(stream, response)
            case _:
                assert_never(call)

    def _journal_answered(self, response: Response) -> None:
        self._follower.handle_response(response)
        if (hindrance := self._follower.hindrance) is not None:
            for request in self._asked.pop_late():
                self._exchange.send(respond_error(request, *hindrance))

    def _call_about(self, request: Request, jobid: int, response: Response) -> None:
        try:
            text = value_in(response)
            record = None if text is None else folded(jobid, text)
        except FluxError as error:
            self._exchange.send(respond_error(request, error.errnum, error.text))
            return
        if record is not None and (not record.is_active or self._follower.paused):
            self._records.finished = record
        elif record is not None and self._follower.is_behind and jobid not in self._records.jobs:
            self._asked.put_off(request)
            return  # else it was refused, or is unknown
        self._exchange.send(self._methods.call(request))
        self._records.finished = None

    def _purged(self, event: Event) -> None:
        purged = journal.PURGED.read(event)
        self._follower.purge(zip(purged.times, purged.jobs, strict=True))
        for jobid in purged.jobs:
            self._details.purged(jobid)

    def _configure(self, request: Request) -> None:
        self._listings.config = configuration_in(request)
        self._exchange.send(respond(request))

    def _pause(self, request: Request) -> None:
        self._follower.pause()
        self._exchange.send(respond(request))

    def _unpause(self, request: Request) -> None:
        self._exchange.send(respond(request))

    def _list_attrs(self, request: Request) -> None:
        self._exchange.send(respond(request, job_list.attributes()))

    def _stats(self) -> job_list.Stats:
        counts = self._records.counts
        pending, running = (
            sum(count for state, count in counts.items() if state & states)
            for states in (PENDING, RUNNING)
        )
        jobs = job_list.JobCounts(pending, running, len(self._finished))
        waits = job_list.Waits(len(self._changes.waiting_jobs | self._asked.late_jobs))
        return job_list.Stats(jobs, self._watches.count(), waits, self._changes.stats_count)

    def _info_stats(self, request: Request) -> None:
        """job-info.stats-get: what is open."""
        counted = job_list.InfoStats(
            self._info.lookups_count,
            self._watches.count(),
            self._watches.count("guest."),
            self._changes.updates_count,
        )
        self._exchange.send(respond(request, job_list.INFO_STATS.write(counted)))

    def _disconnect_list(self, request: Request) -> None:
        self._asked.forget(request.sender)
        self._listings.forget(request.sender)
        self._changes.forget_list(request.sender)

    def _disconnect_info(self, request: Request) -> None:
        self._asked.forget(request.sender)
        self._info.forget(request.sender)
        self._watches.forget(request.sender)
        self._changes.forget_info(request.sender)
