"""A kvs that is put down and taken up at any moment answers what it would have answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Fetch, Fetched, Stored, StoreOps
from flux_trio.cores.turns import TimerFired
from flux_trio.messages import Errno, topics
from flux_trio.store.stores import MemoryStore
from tests.support.asking import asked, gone, service_back
from tests.support.reborn_twin import Twins

pytestmark = pytest.mark.gate

KEYS = st.sampled_from(["a", "a.b", "a.b.c", "d"])
PEERS = st.sampled_from(["alice", "bob"])
TAGS = st.integers(1, 5)


class Reborn(RuleBasedStateMachine):
    """All that a kvs hears, in any order; its store works for as long as it likes."""

    @initialize()
    def start(self) -> None:
        self.twins = Twins(KvsCore)
        self.store = MemoryStore()
        self.now = 1.0
        self.work: list[Any] = []
        self.twins.start(self.now)

    def turn(self, *inputs: Any) -> None:
        for action in self.twins.turn(self.now, inputs):
            if isinstance(action, StoreOps | Fetch):
                self.work.append(action)

    @rule()
    def put_down(self) -> None:
        self.twins.put_down_and_take_up()

    @rule(by=PEERS, tag=TAGS, key=KEYS, op=st.sampled_from(["put", "append", "unlink"]))
    def commit(self, by: str, tag: int, key: str, op: str) -> None:
        text = [] if op == "unlink" else ["text"]
        payload = {"ops": [[op, key, *text]], "wait": tag != 5}
        self.turn(asked(topics.KVS_COMMIT, payload, by=by, tag=tag))

    @rule(by=PEERS, tag=TAGS, key=KEYS)
    def lookup(self, by: str, tag: int, key: str) -> None:
        self.turn(asked(topics.KVS_LOOKUP, {"key": key}, by=by, tag=tag))
        self.turn(asked(topics.KVS_LOOKUP_ALL, {"keys": [key, "d"]}, by=by, tag=tag))
        self.turn(asked(topics.KVS_DIR, {"prefix": key}, by=by, tag=tag))

    @rule(by=PEERS, tag=TAGS, key=KEYS, credit=st.sampled_from([None, 1]))
    def watch(self, by: str, tag: int, key: str, credit: int | None) -> None:
        payload = {"key": key} if credit is None else {"key": key, "credit": credit}
        self.turn(asked(topics.KVS_WATCH, payload, by=by, tag=tag, streaming=True))

    @rule(by=PEERS, tag=TAGS)
    def grant_or_cancel(self, by: str, tag: int) -> None:
        topic = topics.credit_of(topics.KVS_WATCH) if tag > 2 else topics.KVS_CANCEL
        self.turn(asked(topic, {"matchtag": tag, "credit": 1}, by=by, tag=9))

    @rule(errnum=st.sampled_from([0, 0, 0, int(Errno.ENOSPC)]))
    def store_works(self, errnum: int) -> None:
        work, self.work = self.work, []
        for action in work:
            if isinstance(action, Fetch):
                found = [self.store.dir(prefix) for prefix in action.prefixes]
                self.turn(Fetched(self.store.lookup(action.keys), found))
            elif errnum:
                self.turn(Stored(errnum, "disk is full"))
            else:
                self.store.commit(action.ops)
                self.turn(Stored())

    @rule()
    def time_passes(self) -> None:
        self.now += 1
        self.turn(TimerFired("retry"))

    @rule(by=PEERS)
    def peer_goes(self, by: str) -> None:
        self.turn(gone(topics.KVS, by))

    @rule()
    def job_manager_is_back(self) -> None:
        self.turn(service_back(topics.JOB_MANAGER))


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
