"""What a trace that begins late tells of the time before: who holds what, and the inventory.

The backlog of a journal has the R of each job that has resources. The answer to `resource.status`
has the instance's R, and which nodes are up. Whoever joins asks for both; any trace may have them.
Nothing of it is judged: the views learn it, as if the messages of that time had been seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.monitor import Monitor
from flux_trio.judge.views.granting import INVENTORY
from flux_trio.judge.views.holding import GRANTS, IN_USE
from flux_trio.judge.views.resources import AS_RECEIVED, AS_SENT
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record

ACQUIRERS: Final = {"sched-fluxion-qmanager": "sched-fluxion-resource"}
"""By scheduler: the other module of it that acquires resources."""
_ACQUIRED: Final = (AS_RECEIVED, AS_SENT, INVENTORY)


class Joining:
    """Lets the views of a monitor learn what records tell of the time before the trace."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._status: dict[str, Any] | None = None
        """The last answer to resource.status, until it is known who has acquired that."""

    def after(self, record: Record) -> None:
        """Take a record that the monitor has observed."""
        message, monitor = record.message, self._monitor
        if monitor.facts.begins or record.kind != Kind.SEND:
            return
        if isinstance(message, Response) and isinstance(message.payload, dict):
            self._take(record, message.topic, message.payload)
        scheduler = monitor.facts.scheduler
        acquirer = ACQUIRERS.get(scheduler, monitor.facts.acquirer)
        if self._status is None or not acquirer:
            return
        if monitor.at(AS_RECEIVED, acquirer) is None:
            for each in _acquired_before(record, self._status, acquirer, scheduler):
                monitor.learn(each, _ACQUIRED)
        self._status = None

    def _take(self, record: Record, topic: str, content: dict[str, Any]) -> None:
        match topic:
            case topics.JOB_EVENTS:
                grant = _grant_of_before(record, content)
                if grant is not None and self._monitor.at(GRANTS, grant[0]) is None:
                    self._monitor.learn(grant[1], (GRANTS, IN_USE))
            case topics.RESOURCE_STATUS:
                self._status = content
            case topics.RESOURCE_ACQUIRE:
                self._status = None  # it was of a time before this change


def _grant_of_before(record: Record, content: dict[str, Any]) -> tuple[int, Record] | None:
    """Return a job that holds resources, and its SUCCESS, as the backlog of a journal tells of it.

    A response with several events is of the past.
    """
    jobid, events, resources = map(content.get, ("id", "events", "R"))
    if type(jobid) is not int or not isinstance(events, list) or len(events) < 2:
        return None
    names = {each.get("name") for each in events if isinstance(each, dict)}
    if resources is None or "alloc" not in names or "free" in names:
        return None
    success = Response(topics.SCHED_ALLOC, {"id": jobid, "type": 0, "R": resources})
    n, t = record.n, record.t
    return jobid, Record(n, t, Kind.SEND.value, topics.SCHED, topics.JOB_MANAGER, 0, success)


def _acquired_before(
    record: Record, content: dict[str, Any], acquirer: str, scheduler: str
) -> Iterator[Record]:
    """Yield the acquire of a scheduler, its first response, as the status has it, and the hello.

    Nodes that are excluded are not acquired; those that are drained are not up.
    """
    r, drained = content.get("R"), content.get("drain")
    up = idset_of(content.get("online"))
    if not isinstance(r, dict) or up is None or content.get("exclude"):
        return
    for ranks in drained if isinstance(drained, dict) else ():
        up -= idset_of(ranks) or Idset()
    n, t, service = record.n, record.t, topics.RESOURCE
    asked = Request(topics.RESOURCE_ACQUIRE, None, 0, STREAMING, routes=(acquirer,))
    told = {"resources": r, "up": str(up)}
    answer = Response(topics.RESOURCE_ACQUIRE, told, 0, 0, STREAMING, routes=(acquirer,))
    for first, second, message in ((acquirer, service, asked), (service, acquirer, answer)):
        yield Record(n, t, Kind.SEND.value, first, second, 0, message)
        yield Record(n, t, Kind.RECV.value, second, first, n, message)
    hello = Request(topics.SCHED_HELLO, None, 0, STREAMING, routes=(scheduler,))
    yield Record(n, t, Kind.SEND.value, scheduler, topics.JOB_MANAGER, 0, hello)
