"""Plugins that say anything, at once or later, and all that happens meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from flux_trio.formats import ResourceSet
from flux_trio.messages import Request, topics
from flux_trio.protocols import (
    STATE_TOPICS,
    UNAVAILABLE,
    Annotate,
    AskHook,
    HookAnswer,
    HookAnswered,
    JobState,
    Operation,
    PluginsChanged,
    PostEvent,
    Reprioritize,
    SetPriority,
)
from tests.support.instant_kvs import InstantKvs
from tests.support.manager_script import PRIORITIZE, ManagerScript, Posted

DURATION = "attributes.system.duration"
R: dict[str, Any] = dict(ResourceSet.build([(0, 1, 0)], "node{}".format, nslots=1).to_json())
POSTS: list[Posted] = [
    ("memo", {"a": 1}),
    ("weather", {"sky": "blue"}),
    ("finish", {"status": 0}),
    ("exception", {"type": "x", "severity": 0, "note": ""}),
    ("exception", {"type": "x", "severity": 3, "note": ""}),
    ("jobspec-update", {DURATION: 5}),
    ("jobspec-update", {"attributes.system.a": 2}),
    ("urgency", {"urgency": 0, "userid": 1}),
    ("urgency", {"urgency": 17, "userid": 1}),
    ("set-flags", {"flags": ["waitable"]}),
]
PAIRS = [("dependency-add", "dependency-remove"), ("prolog-start", "prolog-finish")]
PAIRS += [("epilog-start", "epilog-finish")]
STATES = list(STATE_TOPICS.values())
TOPICS = [*STATES, "job.create", "job.validate", "job.new", "job.update", "job.priority.get"]
TOPICS += [f"job.update.{DURATION}"]


class Chaos:
    """A job manager among plugins, a scheduler and an execution service that do as they like."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.jobids: list[int] = []
        self.begin(InstantKvs())

    def begin(self, kvs: InstantKvs) -> None:
        """A life of the job manager."""
        self.later: list[AskHook] = []
        self.m = ManagerScript(kvs=kvs, answers=dict.fromkeys(TOPICS, self.say), peers=True)
        self.m.plugins.ask = self.ask  # type: ignore[method-assign]  # what else a plugin may do
        self.out: set[int] = set()  # asked of the scheduler, not answered
        self.started: set[int] = set()
        self.freeing: list[int] = []
        self.seen = 0  # messages looked at

    def ask(self, question: AskHook) -> HookAnswer | None:
        if self.random.random() < 0.3:
            self.later.append(question)
            return None
        return self.say(question)

    def say(self, question: AskHook) -> HookAnswer:
        """Anything that the host would let pass."""
        assert question.job is not None
        choice = self.random.random()
        if choice < 0.04:
            return HookAnswer(error="plugin x failed")
        if choice < 0.06 and question.topic in ("job.create", "job.validate"):
            return HookAnswer(reject="no")
        with_r = question.topic == "job.state.sched" and choice < 0.1
        return HookAnswer(
            priority=self.random.choice([None, UNAVAILABLE, 0, 7, 9, 9]),
            operations=tuple(self.operation() for _ in range(self.random.choice([0, 0, 0, 1, 2]))),
            resource_set=R if with_r else None,
            handled=choice > 0.2,
            validated=choice > 0.5,
        )

    def operation(self) -> Operation:
        jobid = self.random.choice(self.jobids or [1])
        choice = self.random.random()
        if choice < 0.15:
            return SetPriority(jobid, self.random.choice([None, 0, 5, 6]), "x")
        if choice < 0.2:
            return Annotate(jobid, {"user": {"b": choice}}, "x")
        if choice < 0.25:
            return Reprioritize("x")
        if choice < 0.6:
            name = self.random.choice(self.random.choice(PAIRS))
            context: dict[str, Any] = {"description": self.random.choice("ab")}
            if name.endswith("finish"):
                context["status"] = 0
            return PostEvent(jobid, name, context, "x")
        name, context = self.random.choice(POSTS)
        return PostEvent(jobid, name, context, "x")

    def step(self) -> None:
        """Something happens."""
        m, jobid = self.m, self.random.choice(self.jobids or [0])
        what = self.random.randrange(15)
        if what <= 1 or not self.jobids:
            self.jobids.append(len(self.jobids) + 1)
            m.submit(self.jobids[-1], urgency=self.random.choice([0, 16, 31]))
        elif what <= 4 and self.later:
            question = self.later.pop(self.random.randrange(len(self.later)))
            m.put(HookAnswered(question.ticket, self.say(question)))
        elif what == 5:
            m.put(self.operation())
        elif what == 6:
            m.ask(topics.JOB_UPDATE, {"id": jobid, "updates": {DURATION: 9}})
        elif what == 7 and self.random.random() < 0.3:
            m.raise_(jobid)
        elif what == 8:
            m.urgency(jobid, self.random.choice([0, 5, 31]))
        elif what == 9:
            m.put(PluginsChanged("x" if self.random.random() < 0.5 else None, "state", 3))
        elif what == 10 and self.random.random() < 0.2:
            self.begin(m.kvs)
        else:
            self.peers()

    def peers(self) -> None:
        """Scheduler and execution service answer what they were asked."""
        for message in self.m.messages[self.seen :]:
            if not isinstance(message, Request) or not isinstance(message.payload, dict):
                continue
            jobid = message.payload.get("id", 0)
            match message.topic:
                case topics.SCHED_ALLOC:
                    self.out.add(jobid)
                case topics.SCHED_FREE:
                    self.freeing.append(jobid)
                case "job-exec.start":
                    self.check_start(jobid)
                    self.started.add(jobid)
        self.seen = len(self.m.messages)
        freeing, self.freeing = self.freeing, []
        for jobid in freeing:
            self.m.freed(jobid)
        if self.out and self.random.random() < 0.8:
            granted = self.out.pop()
            self.m.store_r(granted, {0: [granted]})  # a plugin may have stored another
            self.m.alloc(granted)
        if self.started and self.random.random() < 0.5:
            self.m.execute(self.started.pop(), "start", "finish", "release final")

    def check_start(self, jobid: int) -> None:
        """21.events.22: no start is asked for while a prolog is open, as far as it was known."""
        job = self.m.core.get(jobid)
        assert job is not None
        assert not job.prologs or job.state == JobState.CLEANUP

    def check_counts(self) -> None:
        """What is counted as jobs change is what there is."""
        jobs = list(self.m.core.active())
        states = Counter(job.state.name.lower() for job in jobs)
        counted = self.m.stats()["states"]
        assert {name: counted[name] for name in counted if name != "inactive"} == {
            name: states[name] for name in counted if name != "inactive"
        }

    def settle(self) -> None:
        """The plugins come to their senses, and whoever waits is let go."""
        self.m.plugins.ask = lambda question: self.sane(question)  # type: ignore[method-assign]  # the same
        while self.later:
            question = self.later.pop()
            self.m.put(HookAnswered(question.ticket, self.sane(question)))
        self.m.put(PluginsChanged())
        for jobid in self.jobids:
            job = self.m.core.get(jobid)
            if job is None or job.state == JobState.INACTIVE:
                continue
            self.m.raise_(jobid)
            for kind in ("prolog", "epilog"):
                for each in list(getattr(job, f"{kind}s") or ()):
                    self.m.post(jobid, f"{kind}-finish", description=each, status=0)
        for _ in range(50):
            self.peers()

    def sane(self, question: AskHook) -> HookAnswer:
        return HookAnswer(priority=1 if question.topic == PRIORITIZE else None, handled=True)


@pytest.mark.parametrize("seed", range(25))
def test_job_machine_survives_and_every_job_comes_to_its_end(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(15):
        for _ in range(10):
            chaos.step()
        chaos.check_counts()
    chaos.settle()
    stats = chaos.m.stats()
    assert stats["sched"]["link"] == "ready", chaos.m.messages[-5:]
    active = {name: count for name, count in stats["states"].items() if count}
    assert set(active) <= {"inactive"}, (active, [chaos.m.names(j) for j in chaos.jobids])
    for jobid in chaos.jobids:
        if chaos.m.log(jobid):  # else it was refused
            assert chaos.m.state(jobid) in (JobState.INACTIVE, JobState.NEW)  # legal, at its end
