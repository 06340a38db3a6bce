"""A resource service that is put down and taken up at any moment says what it would have said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import ResourceCore, inventory_from_config
from flux_trio.cores.resource.checks import Checked, NotChecked, RunCheck
from flux_trio.cores.turns import ClockStepped, TimerFired
from flux_trio.formats import Idset
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import asked, gone
from tests.support.reborn_twin import Twins

pytestmark = pytest.mark.gate

INVENTORY = inventory_from_config([ResourceEntry("node[0-3]", cores="0-3")])
RANKS = st.integers(0, 4).map(str)
PEERS = st.sampled_from(["sched", "other"])


class Reborn(RuleBasedStateMachine):
    """All that a resource service hears, in any order."""

    @initialize(check=st.sampled_from([None, 5.0]), exclude=st.sampled_from(["", "3"]))
    def start(self, check: float | None, exclude: str) -> None:
        self.twins = Twins(
            lambda: ResourceCore(
                INVENTORY, Idset.parse(exclude), missing={2: "no core"}, check_interval_s=check
            )
        )
        self.now = 1.0
        self.checked: set[int] = set()  # targets that a check was asked of
        self.waiting: list[Request] = []
        self.take(self.twins.start(self.now))

    def take(self, actions: list[Any]) -> None:
        self.waiting += [each for each in actions if isinstance(each, Request)]
        self.checked |= {each.target for each in actions if isinstance(each, RunCheck)}

    def turn(self, *inputs: Any) -> None:
        self.take(self.twins.turn(self.now, inputs))

    @rule()
    def put_down(self) -> None:
        self.twins.put_down_and_take_up()

    @rule(errnum=st.sampled_from([0, 0, 0, int(Errno.EINVAL)]))
    def kvs_answers(self, errnum: int) -> None:
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            failed = errnum if request.topic == topics.KVS_COMMIT else int(Errno.ENOENT)
            self.turn(Response(request.topic, None, failed, request.matchtag))

    @rule(by=PEERS, group=st.sampled_from(["default", "exclude", "none"]), tag=st.integers(1, 9))
    def acquire(self, by: str, group: str, tag: int) -> None:
        self.turn(asked(topics.RESOURCE_ACQUIRE, {"group": group}, by=by, tag=tag, streaming=True))

    @rule(by=PEERS, ranks=RANKS)
    def release(self, by: str, ranks: str) -> None:
        payload = {"group": "default", "targets": ranks}
        self.turn(asked(topics.RESOURCE_RELEASE, payload, by=by, tag=3))

    @rule(
        topic=st.sampled_from(
            [
                topics.RESOURCE_DRAIN,
                topics.RESOURCE_UNDRAIN,
                topics.RESOURCE_DOWN,
                topics.RESOURCE_UP,
                topics.RESOURCE_EXCLUDE,
            ]
        ),
        ranks=RANKS,
    )
    def administer(self, topic: str, ranks: str) -> None:
        self.turn(asked(topic, {"targets": ranks}, tag=4))

    @rule()
    def status(self) -> None:
        self.turn(asked(topics.RESOURCE_STATUS, None, tag=5))

    @rule(by=PEERS)
    def peer_goes(self, by: str) -> None:
        self.turn(gone(topics.RESOURCE, by))

    @rule(rank=st.integers(0, 3), problem=st.sampled_from([None, "no disk"]), can=st.booleans())
    def check(self, rank: int, problem: str | None, can: bool) -> None:
        if rank in self.checked:
            self.turn(Checked(rank, problem) if can else NotChecked(rank, "no such file"))

    @rule(expiration=st.sampled_from([0.0, 100.0]))
    def instance_gets_another_end(self, expiration: float) -> None:
        self.turn(asked(topics.RESOURCE_EXPIRATION, {"expiration": expiration}, tag=6))

    @rule()
    def time_passes(self) -> None:
        self.now += 5
        self.turn(TimerFired("check"))

    @rule()
    def clock_steps(self) -> None:
        self.now += 60
        self.turn(ClockStepped(60))


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
