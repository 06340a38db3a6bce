"""A job manager that is put down and taken up at any moment does what it would have done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flux_trio.config import parse_config
from flux_trio.cores.turns import ClockStepped
from flux_trio.editions.rfc27 import AllocType
from flux_trio.messages import topics
from tests.support.asking import OWNER_USERID
from tests.support.manager_script import USERID, alloc_answer
from tests.support.manager_twins import TwinScript

pytestmark = pytest.mark.gate

QUEUES = """
[queues.batch]
[queues.debug]
[policy.jobspec.defaults.system]
queue = "batch"
"""


class Reborn(RuleBasedStateMachine):
    """All that a job manager hears of jobs, peers, queues and users, in any order."""

    @initialize(named_queues=st.booleans(), peers=st.booleans())
    def begin(self, *, named_queues: bool, peers: bool) -> None:
        config = parse_config(QUEUES) if named_queues else None
        self.m = TwinScript(config=config, peers=peers)
        self.queues = ["batch", "debug"] if named_queues else [None]
        self.jobids: list[int] = []
        self.done = 0  # messages that peers have looked at
        self.asked: list[int] = []
        self.started: list[int] = []
        self.freeing: list[int] = []

    def listen(self) -> None:
        """What peers have been asked since the last time."""
        heard, self.done = self.m.messages[self.done :], len(self.m.messages)
        lists = {
            topics.SCHED_ALLOC: self.asked,
            topics.SCHED_FREE: self.freeing,
            "job-exec.start": self.started,
        }
        for message in heard:
            if message.topic in lists and isinstance(message.payload, dict):
                lists[message.topic].append(message.payload["id"])

    @rule()
    def put_down(self) -> None:
        self.m.core.put_down_and_take_up()

    @rule(
        count=st.integers(1, 4),
        urgency=st.sampled_from([0, 16, 31]),
        userid=st.sampled_from([USERID, OWNER_USERID]),
        data=st.data(),
    )
    def submit(self, count: int, urgency: int, userid: int, data: st.DataObject) -> None:
        jobids = range(len(self.jobids) + 1, len(self.jobids) + count + 1)
        queue = data.draw(st.sampled_from(self.queues))
        attributes = {} if queue is None else {"queue": queue}
        self.m.submit(*jobids, urgency=urgency, userid=userid, **attributes)
        self.jobids += jobids

    # --- peers

    @rule(count=st.integers(1, 3), kind=st.sampled_from([AllocType.SUCCESS, *AllocType]))
    def scheduler_answers(self, count: int, kind: AllocType) -> None:
        self.listen()
        answers = [alloc_answer(jobid, kind) for jobid in self.asked[:count]]
        if kind == AllocType.ANNOTATE:
            more = {"annotations": {"sched": {"t_estimate": 5}}}
            answers = [alloc_answer(jobid, kind, **more) for jobid in self.asked[:count]]
        else:
            del self.asked[:count]
        if answers:
            self.m.put(*answers)

    @precondition(lambda self: self.freeing)
    @rule()
    def scheduler_frees(self) -> None:
        self.m.freed(self.freeing.pop())

    @rule(limit=st.sampled_from([None, 1, 3]))
    def scheduler_comes(self, limit: int | None) -> None:
        self.m.hello()
        self.asked.clear()
        self.freeing.clear()
        self.done = len(self.m.messages)
        self.m.ready(limit)

    @rule(peer=st.sampled_from(["sched", "job-exec", "client", "job-ingest"]))
    def peer_goes(self, peer: str) -> None:
        self.m.gone(peer)

    @rule()
    def execution_comes(self) -> None:
        self.started.clear()
        self.m.attach_exec()

    @rule(
        kinds=st.sampled_from(
            [("start",), ("start", "finish", "release final"), ("exception 0",), ("release 0",)]
        )
    )
    def execution_answers(self, kinds: tuple[str, ...]) -> None:
        self.listen()
        if self.started:
            self.m.execute(self.started[-1], *kinds)
            if kinds[-1] == "release final":
                self.started.pop()

    @rule(waits=st.booleans())
    def commits_wait(self, *, waits: bool) -> None:
        self.m.commits_wait = waits
        while self.m.commits and not waits:
            self.m.commit()

    # --- users

    @precondition(lambda self: self.jobids)
    @rule(data=st.data())
    def about_a_job(self, data: st.DataObject) -> None:
        jobid = data.draw(st.sampled_from(self.jobids))
        topic, payload = data.draw(
            st.sampled_from(
                [
                    (topics.JOB_RAISE, {"severity": 0, "type": "cancel"}),
                    (topics.JOB_RAISE, {"severity": 3, "type": "note"}),
                    (topics.JOB_URGENCY, {"urgency": 0}),
                    (topics.JOB_URGENCY, {"urgency": 20}),
                    (topics.JOB_MEMO, {"memo": {"a": 1}}),
                    (topics.JOB_KILL, {"signum": 15}),
                    (topics.JOB_PURGE_ID, {"force": True}),
                    (topics.JOB_UPDATE, {"updates": {"attributes.system.duration": 5.0}}),
                ]
            )
        )
        self.m.ask(topic, {"id": jobid, **payload})

    @rule(
        asked=st.sampled_from(
            [
                (topics.JOB_DRAIN, None),
                (topics.JOB_IDLE, None),
                (topics.JOB_HISTORY, {"slice": "[:]"}),
                (topics.JOB_STATS, None),
                (topics.JOB_PURGE, {"num_limit": 1, "force": True}),
                (topics.JOB_RESOURCE_STATUS, None),
                (topics.JOB_HINDRANCE, {"reason": "it is ill"}),
            ]
        )
    )
    def ask(self, asked: tuple[str, Any]) -> None:
        self.m.ask(*asked)

    @rule()
    def follow(self) -> None:
        self.m.ask(topics.JOB_JOURNAL, streaming=True)

    @rule(start=st.booleans(), data=st.data())
    def queue(self, data: st.DataObject, *, start: bool) -> None:
        self.m.queue(data.draw(st.sampled_from(self.queues)), start=start)

    @rule(limit=st.sampled_from([None, 0, 2]))
    def configure(self, limit: int | None) -> None:
        limits = "" if limit is None else f"[job-manager]\ninactive-num-limit = {limit}\n"
        self.m.configure(parse_config(limits + ("" if None in self.queues else QUEUES)))

    @precondition(lambda self: self.jobids)
    @rule(
        data=st.data(),
        post=st.sampled_from(
            [
                ("prolog-start", {"description": "p"}),
                ("prolog-finish", {"description": "p", "status": 0}),
                ("epilog-start", {"description": "e"}),
                ("epilog-finish", {"description": "e", "status": 0}),
                ("dependency-add", {"description": "d"}),
                ("dependency-remove", {"description": "d"}),
            ]
        ),
    )
    def plugin_posts(self, data: st.DataObject, post: tuple[str, dict[str, Any]]) -> None:
        name, context = post
        self.m.post(data.draw(st.sampled_from(self.jobids)), name, **context)

    @rule(seconds=st.sampled_from([0.125, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.m.wait(seconds)

    @rule(by=st.sampled_from([-3600.0, 7.0]))
    def clock_steps(self, by: float) -> None:
        self.m.put(ClockStepped(by))


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
