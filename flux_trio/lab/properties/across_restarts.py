"""Properties that remember records: what was promised holds through the end of a module.

A queue stays stopped, a node stays drained, a job that runs is not forgotten, and nothing is left
of a job that was refused, whoever ends and starts again meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.editions import flux, rfc33, submission
from flux_trio.editions.rfc32 import Released, Started
from flux_trio.formats import EVENTLOG, FormatError, Idset, format_fluid, job_key, parse_eventlog
from flux_trio.lab.properties.pauses import core_of, names_of
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.properties.trace_properties import ends, read_if_valid
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import FluxError, Request, Response, topics
from flux_trio.protocols import InvalidTransition, JobEvent, JobState, replay
from flux_trio.trace import Kind, Record

Fact = tuple[str, Any]
"""What a request is about, such as ("started", the name of a queue) or ("drained", a rank)."""
Call = tuple[str, str, int]
"""A request that is open: its sender, topic and matchtag."""

_NODES: Final[dict[str, tuple[str, bool]]] = {
    topics.RESOURCE_DRAIN: ("drained", True),
    topics.RESOURCE_UNDRAIN: ("drained", False),
    topics.RESOURCE_DOWN: ("down", True),
    topics.RESOURCE_UP: ("down", False),
}
_TOPICS: Final = (*_NODES, topics.RESOURCE_EXCLUDE, topics.JOB_QUEUE_START, topics.JOB_QUEUE_ENABLE)


@watching("promised")
class Promises(Watcher):
    """A queue or a node stays as the last request about it said, if that was answered, whichever
    module ends and starts again.

    A request that is not answered, or that crosses another one, leaves open what holds. A restore
    stops all queues.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._sure: dict[Fact, bool] = {}
        self._open: dict[Call, tuple[dict[Fact, bool | None], set[Fact]]] = {}

    def observe(self, record: Record) -> None:
        """Note the requests of clients about queues and nodes, and their answers."""
        message = record.message
        if record.kind == Kind.FAULT and (record.data or {}).get("tool") == "restore":
            self._sure = {fact: held for fact, held in self._sure.items() if fact[0] != "started"}
        if record.kind != Kind.SEND or not isinstance(message, Request | Response):
            return
        if message.topic not in _TOPICS:
            return
        if isinstance(message, Request):
            self._asked((message.sender, message.topic, message.matchtag), message)
        elif message.routes:
            self._answered((message.routes[0], message.topic, message.matchtag), message)

    def _asked(self, call: Call, request: Request) -> None:
        try:
            wanted = dict(self._wanted(request))
        except (FluxError, FormatError):
            return  # it is refused
        for others, crossed in self._open.values():
            crossed |= others.keys() & wanted.keys()
        crossing = {fact for others, _ in self._open.values() for fact in others} & wanted.keys()
        self._open[call] = (wanted, crossing)
        for fact in wanted:
            self._sure.pop(fact, None)

    def _answered(self, call: Call, response: Response) -> None:
        wanted, crossed = self._open.pop(call, ({}, set[Fact]()))
        for fact, held in {} if response.errnum else wanted.items():
            if held is not None and fact not in crossed:
                self._sure[fact] = held

    def _wanted(self, request: Request) -> Iterator[tuple[Fact, bool | None]]:
        """Yield what a request is about, and whether that holds then; None if that is open."""
        if request.topic in _NODES or request.topic == topics.RESOURCE_EXCLUDE:
            # a node that is excluded is drained no more
            what, is_to_hold = _NODES.get(request.topic, ("drained", None))
            for rank in Idset.parse(flux.TARGETS.read(request).targets):
                yield (what, rank), is_to_hold
            return
        if request.topic == topics.JOB_QUEUE_START:
            start = rfc33.QUEUE_START.read(request)
            what, held, name = "started", start.start, start.name
        else:
            enable = rfc33.QUEUE_ENABLE.read(request)
            what, held, name = "enabled", enable.enable, enable.name
        names: list[str | None] = [*self.world.config.queues] or [None]
        for each in names if name is None else [name]:
            yield (what, each), held

    def pause(self) -> None:
        """Compare the answered requests with what the job manager and the resource service know."""
        queues = core_of(self.world, "job-manager", JobManagerCore).queue_states
        resource = core_of(self.world, "resource", ResourceCore)
        known: dict[Fact, bool] = {}
        for name, state in queues.items():
            known |= {("started", name): state.is_started, ("enabled", name): state.is_enabled}
        for (what, about), held in self._sure.items():
            if what == "down" and about in self.world.missing:
                continue  # it is down after each start
            if what == "drained" and about in self.world.excluded:
                continue  # a start undrains it
            if what == "down":
                is_held = about in resource.down
            elif what == "drained":
                is_held = about in resource.drained
            else:
                is_held = known[what, about]
            if is_held is not held:
                self.found(f"{_said(what, about)}: expected {held}, since so it was answered")


def _said(what: str, about: Any) -> str:
    """Return a fact for a text."""
    thing = f"node {about}" if isinstance(about, int) else f"queue {about or '(anonymous)'}"
    return f"{thing} is {what}"


@watching("restarted")
class Restarts(Watcher):
    """A job that is read back in SCHED gets flux-restart as its next event (RFC 21)."""

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._seen: set[int] = set()  # jobs with an event of this job manager

    def observe(self, record: Record) -> None:
        """Look at the first event of each job after a job manager has started."""
        if record.kind == Kind.EVENT and record.party == topics.JOB_MANAGER and record.data:
            jobid, name = record.data["id"], record.data["name"]
            if jobid not in self._seen:
                self._seen.add(jobid)
                if name != JobEvent.FLUX_RESTART and self._stored_state(jobid) is JobState.SCHED:
                    text = f"{format_fluid(jobid, 'f58')} was read back in SCHED"
                    self.found(f"{text}, and its next event is {name}, not flux-restart")
        elif ends(record, topics.JOB_MANAGER):
            self._seen.clear()

    def _stored_state(self, jobid: int) -> JobState | None:
        (text,) = self.world.disk.store.lookup([job_key(jobid, EVENTLOG)])
        if not isinstance(text, str):
            return None
        try:
            return replay(jobid, parse_eventlog(text)).state
        except (InvalidTransition, FormatError):  # the property `stored` tells of it
            return None


@watching("removed")
class Refusals(Watcher):
    """Nothing is stored of a job that was refused (RFC 21, Invalidate Event)."""

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._refused: set[int] = set()

    def observe(self, record: Record) -> None:
        """Note which jobs were refused, and which submissions job-ingest has answered."""
        message = record.message
        if (
            type(message) is Response
            and message.topic == topics.JOB_SUBMIT
            and record.kind == Kind.SEND
            and (answer := read_if_valid(submission.REFUSALS, message)) is not None
        ):
            self._refused.update(jobid for jobid, _ in answer.errors)
        if record.kind == Kind.EVENT and record.data:
            if record.data["name"] == JobEvent.INVALIDATE:
                self._refused.add(record.data["id"])
            else:
                self._refused.discard(record.data["id"])
        elif ends(record, topics.JOB_MANAGER):
            self._refused.clear()  # it may have ended before the commit

    def rest(self) -> None:
        """Look for anything that is stored of a job that was refused."""
        for jobid in sorted(self._refused):
            keys = self.world.disk.store.dir(format_fluid(jobid, "kvs"))
            if keys:
                self.found(f"{format_fluid(jobid, 'f58')} was refused, and {keys[0]} is stored")


@watching("known", "job-exec")
class Unfinished(Watcher):
    """The execution service knows each job that it has started, until it has reported the end of
    the job.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._started: set[int] = set()

    def observe(self, record: Record) -> None:
        """Note which jobs the execution service says that it has started and released."""
        message = record.message
        if record.party != "job-exec" or record.kind != Kind.SEND:
            if ends(record, "job-exec"):
                self._started.clear()
        elif isinstance(message, Response) and message.topic.endswith(topics.START_METHOD):
            answer = read_if_valid(self.world.config.edition_value.start_answer, message)
            if answer is None:
                return
            if isinstance(answer.report, Started):
                self._started.add(answer.id)
            elif isinstance(answer.report, Released) and answer.report.final:
                self._started.discard(answer.id)

    def pause(self) -> None:
        """Compare with the jobs that the execution service knows."""
        forgotten = self._started - core_of(self.world, "job-exec", ExecCore).jobs.by_id.keys()
        if forgotten:
            self.found(f"job-exec has forgotten {names_of(forgotten)}, whose end it has not told")


ACROSS_RESTARTS: Final = (Promises, Restarts, Refusals, Unfinished)
