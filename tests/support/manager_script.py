"""A job manager core, and those around it: scheduler, exec service, plugins, kvs, clients.

Each method feeds one thing that happens and returns what the core did about it, a line each: see
`manager_lines`.

What it asks before it goes by a grant is answered without a line: the scheduler has stored an R for
every SUCCESS, of a core that nobody else has.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_index import submit_op
from flux_trio.cores.job_manager.calls import FindUser, User, UserFound
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.turns import ClearTimer, Note, NoteAll, SetTimer, TimerFired
from flux_trio.editions import rfc27
from flux_trio.editions.rfc27 import AllocType
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Event as LogEvent
from flux_trio.formats import Jobspec, ResourceSet, format_eventlog, format_fluid, parse_eventlog
from flux_trio.messages import Errno, Event, Request, Response, service_of, topics
from flux_trio.protocols import (
    CONF_UPDATE,
    STATE_TOPICS,
    AskHook,
    AskJobs,
    HookAnswer,
    HookAnswered,
    Job,
    JobsAnswered,
    JobState,
    JobView,
    PluginInterests,
    PostEvent,
    replay,
    submit_event,
)
from flux_trio.services.at_once import PluginTurns
from tests.support.asking import OWNER_USERID, asked, gone
from tests.support.instant_kvs import InstantKvs
from tests.support.manager_lines import commit_line, show

NAME = "job-manager"
PLUGIN = "plug"  # whose operations these are
PRIORITIZE = STATE_TOPICS[JobState.PRIORITY]
USERID = 2000
START = 1000.0
JOBSPEC = Jobspec.from_command(["true"], environment={"HOME": "/"}).to_json()

SUCCESS, ANNOTATE, DENY, CANCEL = AllocType

HookReply = HookAnswer | Callable[[AskHook], HookAnswer]
Posted = tuple[str, dict[str, Any]]
"""Name and context of an event."""


class ScriptedPlugins:
    """`Plugins` that a test speaks for.

    Questions of `waiting` topics are answered by the test later; `answers` has what is said at
    once, by topic: an answer, or a function of the question. Unless it says, priorities are
    urgencies. With `everything` all topics are handled, the others by saying nothing.
    """

    def __init__(
        self, waiting: Iterable[str], answers: Mapping[str, HookReply], did: list[str]
    ) -> None:
        self.waiting = set(waiting)
        self.answers: dict[str, HookReply] = {
            PRIORITIZE: _urgency,
            CONF_UPDATE: HookAnswer(),
            **answers,
        }
        self.subscriptions: set[int] = set()
        self.asked: dict[str, AskHook] = {}  # questions not answered, by topic; the last of each
        self.questions: list[AskHook] = []  # all there were
        self.asked_jobs: list[AskJobs] = []  # those about many jobs at once
        self.heard: list[str] = []  # topics asked and told
        self.everything = False
        self.of_many: tuple[str, ...] = ()  # topics whose handlers all answer for many jobs
        self._did = did
        self._said = PluginInterests()

    def news(self) -> PluginInterests | None:
        """What has changed since the last time, of what a test may change at any time."""
        handled = ["*", "job.dependency.*"] if self.everything else []
        topics = tuple(sorted({*handled, *self.waiting, *self.answers}))
        before = set(self._said.subscribed)
        news = PluginInterests(
            None if topics == self._said.topics else topics,
            tuple(sorted(self.subscriptions - before)),
            tuple(sorted(before - self.subscriptions)),
            of_many=self.of_many,
        )
        self._said = PluginInterests(topics, tuple(self.subscriptions))
        return None if news == PluginInterests(of_many=self.of_many) else news

    def ask(self, question: AskHook) -> HookAnswer | None:
        self.questions.append(question)
        self.heard.append(question.topic)
        if question.topic in self.waiting:
            about = "" if question.job is None else f" {question.job.id}"
            self._did.append(f"ask {question.topic}{about}")
            self.asked[question.topic] = question
            return None
        saying = self.answers.get(question.topic, HookAnswer())
        return saying if isinstance(saying, HookAnswer) else saying(question)

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        self.asked_jobs.append(question)
        answers = [self.ask(each) for each in question.questions()]
        return JobsAnswered(question.ticket, tuple(answers))

    def cancel(self, ticket: int) -> None:
        self._did.append(f"cancel hook {ticket}")

    def notify(self, topic: str, _job: JobView, _args: Any = None) -> None:
        self.heard.append(topic)


def posting(*posts: Posted, **what: Any) -> Callable[[AskHook], HookAnswer]:
    """What answers a job's hook with these events to be logged to it, and `what` besides."""

    def saying(question: AskHook) -> HookAnswer:
        jobid = 0 if question.job is None else question.job.id
        operations = [PostEvent(jobid, name, context, PLUGIN) for name, context in posts]
        return HookAnswer(operations=tuple(operations), **what)

    return saying


def _urgency(question: AskHook) -> HookAnswer:
    assert question.job is not None
    return HookAnswer(priority=question.job.urgency)


class ManagerScript:
    """The core under test. Priorities are urgencies unless `hooks` has the priority hook.

    `hooks` are the topics whose questions the test answers itself, `answers` those with an answer
    at once, and with `everything` there is nothing that plugins do not handle. Without an
    `inventory` there is no resource service. `users` are those of the user
    database, which answers at once; the test answers for others.
    """

    def __init__(
        self,
        *,
        hooks: Iterable[str] = (),
        answers: Mapping[str, HookReply] | None = None,
        everything: bool = False,
        early: Iterable[Any] = (),
        kvs: InstantKvs | None = None,
        commits_wait: bool = False,
        lookups_wait: bool = False,
        inventory: ResourceSet | None = None,
        peers: bool = False,
        config: Config | None = None,
        users: Mapping[int, User] | None = None,
        plugins: Any = None,
        now: float = START,
    ) -> None:
        self._users = users or {}
        self._did: list[str] = []
        self.plugins = ScriptedPlugins(hooks, answers or {}, self._did)
        self.plugins.everything = everything
        self.core: Any = JobManagerCore(OWNER_USERID, config)
        self.edition = (config or Config()).edition_value
        self.kvs = InstantKvs(self.edition) if kvs is None else kvs
        self.commits_wait = commits_wait
        self.commits: deque[Request] = deque()  # not answered yet
        self.lookups_wait = lookups_wait
        self.lookups: deque[Request] = deque()  # of R, not answered yet
        self.inventory = inventory
        self.now = now
        self.timers: dict[Hashable, float] = {}  # those whose time has not come
        self.messages: list[Request | Response | Event] = []  # all that were sent
        self.kvs_asked: list[Request] = []  # what was answered at once
        self.notes: list[Note] = []  # for the trace
        self.asked = self.plugins.asked
        self.turns = PluginTurns(self.core, plugins or self.plugins)
        start = self.turns.start(self.now)
        early_ones = self.turns.turn(self.now, list(early))
        self.began = self._follow(start + early_ones)
        if peers:
            self.attach_exec()
            self.attach_sched()

    # --- what happens

    def put(self, *inputs: Any) -> list[str]:
        """One turn with `inputs`, and the turns that follow by themselves."""
        for jobid in _granted(inputs):
            if self.kvs.value(f"{key(jobid)}.R") is None:
                taken = [each for each in self.kvs.stored() if each.endswith(".R")]
                self.store_r(jobid, {0: [len(taken)]})
        return self._follow(self.turns.turn(self.now, [*map(self._with_r, inputs)]))

    def _with_r(self, each: Any) -> Any:
        """A SUCCESS with the R that is stored, if the edition has R in it; R=None leaves it out."""
        if not _granted([each]) or self.edition.alloc_answer is not rfc27.ALLOC_ANSWER_WITH_R:
            return each
        text = self.kvs.value(f"{key(each.payload['id'])}.R")
        r = json.loads(text) if text and text.startswith("{") else {}
        payload = {"R": r, **each.payload}
        if payload["R"] is None:
            del payload["R"]
        return msgspec.structs.replace(each, payload=payload)

    def ask(self, topic: str, payload: Any = None, **how: Any) -> list[str]:
        """The owner's client asks."""
        return self.put(asked(topic, payload, **how))

    def submit(self, *jobids: int, **how: Any) -> list[str]:
        """Ingest has stored jobs and submits them."""
        return self.put(self.submission(*jobids, **how))

    def submission(
        self, *jobids: int, urgency: int = 16, userid: int = USERID, **jobspec: Any
    ) -> Request:
        """What ingest asks; the store has the jobs from here on. `jobspec` is for from_command."""
        jobs = []
        asks = Jobspec.from_command(["true"], **jobspec).to_json() if jobspec else JOBSPEC
        for jobid in jobids:
            event = submit_event(self.now, userid, urgency, 0)
            self.kvs.commit(
                ["put", f"{key(jobid)}.jobspec", msgspec.json.encode(asks).decode()],
                ["append", f"{key(jobid)}.eventlog", format_eventlog([event])],
                submit_op(jobid),
            )
            jobs.append(
                {
                    "id": jobid,
                    "userid": userid,
                    "urgency": urgency,
                    "t_submit": self.now,
                    "flags": 0,
                    "jobspec": asks,
                }
            )
        return asked(topics.JOB_SUBMIT, {"jobs": jobs}, by="job-ingest")

    def raise_(self, jobid: int, severity: int = 0, kind: str = "cancel", **how: Any) -> list[str]:
        """The owner's client raises an exception."""
        payload = {"id": jobid, "severity": severity, "type": kind}
        return self.ask(topics.JOB_RAISE, payload, **how)

    def urgency(self, jobid: int, urgency: int, **how: Any) -> list[str]:
        """The owner's client changes an urgency."""
        return self.ask(topics.JOB_URGENCY, {"id": jobid, "urgency": urgency}, **how)

    def queue(self, name: str | None = None, *, start: bool, **more: Any) -> list[str]:
        """The owner starts or stops a queue, or all."""
        which = {"all": True} if name is None else {"name": name}
        return self.ask(topics.JOB_QUEUE_START, {"start": start, **which, **more})

    def enable(self, name: str | None = None, *, enable: bool = True, **more: Any) -> list[str]:
        """The owner enables or disables a queue, or all."""
        which = {"all": True} if name is None else {"name": name}
        return self.ask(topics.JOB_QUEUE_ENABLE, {"enable": enable, **which, **more})

    def configure(self, config: Config) -> list[str]:
        """The broker tells of a new configuration."""
        topic = topics.config_reload_of(topics.JOB_MANAGER)
        return self.ask(topic, {"config": config.to_json()}, by="config")

    def hello(self, by: str = "sched") -> list[str]:
        """A scheduler says hello."""
        return self.ask(topics.SCHED_HELLO, by=by, streaming=True)

    def ready(self, limit: int | None = None, by: str = "sched") -> list[str]:
        """A scheduler is ready, limited or not."""
        mode = {"mode": "unlimited"} if limit is None else {"mode": "limited", "limit": limit}
        return self.ask(topics.SCHED_READY, mode, by=by)

    def attach_sched(self, limit: int | None = None, by: str = "sched") -> list[str]:
        """Both: what the ready made the core do."""
        self.hello(by)
        return self.ready(limit, by)

    def alloc(self, jobid: int, kind: AllocType = SUCCESS, **more: Any) -> list[str]:
        """The scheduler answers sched.alloc."""
        return self.put(alloc_answer(jobid, kind, **more))

    def store_r(self, jobid: int, cores: dict[int, list[int]]) -> None:
        """The scheduler stores R: these cores of each rank."""
        entries = [(rank, sum(1 << core for core in some), 0) for rank, some in cores.items()]
        r = ResourceSet.build(entries, lambda rank: f"node{rank}", starttime=self.now)
        self.store_text(jobid, msgspec.json.encode(r.to_json()).decode())

    def store_text(self, jobid: int, text: str) -> None:
        """The scheduler stores something as R."""
        self.kvs.commit(["put", f"{key(jobid)}.R", text])

    def freed(self, jobid: int) -> list[str]:
        """The scheduler answers sched.free, if the edition has an answer."""
        if self.edition.free_answer is None:
            return []
        return self.put(Response(topics.SCHED_FREE, {"id": jobid}))

    def sched_error(self, topic: str, errnum: int = Errno.ENOSYS, text: str = "no") -> list[str]:
        """A conventional error, from the scheduler or in its place."""
        return self.put(Response(topic, text, errnum))

    def attach_exec(self, service: str = "job-exec", by: str = "") -> list[str]:
        """An execution service says hello."""
        return self.ask(topics.EXEC_HELLO, {"service": service}, by=by or service)

    def execute(self, jobid: int, *kinds: str, service: str = "job-exec") -> list[str]:
        """The execution service answers the start: `finish`, or `finish 9`, `release final`…"""
        return self.put(*(start_answer(jobid, kind, service) for kind in kinds))

    def wait(self, seconds: float) -> list[str]:
        """Time passes; the timers fire whose time has come, and those they set."""
        end = self.now + seconds
        did = []
        while self.timers and min(self.timers.values()) <= end:
            each = min(self.timers, key=lambda key: self.timers[key])
            self.now = self.timers.pop(each)
            did += self.put(TimerFired(each))
        self.now = end
        return did

    def gone(self, peer: str) -> list[str]:
        return self.put(gone(NAME, peer))

    def answer(self, topic: str, posts: Iterable[Posted] = (), **what: Any) -> list[str]:
        """The plugins answer the question `topic`, and want `posts` logged."""
        question = self.asked.pop(topic)
        return self.put(HookAnswered(question.ticket, posting(*posts, **what)(question)))

    def post(self, jobid: int, name: str, **context: Any) -> list[str]:
        """A plugin posts an event."""
        return self.put(PostEvent(jobid, name, context, PLUGIN))

    def commit(self) -> list[str]:
        """The oldest commit that waits is durable."""
        request = self.commits.popleft()
        return self.put(*self.kvs.take(request, NAME))

    def refuse_commit(self, errnum: int, text: str) -> list[str]:
        """The oldest commit that waits has failed."""
        request = self.commits.popleft()
        return self.put(Response(request.topic, text, errnum, request.matchtag))

    def looked_up(self) -> list[str]:
        """The oldest lookup that waits is answered."""
        return self.put(*self.kvs.take(self.lookups.popleft(), NAME))

    # --- what there is

    def log(self, jobid: int) -> list[LogEvent]:
        """The durable eventlog."""
        return parse_eventlog(self.kvs.value(f"{key(jobid)}.eventlog") or "")

    def names(self, jobid: int) -> list[str]:
        """Its events' names."""
        return [event.name for event in self.log(jobid)]

    def context(self, jobid: int, name: str) -> dict[str, Any]:
        """The context of the last event `name`."""
        found = [event for event in self.log(jobid) if event.name == name]
        assert found, f"job {jobid} has no event {name}: {self.names(jobid)}"
        return found[-1].context or {}

    def job(self, jobid: int) -> Job:
        """The job as its durable eventlog tells it."""
        return replay(jobid, self.log(jobid))

    def state(self, jobid: int) -> JobState:
        return self.job(jobid).state

    def last(self, topic: str) -> Any:
        """The last message sent with `topic`."""
        found = [message for message in self.messages if message.topic == topic]
        assert found, f"no message {topic} was sent"
        return found[-1]

    def stats(self) -> dict[str, Any]:
        """What stats-get answers."""
        self.ask(topics.JOB_STATS)
        return dict(self.last(topics.JOB_STATS).payload)

    def restarted(self, **how: Any) -> ManagerScript:
        """The next job manager over the same store."""
        return ManagerScript(kvs=self.kvs, now=self.now, **how)

    def running(self, jobid: int, *, ranks: int = 1, **how: Any) -> None:
        """Bring a new job to RUN, shells started; it has a core of so many ranks."""
        self.submit(jobid, **how)
        if ranks > 1:
            self.store_r(jobid, {rank: [0] for rank in range(ranks)})
        self.alloc(jobid)
        self.execute(jobid, "start")

    # --- how

    def _follow(self, actions: list[Any]) -> list[str]:
        while actions:
            replies: list[Any] = []
            for action in actions:
                replies += self._do(action)
            actions = self.turns.turn(self.now, replies) if replies else []
        did = list(self._did)
        self._did.clear()
        return did

    def _do(self, action: Any) -> list[Any]:
        match action:
            case Request(topic=topic) if self.commits_wait and topic in topics.COMMITS:
                self.commits.append(action)
                self._did.append(commit_line(action))
                return []
            case Request(topic=topic) if self.lookups_wait and _is_of_r(action, topic):
                self.lookups.append(action)
                return []
            case Request(topic=topics.RESOURCE_STATUS):
                return [_status(action, self.inventory)]
            case FindUser(userid) if userid in self._users:
                return [UserFound(userid, self._users[userid])]
            case Request() if service_of(action.topic) in topics.KVS_SERVICES:
                self.kvs_asked.append(action)
                return list(self.kvs.take(action, NAME))
            case SetTimer(key=each, at=at):
                if at <= self.now:
                    return [TimerFired(each)]
                self.timers[each] = at
                return []
            case ClearTimer(key=each):
                self.timers.pop(each, None)
                return []
            case Note():
                self.notes.append(action)
                return []
            case NoteAll(notes):
                self.notes += [Note(kind, data) for kind, data in notes]
                return []
            case Request() | Response() | Event():
                self.messages.append(action)
        self._did.append(show(action))
        return []


def key(jobid: int) -> str:
    """The job's directory."""
    return format_fluid(jobid, "kvs")


def alloc_answer(jobid: int, kind: AllocType = SUCCESS, **more: Any) -> Response:
    """A sched.alloc response."""
    return Response(topics.SCHED_ALLOC, {"id": jobid, "type": int(kind), **more})


def allocs(did: list[str]) -> list[int]:
    """The jobs that sched.alloc was sent for, of lines as above."""
    return [int(line.split()[1]) for line in did if line.startswith("sched.alloc ")]


def start_answer(jobid: int, kind: str, service: str = "job-exec") -> Response:
    """A start response: start, `finish STATUS`, `release [RANKS] [final]`, `exception SEVERITY`."""
    name, *words = kind.split()
    match StartType(name):
        case StartType.START | StartType.REATTACHED:
            data: dict[str, Any] = {}
        case StartType.FINISH:
            data = {"status": int(words[0]) if words else 0}
        case StartType.RELEASE:
            ranks = words[0] if words and words[0] != "final" else "all"
            data = {"ranks": ranks, "final": "final" in words}
        case StartType.EXCEPTION:
            data = {"severity": int(words[0]), "type": "exec", "note": "why"}
    return Response(f"{service}.start", {"id": jobid, "type": name, "data": data})


def _is_of_r(lookup: Request, topic: str) -> bool:
    if topic not in topics.LOOKUPS or not isinstance(lookup.payload, dict):
        return False
    keys = lookup.payload.get("keys", ())
    return bool(keys) and all(each.endswith(".R") for each in keys)


def _granted(inputs: Iterable[Any]) -> list[int]:
    payloads = [
        each.payload
        for each in inputs
        if isinstance(each, Response) and each.topic == topics.SCHED_ALLOC and not each.errnum
    ]
    return [
        payload["id"]
        for payload in payloads
        if isinstance(payload, dict) and payload.get("type") == SUCCESS and "id" in payload
    ]


def _status(request: Request, inventory: ResourceSet | None) -> Response:
    if inventory is None:
        return Response(request.topic, None, Errno.ENOSYS, request.matchtag)
    return Response(request.topic, {"R": inventory.to_json()}, matchtag=request.matchtag)
