"""A property of the job manager: a job gets the resources that its present jobspec asks for."""

from __future__ import annotations

from typing import Any

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import format_fluid, value_at
from flux_trio.judge.engine.selector import job_id, payload
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.properties.trace_properties import ends
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import stored_job
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record


@watching("current")
class Requested(Watcher):
    """A job gets resources that were requested with each update of its jobspec (RFC 21, 27).

    A grant that the job manager receives after the update, or in the same turn, may have crossed
    it: then the scheduler cannot know of the update. At the next pause nothing is on its way any
    more, and whatever the cancel of the request may have waited for is over, so that a later grant
    has not crossed. A plugin that gives a job its resources without a request may do as it likes.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._requested: dict[int, dict[str, Any]] = {}  # jobspecs, by job, until canceled
        self._crossing: set[int] = set()  # jobs with an update that a grant may cross
        self._grants: dict[int, int] = {}  # where the job manager received them, by job
        self._turn = 0  # where the job manager's turn began: it receives, then it acts
        self._has_acted = False  # in this turn
        self._updates: dict[int, dict[str, Any]] = {}  # of this job manager, by job

    def observe(self, record: Record) -> None:
        """Note requests for resources, grants and updates; look at a job that gets resources."""
        message, data = record.message, record.data
        if record.party == topics.JOB_MANAGER:
            self._note_turn(record)
        if message is not None:
            if record.party != topics.JOB_MANAGER:
                return  # clients and liars may ask the scheduler for anything
            if record.kind == Kind.SEND and type(message) is Request:
                self._sent(message.topic, record)
            elif record.kind == Kind.RECV and type(message) is Response:
                self._received(message.topic, record)
        elif record.kind == Kind.EVENT and data is not None:
            if data["name"] == JobEvent.JOBSPEC_UPDATE:
                self._updates.setdefault(data["id"], {}).update(data["context"])
                if self._grants.get(data["id"], self._turn) >= self._turn:
                    self._crossing.add(data["id"])
            elif data["name"] == JobEvent.ALLOC:
                self._look_at(data["id"])
        elif ends(record, topics.JOB_MANAGER):
            self._requested.clear()
            self._crossing.clear()
            self._grants.clear()
            self._updates.clear()  # some of them may not be stored

    def pause(self) -> None:
        """Note that no grant can cross an update any more: nothing is on its way."""
        self._crossing.clear()

    def _note_turn(self, record: Record) -> None:
        is_received = record.kind == Kind.RECV
        if is_received and self._has_acted:
            self._turn = record.n
        self._has_acted = not is_received

    def _sent(self, topic: str, record: Record) -> None:
        if topic not in (topics.SCHED_ALLOC, topics.SCHED_CANCEL):
            return
        if (jobid := job_id(record)) is None:
            return  # the job manager lies
        jobspec = payload(record).get("jobspec")
        if topic == topics.SCHED_CANCEL:
            self._requested.pop(jobid, None)
        elif isinstance(jobspec, dict):
            self._requested[jobid] = jobspec
            self._crossing.discard(jobid)
            self._grants.pop(jobid, None)

    def _received(self, topic: str, record: Record) -> None:
        if topic != topics.SCHED_ALLOC or payload(record).get("type") != AllocType.SUCCESS:
            return
        if (jobid := job_id(record)) is not None:  # else the scheduler lies
            self._grants[jobid] = record.n

    def _look_at(self, jobid: int) -> None:
        requested = self._requested.get(jobid)
        if requested is None or jobid in self._crossing:
            return
        stored = stored_job(jobid, self.world.disk.store)
        before = (stored and stored.jobspec_updates) or {}
        for key, value in (before | self._updates.get(jobid, {})).items():
            if (asked := value_at(requested, key)) != value:
                text = f"{format_fluid(jobid, 'f58')} gets resources that were requested with"
                self.found(f"{text} {key} {asked}, and it is {value}")
