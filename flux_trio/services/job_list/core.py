"""The job list: what users read about jobs. Pure.

It holds one small record a job, folded from eventlog and journal (`follow`), and reads jobspec, R
and eventlogs from the kvs when asked. Requests wait until every job of before has been read. While
the job manager is away, lists tell what was last known.
"""

from __future__ import annotations

from typing import Any, assert_never

from flux_trio.config import Config
from flux_trio.messages import Event, Request, Response, respond, tells_return_of, topics
from flux_trio.services.configuring import configuration_in
from flux_trio.services.job_list.details import Details
from flux_trio.services.job_list.exchange import Exchange, LogChanged, LogRead
from flux_trio.services.job_list.follow import Follower
from flux_trio.services.job_list.info import Info
from flux_trio.services.job_list.listing import Listings
from flux_trio.services.job_list.records import Records
from flux_trio.services.job_list.watches import Watches
from flux_trio.services.methods import Methods
from flux_trio.services.turns import TimerFired


class JobListCore:
    """The whole state of job-list and job-info."""

    def __init__(self, config: Config | None = None) -> None:
        self._exchange = Exchange()
        self._records = Records()
        self._follower = Follower(self._exchange, self._records)
        self._listings = Listings(self._exchange, self._records, Details(self._exchange))
        self._listings.default_queue = (config or Config()).default_queue
        self._watches = Watches(self._exchange)
        self._info = Info(self._exchange, self._records, self._watches)
        self._waiting: list[Request] = []
        self._methods = Methods(
            for_owner={topics.config_reload_of(topics.JOB_LIST): self._configure},
            for_all={
                topics.LIST_LIST: self._listings.list_jobs,
                topics.LIST_ID: self._listings.list_id,
                topics.LIST_STATS: self._listings.stats,
                topics.INFO_LOOKUP: self._info.lookup,
                topics.INFO_WATCH: self._info.watch,
                topics.credit_of(topics.INFO_WATCH): self._watches.grant,
                topics.INFO_WATCH_CANCEL: self._watches.cancel,
                topics.disconnect_of(topics.JOB_LIST): self._disconnect_list,
                topics.disconnect_of(topics.JOB_INFO): self._disconnect_info,
            },
            stats=(topics.stats_of(topics.JOB_LIST), self._stats),
        )

    def start(self, now: float) -> list[Any]:
        """Follow the jobs from here on."""
        self._exchange.now = now
        self._follower.open()
        return self._exchange.take_actions()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """Take answers first, so that requests see the newest; answer what can be answered."""
        self._exchange.now = now
        self._listings.start_turn()
        for message in inputs:
            match message:
                case Response():
                    self._response(message)
                case Request():
                    self._waiting.append(message)
                case Event() if tells_return_of(topics.JOB_MANAGER, message):
                    self._follower.manager_is_back()
                case TimerFired(topics.JOB_JOURNAL):
                    self._follower.open()
                case TimerFired(int(userid)):
                    self._listings.go_on(userid)
        for jobid in self._records.settle():
            self._watches.ended(jobid)
        if self._follower.ready:
            waiting, self._waiting = self._waiting, []
            for request in waiting:
                self._exchange.send(self._methods.call(request))
        return self._exchange.take_actions()

    def _response(self, response: Response) -> None:
        match self._exchange.take(response):
            case LogChanged(stream):
                self._watches.changed(stream, response)
            case LogRead() as awaited:
                self._watches.read(awaited, response)
            case None:
                pass
            case other:
                assert_never(other)

    def _configure(self, request: Request) -> None:
        self._listings.default_queue = configuration_in(request).default_queue
        self._exchange.send(respond(request))

    def _stats(self) -> dict[str, Any]:
        return {"jobs": len(self._records.jobs), "watches": self._watches.count}

    def _disconnect_list(self, request: Request) -> None:
        self._listings.forget(request.sender)

    def _disconnect_info(self, request: Request) -> None:
        self._watches.forget(request.sender)
