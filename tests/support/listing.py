"""A job list with a kvs beside it; the journal speaks when it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_index import ended_ops, submit_op
from flux_trio.cores.job_list import JobListCore
from flux_trio.cores.job_list.records import ended_of, folded
from flux_trio.cores.turns import ClearTimer, Log, SetTimer, TimerFired
from flux_trio.formats import Event, Jobspec, format_eventlog, job_key, parse_eventlog
from flux_trio.messages import Errno, Flag, Request, Response, respond_error, service_of, topics
from flux_trio.protocols import ACTIVE, JobState
from tests.support.asking import asked
from tests.support.instant_kvs import InstantKvs

NAME = "job-list"


STATES = int(ACTIVE | JobState.INACTIVE)


class ListedJobs:
    """The core under test. `sent` is what it has sent to clients and not been asked about.

    While the kvs `waits`, what it says is in `answers`, in its order.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.kvs = InstantKvs()
        self.core = JobListCore(config)
        self.now = 0.0
        self.journal: Request | None = None  # the open request for it
        self.timers: list[SetTimer[Any]] = []
        self.logs: list[Log] = []
        self.lookups: list[str] = []  # keys that were looked up
        self.sent: list[Response] = []
        self.asked_exec: list[Request] = []  # requests to the execution service
        self.exec_waits = False  # they are not answered at once
        self.asked_manager: list[Request] = []  # for the numbers of each queue
        self.waits = False
        self.answers: list[Response] = []

    def start(self) -> None:
        """Start, and let the journal begin."""
        self.do(self.core.start(0.0))
        self.tell()

    def tell(self, *entries: tuple[int, int, Event]) -> None:
        """One response of the journal: (id, place, event) each. They are stored before."""
        for jobid, place, event in entries:
            stored = parse_eventlog(self.kvs.value(job_key(jobid, "eventlog")) or "")
            if place == len(stored) and event.name != "invalidate":
                self.store_log(jobid, [event])
        events = [[jobid, place, msgspec.to_builtins(event)] for jobid, place, event in entries]
        self.turn(self.from_journal({"events": events}))

    def tell_all(self, jobid: int, events: Iterable[Event], place: int = 0) -> None:
        """The journal tells the `events` of a job, from `place` on."""
        self.tell(*((jobid, place + index, event) for index, event in enumerate(events)))

    def lose_journal(self) -> None:
        """The job manager is gone."""
        assert self.journal is not None
        error = respond_error(self.journal, Errno.ENOSYS, "job-manager is gone")
        self.journal = None
        self.turn(error)

    def store_log(self, jobid: int, events: Sequence[Event]) -> None:
        """The job manager appends to the job's eventlog, and keeps the index of jobs."""
        text = format_eventlog(list(events))
        record = folded(jobid, (self.kvs.value(job_key(jobid, "eventlog")) or "") + text)
        index = [submit_op(jobid)] if record.is_active else ended_ops(ended_of(record))
        self.commit(["append", job_key(jobid, "eventlog"), text], *index)

    def store(self, jobid: int, name: str, value: Any) -> None:
        """Somebody puts JSON into a job's directory."""
        self.commit(["put", job_key(jobid, name), msgspec.json.encode(value).decode()])

    def store_jobspec(self, jobid: int, *command: str, **how: Any) -> None:
        """Ingest stores a jobspec."""
        self.store(jobid, "jobspec", Jobspec.from_command(command or ("true",), **how).to_json())

    def commit(self, *ops: list[str]) -> None:
        """A commit, and what watchers are told of it."""
        self.answers += self.kvs.commit(*ops)
        if not self.waits:
            self.let_kvs_answer()

    def let_kvs_answer(self) -> None:
        """Let the core have every answer that waits, in one turn."""
        answers, self.answers = self.answers, []
        if answers:
            self.turn(*answers)

    def ask(self, topic: str, payload: Any = None, **how: Any) -> list[tuple[int, Any]]:
        """Ask as the instance owner: (errnum, payload) of each response so far."""
        return self.request(asked(topic, payload, **how))

    def request(self, request: Request) -> list[tuple[int, Any]]:
        """Ask as anybody."""
        self.turn(request)
        return self.take_sent()

    def jobs(self, **wanted: Any) -> list[dict[str, Any]]:
        """What job-list.list answers the owner; of jobs in all states, unless told."""
        answers = self.ask(topics.LIST_LIST, {"states": STATES} | wanted)
        while not answers:  # a long list goes on by a timer
            self.fire_timer()
            answers = self.take_sent()
        ((errnum, payload),) = answers
        assert errnum == 0, payload
        return list(payload["jobs"])

    def ids(self, **wanted: Any) -> list[int]:
        """The ids of those, in order."""
        return [job["id"] for job in self.jobs(**wanted)]

    def job(self, jobid: int) -> dict[str, Any]:
        """What job-list.list-id answers the owner."""
        ((errnum, payload),) = self.ask(topics.LIST_ID, {"id": jobid})
        assert errnum == 0, payload
        return dict(payload["job"])

    def take_sent(self) -> list[tuple[int, Any]]:
        """(errnum, payload) of what was sent since."""
        sent, self.sent = self.sent, []
        return [(response.errnum, response.payload) for response in sent]

    def from_journal(self, payload: Any) -> Response:
        assert self.journal is not None
        streaming = int(Flag.STREAMING)
        return Response(self.journal.topic, payload, 0, self.journal.matchtag, streaming)

    def turn(self, *inputs: Any, now: float | None = None) -> None:
        """One turn, and those that follow from the kvs's answers."""
        self.do(self.core.turn(self.now if now is None else now, list(inputs)))

    def fire_timer(self) -> None:
        """The time has come for the only timer that is set."""
        (timer,) = self.timers
        self.timers = []
        self.turn(TimerFired(timer.key), now=timer.at)

    def go_on(self) -> None:
        """Let the core do in further turns what is too much for one."""
        while self.timers:
            self.fire_timer()

    def do(self, actions: list[Any]) -> None:
        """Perform what the core says."""
        for action in actions:
            match action:
                case Request() if service_of(action.topic) == topics.KVS:
                    self._ask_kvs(action)
                case Request() if service_of(action.topic) == topics.JOB_EXEC:
                    self.asked_exec.append(action)
                    if not self.exec_waits:
                        self.answers.append(Response(action.topic, None, 0, action.matchtag))
                case Request() if action.topic == topics.JOB_STATS:
                    self.asked_manager.append(action)
                case Request():
                    assert action.topic == topics.JOB_JOURNAL
                    self.journal = action
                case Response():
                    self.sent.append(action)
                case ClearTimer() | SetTimer():
                    self.timers = [each for each in self.timers if each.key != action.key]
                    if isinstance(action, SetTimer):
                        self.timers.append(action)
                case Log():
                    self.logs.append(action)
                case _:
                    raise AssertionError(f"unexpected action {action!r}")
        if not self.waits:
            self.let_kvs_answer()

    def _ask_kvs(self, request: Request) -> None:
        assert isinstance(request.payload, dict)
        if request.topic == topics.KVS_LOOKUP:
            self.lookups.append(request.payload["key"])
        elif request.topic == topics.KVS_OWN.lookup_all:
            self.lookups += request.payload["keys"]
        self.answers += self.kvs.take(request, NAME)
