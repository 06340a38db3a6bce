"""What an exercise has seen so far: the events of each job, requests and answers about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from flux_trio.editions.rfc27 import AllocType
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.messages import Message, Request, Response, service_of, topics
from flux_trio.trace import Kind, Record

if TYPE_CHECKING:
    from flux_trio.editions import Edition

_NAMED_MAX: Final = 3  # jobs that a cause names

_LAST: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    topics.SCHED_ALLOC: lambda answer: answer.get("type") != AllocType.ANNOTATE,
    topics.SCHED_FREE: lambda _answer: True,
    topics.START_METHOD: lambda answer: (
        answer.get("type") == StartType.RELEASE and answer.get("data", {}).get("final") is True
    ),
}
"""Requests about a job to the program, and whether a response is the last one to them."""


def _any_name(topic: str) -> str:
    """Return a topic as acts know it: an execution service has the name that it chooses."""
    return topics.START_METHOD if topic.endswith(f".{topics.START_METHOD}") else topic


class Seen:
    """What the records of a trace have shown; `is_program` tells a party of the program.

    `answered` counts the successes by topic, `taken` the requests that were received, `freed` the
    final sched.free of each job since a hello. `answers` has the type of the last answer to a
    topic about a job, `harms` the context of the first fatal exception of each job, `starts` the
    jobs in the order of their alloc events, `twice` the topics of answers after the last one, and
    `executor` the service that was asked last to start a job.
    """

    def __init__(self, is_program: Callable[[str], bool], edition: Edition) -> None:
        self._is_program = is_program
        self._edition = edition
        self.executor = ""
        self._events: dict[int, dict[str, Mapping[str, Any]]] = {}
        self._times: dict[tuple[int, str], float] = {}  # of the last event of each name
        self._stamps: dict[int, list[float]] = {}  # what stands in the events of each job
        self._counts: Counter[tuple[int, str]] = Counter()  # of the events of each name
        self.harms: dict[int, Mapping[str, Any]] = {}
        self.starts: list[int] = []
        self._asked: Counter[tuple[str, object]] = Counter()  # topics and job ids of requests
        self._jobspecs: dict[tuple[str, object], object] = {}  # of the last of those
        self.answered: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.answers: dict[tuple[str, object], object] = {}
        self._told: Counter[tuple[str, object, object]] = Counter()  # answers: topic, id, type
        self._open: dict[int, dict[str, bool]] = {}
        """By job: requests without their last answer, and whether the program is to answer them."""
        self._ended_rpcs: set[tuple[tuple[str, ...], int]] = set()
        """Routes and matchtags of requests to the program that have their last answer."""
        self.twice: list[str] = []
        self.freed: Counter[object] = Counter()

    def observe(self, record: Record) -> None:
        """Take the next record of the trace."""
        if record.kind == Kind.EVENT and record.data is not None:
            jobid, name = record.data["id"], record.data["name"]
            context = record.data.get("context") or {}
            self._events.setdefault(jobid, {})[name] = context
            self._times[jobid, name] = record.t
            self._stamps.setdefault(jobid, []).append(record.data.get("timestamp", record.t))
            self._counts[jobid, name] += 1
            if name == "exception" and context.get("severity") == 0:
                self.harms.setdefault(jobid, context)
            if name == "alloc":
                self.starts.append(jobid)
        elif record.kind == Kind.SEND:
            self._sent(record.message, record.party)
        elif isinstance(record.message, Request):
            self.taken[record.message.topic] += 1

    def _sent(self, message: Message | None, party: str) -> None:
        if isinstance(message, Request | Response):
            self._count_answers(message, party)
        match message:
            case Request(topics.SCHED_HELLO):
                self.freed.clear()
            case Request(named, {"id": jobid, **rest}):
                topic = _any_name(named)
                if topic == topics.START_METHOD:
                    self.executor = service_of(named)
                self._asked[topic, jobid] += 1
                self._jobspecs[topic, jobid] = rest.get("jobspec")
                self.freed[jobid] += topic == topics.SCHED_FREE and rest.get("final") is True
                if topic in _LAST and (topic != topics.SCHED_FREE or self._edition.free_answer):
                    is_to_program = not self._is_program(party)
                    self._open.setdefault(int(jobid), {})[topic] = is_to_program
            case Response(named, payload, errnum=0):
                topic = _any_name(named)
                self.answered[topic] += 1
                if isinstance(payload, dict):
                    self._told[topic, payload.get("id"), str(payload.get("type"))] += 1
                if topic in _LAST and isinstance(payload, dict) and _LAST[topic](payload):
                    self._open.get(payload.get("id", 0), {}).pop(topic, None)
                    self.answers[topic, payload.get("id")] = payload.get("type")

    def _count_answers(self, message: Request | Response, party: str) -> None:
        rpc = (tuple(message.routes), message.matchtag)
        if isinstance(message, Request):
            self._ended_rpcs.discard(rpc)
        elif message.matchtag and message.ends_rpc and self._is_program(party):
            if rpc in self._ended_rpcs:
                self.twice.append(message.topic)
            self._ended_rpcs.add(rpc)

    def cause(self, jobid: int) -> str:
        """Return what the program has not answered of a job, or of the jobs before it."""
        asked_of_it = [topic for topic, is_its in self._open.get(jobid, {}).items() if is_its]
        unanswered = " and ".join(asked_of_it)
        cause = f"; the program has not answered {unanswered} of this job" if unanswered else ""
        unfreed = [each for each, asked in self._open.items() if topics.SCHED_FREE in asked]
        if unfreed and topics.SCHED_ALLOC in asked_of_it:
            names = ", ".join(format_fluid(each, "f58") for each in unfreed[:_NAMED_MAX])
            cause += f", nor {topics.SCHED_FREE} of {len(unfreed)} others ({names})"
        return cause

    def is_open(self, topic: str, jobid: int) -> bool:
        """Return whether a request about a job waits for its last answer."""
        return topic in self._open.get(jobid, ())

    def times_asked(self, topic: str, jobid: int) -> int:
        """Return how often somebody was asked something about a job."""
        return self._asked[topic, jobid]

    def jobspec_asked(self, topic: str, jobid: int) -> object:
        """Return the jobspec of the last request of a kind about a job, None if it has none."""
        return self._jobspecs.get((topic, jobid))

    def told(self, topic: str, jobid: int, kind: str) -> int:
        """Return how often the program has answered with this type about a job."""
        return self._told[topic, jobid, str(kind)]

    def events(self, jobid: int) -> Mapping[str, Mapping[str, Any]]:
        """Return a job's events so far: the names, each with the context of the last one."""
        return self._events.get(jobid, {})

    def count(self, jobid: int, name: str) -> int:
        """Return how many events `name` a job has had."""
        return self._counts[jobid, name]

    def time_of(self, jobid: int, name: str) -> float:
        """Return when a job had its last event `name`, in seconds since the Unix epoch."""
        return self._times[jobid, name]

    def timestamps(self, jobid: int) -> list[float]:
        """Return what stands in a job's events as their times, in the order of the events."""
        return self._stamps.get(jobid, [])
