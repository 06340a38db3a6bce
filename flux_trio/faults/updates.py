"""A property of the job manager: a job gets the resources that its present jobspec asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux_trio.editions.rfc27 import AllocType
from flux_trio.faults.properties import Watcher, watching
from flux_trio.faults.told import ends
from flux_trio.formats import EVENTLOG, FormatError, format_fluid, job_key, parse_eventlog
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record

if TYPE_CHECKING:
    from flux_trio.faults.world import CoresWorld


@watching("current")
class Requested(Watcher):
    """A job gets resources that were requested with each update of its jobspec (RFC 21, 27).

    A grant that the job manager receives after the update, or in the same turn, is the scheduler's
    right, since the scheduler cannot know of the update; a plugin that gives a job its resources
    without a request may do as it likes.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._requested: dict[int, dict[str, Any]] = {}  # jobspecs, by job
        self._new_grants: set[int | None] = set()  # received in this turn of the job manager
        self._granted: set[int | None] = set()  # received before
        self._has_acted = False  # the job manager, in this turn
        self._updates: dict[int, dict[str, Any]] = {}  # of this job manager, by job

    def observe(self, record: Record) -> None:
        """Take a request for resources, an update, or the event that the job has resources."""
        message, data = record.message, record.data
        if record.party == topics.JOB_MANAGER:
            self._note_turn(record)
        if message is not None:
            if record.kind == Kind.SEND and type(message) is Request:
                self._sent(message)
            elif record.kind == Kind.RECV and type(message) is Response:
                self._received(message)
        elif record.kind == Kind.EVENT and data is not None:
            if data["name"] == JobEvent.JOBSPEC_UPDATE:
                self._updates.setdefault(data["id"], {}).update(data["context"])
                if data["id"] not in self._granted:
                    self._requested.pop(data["id"], None)
            elif data["name"] == JobEvent.ALLOC:
                self._look_at(data["id"])
        elif ends(record, topics.JOB_MANAGER):
            self._requested.clear()
            self._granted.clear()
            self._new_grants.clear()
            self._updates.clear()  # some of them may not be stored

    def _sent(self, request: Request) -> None:
        if request.topic == topics.SCHED_ALLOC and isinstance(request.payload, dict):
            self._requested[request.payload["id"]] = request.payload["jobspec"]
            self._granted.discard(request.payload["id"])
            self._new_grants.discard(request.payload["id"])
        elif request.topic == topics.SCHED_CANCEL and isinstance(request.payload, dict):
            self._requested.pop(request.payload["id"], None)

    def _received(self, response: Response) -> None:
        payload = response.payload
        if response.topic != topics.SCHED_ALLOC or not isinstance(payload, dict):
            return
        if payload.get("type") == AllocType.SUCCESS:
            self._new_grants.add(payload.get("id"))

    def _note_turn(self, record: Record) -> None:
        """In a turn the job manager receives messages, and acts on them afterwards."""
        is_received = record.kind == Kind.RECV
        if is_received and self._has_acted:
            self._granted |= self._new_grants
            self._new_grants.clear()
        self._has_acted = not is_received

    def _look_at(self, jobid: int) -> None:
        requested = self._requested.get(jobid)
        if requested is None:
            return
        for key, value in (self._stored_updates(jobid) | self._updates.get(jobid, {})).items():
            if (asked := _at(requested, key)) != value:
                text = f"{format_fluid(jobid, 'f58')} gets resources that were requested with"
                self.found(f"{text} {key} {asked}, and it is {value}")

    def _stored_updates(self, jobid: int) -> dict[str, Any]:
        (text,) = self.world.disk.store.lookup([job_key(jobid, EVENTLOG)])
        updates: dict[str, Any] = {}
        try:
            for event in parse_eventlog(text if isinstance(text, str) else ""):
                if event.name == JobEvent.JOBSPEC_UPDATE:
                    updates |= event.context or {}
        except FormatError:  # the property `stored` tells of it
            return {}
        return updates


def _at(jobspec: Any, key: str) -> Any:
    """Return what a jobspec has at a key with periods; None if it has nothing there."""
    for part in key.split("."):
        jobspec = jobspec.get(part) if isinstance(jobspec, dict) else None
    return jobspec
