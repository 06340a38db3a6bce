"""Plugins that answer at once, later, badly or never, that come and go while they are asked.

They post any event at any time, meanwhile the job manager begins anew.

Each question is answered once, the hooks of a job come in the order of its states, and no job is
stuck, also when the core is put down and taken up between two inputs or in the middle of a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flux_trio.cores.job_manager.jobs.snapshot import JobSnapshot
from flux_trio.formats import ResourceSet
from flux_trio.messages import Request, topics
from flux_trio.protocols import (
    STATE_TOPICS,
    UNAVAILABLE,
    Annotate,
    AskHook,
    AskJobs,
    HookAnswer,
    HookAnswered,
    JobsAnswered,
    JobState,
    JobView,
    PluginInterests,
    PluginsChanged,
    PostEvent,
    Reprioritize,
    SetPriority,
)
from tests.support.manager_script import PRIORITIZE, ManagerScript, Posted

BASE = "base"  # sets priorities, and is always there
DURATION = "attributes.system.duration"
R: dict[str, Any] = dict(ResourceSet.build([(0, 1, 0)], "node{}".format, nslots=1).to_json())
TOPICS = (
    "job.create",
    "job.validate",
    "job.new",
    "job.update",
    "job.priority.get",
    f"job.update.{DURATION}",
    *STATE_TOPICS.values(),
)
OPENED = {
    JobState.NEW: ("dependency-add", "dependency-remove"),
    JobState.DEPEND: ("dependency-add", "dependency-remove"),
    JobState.RUN: ("prolog-start", "prolog-finish"),
    JobState.CLEANUP: ("epilog-start", "epilog-finish"),
}
POSTS: list[Posted] = [
    ("memo", {"a": 1}),
    ("weather", {"sky": "blue"}),
    ("finish", {"status": 0}),
    ("jobspec-update", {DURATION: 5}),
    ("jobspec-update", {"attributes.system.a": 2}),
    ("urgency", {"urgency": 17, "userid": 1}),
    ("set-flags", {"flags": ["waitable"]}),
    *((name, {"description": "a", "status": 0}) for pair in OPENED.values() for name in pair),
]
MOODS = ("later", "silent", "fails", "refuses", "opens", "ranks", "cannot rank", "ends it")
MOODS += ("allocates", "allows")
SANE = {PRIORITIZE: "ranks", "job.priority.get": "ranks"}
REFUSABLE = ("job.create", "job.validate")


def merged(one: HookAnswer, other: HookAnswer) -> HookAnswer:
    """What two plugins say one after the other."""
    said = {
        name: value for name, value in msgspec.structs.asdict(other).items() if value is not None
    }
    return msgspec.structs.replace(one, **said | {"operations": one.operations + other.operations})


class Pending(msgspec.Struct):
    """A question that a plugin thinks about."""

    question: AskHook
    plugin: str
    rest: list[str]  # the plugins that are asked after it
    said: HookAnswer


class Crowd:
    """Plugins by name, in the order they are asked, each with a mood by topic."""

    def __init__(self) -> None:
        self.moods: dict[str, dict[str, str]] = {BASE: dict(SANE)}
        self.pending: dict[int, Pending] = {}  # by ticket
        self.asked: set[int] = set()
        self.answered: set[int] = set()
        self.last: dict[int, JobSnapshot] = {}  # by job, as its last hook has shown it
        self._said: tuple[str, ...] = ()

    # --- what the job manager's service calls

    def news(self) -> PluginInterests | None:
        handled = tuple(sorted({topic for moods in self.moods.values() for topic in moods}))
        if handled == self._said:
            return None
        self._said = handled
        return PluginInterests(handled)

    def ask(self, question: AskHook) -> HookAnswer | None:
        assert question.ticket not in self.asked
        self.asked.add(question.ticket)
        if question.job is not None:
            self.check_order(question, question.job)
        names = [each for each in self.moods if question.only in (None, each)]
        return self.go_on(question, names, HookAnswer())

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        return JobsAnswered(question.ticket, tuple(self.ask(each) for each in question.questions()))

    def cancel(self, ticket: int) -> None:
        del self.pending[ticket]
        self.answered.add(ticket)

    def notify(self, topic: str, job: JobView, args: Any = None) -> None:
        assert job.id not in {each.question.job and each.question.job.id for each in self.open()}

    # --- what plugins do

    def open(self) -> Iterator[Pending]:
        return iter(self.pending.values())

    def check_order(self, question: AskHook, job: JobView) -> None:
        """One question about a job at a time; its states come one after another."""
        assert all(each.question.job and each.question.job.id != job.id for each in self.open())
        if question.topic in STATE_TOPICS.values():
            assert question.topic == STATE_TOPICS[job.state]
        assert isinstance(job, JobSnapshot)
        before = self.last.get(job.id, job)
        assert before.posted & job.posted == before.posted, "no hook shows an earlier moment"
        came_back = (before.state, job.state) == (JobState.SCHED, JobState.PRIORITY)
        assert before.state <= job.state or came_back
        self.last[job.id] = job

    def go_on(self, question: AskHook, names: list[str], said: HookAnswer) -> HookAnswer | None:
        """Ask these plugins; the answer, or None when one of them thinks."""
        for place, name in enumerate(names):
            mood = self.moods.get(name, {}).get(question.topic, "silent")
            if mood == "later":
                rest = names[place + 1 :]
                self.pending[question.ticket] = Pending(question, name, rest, said)
                return None
            said = merged(said, self.answer(question, name, mood))
            if said.error or said.reject:
                break
        assert question.ticket not in self.answered
        self.answered.add(question.ticket)
        return said

    def answer(self, question: AskHook, name: str, mood: str) -> HookAnswer:
        """What the plugin `name` says at once in this mood."""
        job = question.job
        assert job is not None
        match mood:
            case "fails":
                return HookAnswer(error=f"plugin {name} failed")
            case "refuses" if question.topic in REFUSABLE:
                return HookAnswer(reject="no")
            case "ranks":
                return HookAnswer(priority=job.urgency)
            case "cannot rank":
                return HookAnswer(priority=UNAVAILABLE)
            case "opens" if job.state in OPENED:
                opener, _ = OPENED[job.state]
                post = PostEvent(job.id, opener, {"description": name}, name)
                return HookAnswer(operations=(post,))
            case "allocates" if question.topic == STATE_TOPICS[JobState.SCHED]:
                return HookAnswer(resource_set=R)
            case "allows":
                return HookAnswer(handled=True)
            case "ends it" if job.state != JobState.NEW:
                context: dict[str, Any] = {"type": "x", "severity": 0, "note": "", "userid": 1}
                post = PostEvent(job.id, "exception", context, name)
                return HookAnswer(operations=(post,))
        return HookAnswer()


class HookMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.jobids: list[int] = []
        self.crowd = Crowd()
        self.start(ManagerScript(plugins=self.crowd, peers=True))

    def start(self, m: ManagerScript) -> None:
        self.m = m
        self.seen = 0
        self.alloced: list[int] = []
        self.started: list[int] = []
        self.freeing: list[int] = []

    @initialize(moods=st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(MOODS), min_size=3))
    def begin(self, moods: dict[str, str]) -> None:
        self.crowd.moods["a"] = moods
        self.jobids += [1, 2]
        self.m.submit(1, 2)

    # --- plugins

    @rule(
        name=st.sampled_from(["a", "b", BASE]),
        topic=st.sampled_from(TOPICS),
        mood=st.sampled_from(MOODS),
    )
    def becomes(self, name: str, topic: str, mood: str) -> None:
        if name in self.crowd.moods:
            self.crowd.moods[name][topic] = mood

    @rule(
        name=st.sampled_from(["a", "b"]),
        handles=st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(MOODS), max_size=5),
        order=st.sampled_from(["none", "state", "-state"]),
    )
    def loaded(self, name: str, handles: dict[str, str], order: str) -> None:
        if name not in self.crowd.moods:
            self.crowd.moods[name] = handles
            self.m.put(PluginsChanged(name, order))

    @rule(name=st.sampled_from(["a", "b"]))
    def removed(self, name: str) -> None:
        if self.crowd.moods.pop(name, None) is None:
            return
        for each in list(self.crowd.open()):
            if each.plugin == name:
                self.goes_on(each)
        self.m.put(PluginsChanged())

    def goes_on(self, pending: Pending) -> None:
        ticket = pending.question.ticket
        if self.crowd.pending.pop(ticket, None) is None:
            return  # a fatal exception has ended it meanwhile
        said = self.crowd.go_on(pending.question, pending.rest, pending.said)
        if said is not None:
            self.m.put(HookAnswered(ticket, said))

    @precondition(lambda self: self.crowd.pending)
    @rule(data=st.data(), mood=st.sampled_from(MOODS))
    def answers(self, data: st.DataObject, mood: str) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.crowd.pending)))
        pending = self.crowd.pending[ticket]
        pending.said = merged(
            pending.said, self.crowd.answer(pending.question, pending.plugin, mood)
        )
        self.goes_on(pending)

    @precondition(lambda self: self.crowd.answered)
    @rule(data=st.data())
    def answers_again(self, data: st.DataObject) -> None:
        """It leads to nothing."""
        ticket, asked = data.draw(st.sampled_from(sorted(self.crowd.answered))), {*self.crowd.asked}
        assert self.m.put(HookAnswered(ticket, HookAnswer(priority=3))) == []
        assert self.crowd.asked == asked

    @precondition(lambda self: self.jobids)
    @rule(data=st.data(), post=st.sampled_from(POSTS), priority=st.sampled_from([None, 0, 5]))
    def operates(self, data: st.DataObject, post: Posted, priority: int | None) -> None:
        jobid = data.draw(st.sampled_from(self.jobids))
        annotate = Annotate(jobid, {"user": {"b": priority}}, "a")
        posts = (PostEvent(jobid, *post, "a"), SetPriority(jobid, priority, "a"), annotate)
        self.m.put(*posts)

    @rule()
    def asks_for_all_again(self) -> None:
        self.m.put(Reprioritize("a"))

    # --- all the others

    @rule(often=st.sampled_from([False, False, False, True]))
    def restarted(self, *, often: bool) -> None:
        if often:
            moods, self.crowd = self.crowd.moods, Crowd()
            self.crowd.moods = moods
            self.start(self.m.restarted(plugins=self.crowd, peers=True))

    @precondition(lambda self: self.jobids)
    @rule(data=st.data())
    def updated(self, data: st.DataObject) -> None:
        jobid = data.draw(st.sampled_from(self.jobids))
        self.m.ask(topics.JOB_UPDATE, {"id": jobid, "updates": {DURATION: 9}})

    @rule(count=st.integers(1, 3), urgency=st.sampled_from([0, 16, 31]))
    def submit(self, count: int, urgency: int) -> None:
        jobids = range(len(self.jobids) + 1, len(self.jobids) + count + 1)
        self.jobids += jobids
        self.m.submit(*jobids, urgency=urgency)

    @precondition(lambda self: self.crowd.pending)
    @rule(data=st.data(), severity=st.sampled_from([0, 3]))
    def raise_exception_meanwhile(self, data: st.DataObject, severity: int) -> None:
        pending = self.crowd.pending[data.draw(st.sampled_from(sorted(self.crowd.pending)))]
        assert pending.question.job is not None
        self.m.raise_(pending.question.job.id, severity, "x")

    @precondition(lambda self: self.jobids)
    @rule(data=st.data(), severity=st.sampled_from([0, 3]))
    def raise_exception(self, data: st.DataObject, severity: int) -> None:
        self.m.raise_(data.draw(st.sampled_from(self.jobids)), severity, "x")

    @precondition(lambda self: self.jobids)
    @rule(data=st.data(), urgency=st.sampled_from([0, 5, 31]))
    def urgency(self, data: st.DataObject, urgency: int) -> None:
        self.m.urgency(data.draw(st.sampled_from(self.jobids)), urgency)

    @rule(count=st.integers(1, 3))
    def peers_answer(self, count: int) -> None:
        lists = {
            topics.SCHED_ALLOC: self.alloced,
            topics.SCHED_FREE: self.freeing,
            "job-exec.start": self.started,
        }
        for message in self.m.messages[self.seen :]:
            if isinstance(message, Request) and message.topic in lists:
                assert isinstance(message.payload, dict)
                jobid = message.payload["id"]
                lists[message.topic].append(jobid)
                if message.topic == "job-exec.start":
                    job = self.m.core.get(jobid)
                    assert not job.prologs or job.state == JobState.CLEANUP, "21.events.22"
        self.seen = len(self.m.messages)
        for _ in range(count):
            if self.alloced:
                granted = self.alloced.pop(0)
                self.m.store_r(granted, {0: [granted]})  # a plugin may have stored another
                self.m.alloc(granted)
            if self.started:
                self.m.execute(self.started.pop(0), "start", "finish", "release final")
            if self.freeing:
                self.m.freed(self.freeing.pop(0))

    @invariant()
    def core_and_plugins_agree_on_what_is_open(self) -> None:
        assert set(self.m.core._parts.hooks.open) == set(self.crowd.pending)

    @invariant()
    def what_is_counted_as_jobs_change_is_what_there_is(self) -> None:
        states = Counter(job.state.name.lower() for job in self.m.core.active())
        counted = Counter(self.m.stats()["states"])
        del counted["inactive"]
        assert counted == states

    # --- the end

    def teardown(self) -> None:
        """The plugins come to their senses, and then no job is stuck."""
        self.crowd.moods = {BASE: dict(SANE)}
        for each in list(self.crowd.open()):
            self.goes_on(each)
        self.m.put(PluginsChanged())
        for jobid in self.jobids:
            for name, (_, closer) in product(("a", "b", BASE), OPENED.values()):
                status = {} if "remove" in closer else {"status": 0}
                self.m.post(jobid, closer, description=name, **status)
        for _ in range(3 * len(self.jobids)):
            self.peers_answer(3)
        for jobid in self.jobids:  # those that their users hold
            if self.m.names(jobid) and self.m.job(jobid).urgency == 0:
                self.m.raise_(jobid)
        self.peers_answer(len(self.jobids))
        for jobid in self.jobids:  # what was opened after that
            self.m.post(jobid, "epilog-finish", description="a", status=0)
        self.peers_answer(len(self.jobids))
        assert not self.crowd.pending
        assert self.crowd.asked == self.crowd.answered, "each question was answered once"
        stuck = {
            name: count
            for name, count in self.m.stats()["states"].items()
            if count and name != "inactive"
        }
        assert not stuck, [(each, self.m.names(each)) for each in self.jobids]


TestHooks = HookMachine.TestCase
TestHooks.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
