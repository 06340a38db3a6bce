"""A job list that is put down and taken up at any moment tells what it would have told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flux_trio.cores.job_list import JobListCore
from flux_trio.cores.turns import ClearTimer, ClockStepped, SetTimer, TimerFired
from flux_trio.formats import Event
from flux_trio.messages import topics
from tests.support.asking import GUEST_USERID, asked, asked_by_guest, gone, service_back
from tests.support.eventlogs import canceled, inactive
from tests.support.listing import STATES, ListedJobs
from tests.support.reborn_twin import Twins

pytestmark = pytest.mark.gate

TAGS = st.integers(1, 4)
PEERS = st.sampled_from(["alice", "bob"])
JOBS_MAX = 6


class TwinListed(ListedJobs):
    """The job list with twins in place of its core."""

    def __init__(self) -> None:
        super().__init__()
        self.core: Any = Twins(JobListCore)
        self.now = 1000.0
        self.due: set[Any] = set()  # keys of timers

    def turn(self, *inputs: Any, now: float = 0.0) -> None:
        super().turn(*inputs, now=max(self.now, now))

    def do(self, actions: list[Any]) -> None:
        others = []
        for action in actions:
            if isinstance(action, SetTimer):
                self.due.add(action.key)
            elif isinstance(action, ClearTimer):
                self.due.discard(action.key)
            else:
                others.append(action)
        super().do(others)


class Reborn(RuleBasedStateMachine):
    """All that a job list hears, in any order."""

    @initialize(
        earlier=st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=2, max_size=3),
        waits=st.booleans(),
    )
    def start(self, earlier: list[tuple[int, bool]], waits: bool) -> None:
        self.listed = TwinListed()
        self.logs: dict[int, list[Event]] = {}  # all events of each job
        self.place: dict[int, int] = {}  # how many have happened
        for length, is_canceled in earlier:
            jobid = self.job_comes(is_canceled)
            length = min(length, len(self.logs[jobid]))
            self.listed.store_log(jobid, self.logs[jobid][:length])
            self.place[jobid] = length
        self.listed.waits = waits
        self.listed.start()
        self.listed.let_kvs_answer()

    def job_comes(self, is_canceled: bool) -> int:
        jobid = len(self.logs) + 1
        userid = GUEST_USERID if jobid % 2 else 1000
        self.logs[jobid] = canceled() if is_canceled else inactive(userid=userid)
        self.place[jobid] = 0
        self.listed.store_jobspec(jobid)
        return jobid

    def ask(self, topic: str, payload: Any, **how: Any) -> None:
        self.listed.turn(asked(topic, payload, **how))

    @invariant()
    def put_down(self) -> None:
        self.listed.core.put_down_and_take_up()

    @precondition(lambda self: len(self.logs) < JOBS_MAX)
    @rule(is_canceled=st.booleans())
    def new_job(self, is_canceled: bool) -> None:
        self.goes_on(self.job_comes(is_canceled), 1)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), count=st.integers(1, 4))
    def job_goes_on(self, data: st.DataObject, count: int) -> None:
        self.goes_on(data.draw(st.sampled_from(sorted(self.logs))), count)

    def goes_on(self, jobid: int, count: int) -> None:
        first = self.place[jobid]
        events = self.logs[jobid][first : first + count]
        self.place[jobid] += len(events)
        if self.listed.journal is not None:
            self.listed.tell_all(jobid, events, first)
        elif events:
            self.listed.store_log(jobid, events)

    @rule(
        by=PEERS,
        tag=TAGS,
        credit=st.sampled_from([None, 1]),
        max_entries=st.sampled_from([0, 2]),
        streaming=st.booleans(),
    )
    def list_jobs(
        self, by: str, tag: int, credit: int | None, max_entries: int, streaming: bool
    ) -> None:
        wanted: dict[str, Any] = {"states": STATES, "max_entries": max_entries}
        if credit is not None and streaming:
            wanted["credit"] = credit
        self.ask(topics.LIST_LIST, wanted, by=by, tag=tag, streaming=streaming)

    @rule(jobid=st.integers(1, 3), is_owner=st.booleans())
    def one_job(self, jobid: int, is_owner: bool) -> None:
        ask = asked if is_owner else asked_by_guest
        self.listed.turn(ask(topics.LIST_ID, {"id": jobid}))
        wanted = {"id": jobid, "keys": ["jobspec", "eventlog", "none"], "current": is_owner}
        self.listed.turn(ask(topics.INFO_LOOKUP, wanted))
        self.listed.turn(ask(topics.LIST_STATS))

    @rule(
        by=PEERS,
        tag=TAGS,
        jobid=st.integers(1, JOBS_MAX),
        credit=st.sampled_from([None, 1]),
        path=st.sampled_from(["eventlog", "guest.exec.eventlog"]),
        follow=st.booleans(),
    )
    def watch(
        self, by: str, tag: int, jobid: int, credit: int | None, path: str, follow: bool
    ) -> None:
        wanted: dict[str, Any] = {"id": jobid, "path": path, "follow": follow}
        if credit is not None:
            wanted["credit"] = credit
        self.ask(topics.INFO_WATCH, wanted, by=by, tag=tag, streaming=True)

    @rule(by=PEERS, tag=TAGS, topic=st.sampled_from([topics.LIST_LIST, topics.INFO_WATCH]))
    def grant(self, by: str, tag: int, topic: str) -> None:
        self.ask(topics.credit_of(topic), {"matchtag": tag, "credit": 2}, by=by, tag=9)

    @rule(by=PEERS, tag=TAGS, topic=st.sampled_from([topics.LIST_CANCEL, topics.INFO_WATCH_CANCEL]))
    def cancel(self, by: str, tag: int, topic: str) -> None:
        self.ask(topic, {"matchtag": tag}, by=by, tag=9)

    @rule(by=PEERS)
    def peer_goes(self, by: str) -> None:
        self.listed.turn(gone(topics.JOB_LIST, by))
        self.listed.turn(gone(topics.JOB_INFO, by))

    @rule(waits=st.sampled_from([True, True, False]))
    def kvs_waits(self, waits: bool) -> None:
        self.listed.waits = waits
        self.listed.let_kvs_answer()

    @rule()
    def time_passes(self) -> None:
        self.listed.now += 60
        due, self.listed.due = self.listed.due, set()
        for key in sorted(due, key=repr):
            self.listed.turn(TimerFired(key))

    @rule(by=st.sampled_from([-3600.0, 7.0]))
    def clock_steps(self, by: float) -> None:
        self.listed.now += by
        self.listed.turn(ClockStepped(by))

    @precondition(lambda self: self.listed.journal is not None)
    @rule()
    def job_manager_goes(self) -> None:
        self.listed.lose_journal()

    @rule()
    def job_manager_is_back(self) -> None:
        before = self.listed.journal
        self.listed.turn(service_back(topics.JOB_MANAGER))
        if self.listed.journal is not None and self.listed.journal is not before:
            self.listed.tell()


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
