"""An ingest that is put down and taken up at any moment says what it would have said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from flux_trio.cores.ingest.core import AGAIN_S, IngestCore
from flux_trio.cores.turns import ClockStepped, TimerFired
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import GUEST_USERID, asked, asked_by_guest, gone, service_back
from tests.support.reborn_twin import Twins
from tests.support.sched_script import jobspec

pytestmark = pytest.mark.gate

ERRNUMS = [0, 0, int(Errno.ENOSPC), int(Errno.ENOSYS), int(Errno.EAGAIN)]


class Reborn(RuleBasedStateMachine):
    """All that an ingest hears, in any order."""

    @initialize()
    def start(self) -> None:
        self.twins = Twins(IngestCore)
        self.now = 1000.0
        self.open: list[Request] = []
        self.take(self.twins.start(self.now))

    def take(self, actions: list[Any]) -> None:
        self.open += [each for each in actions if isinstance(each, Request) and each.matchtag]

    @rule()
    def put_down(self) -> None:
        self.twins.put_down_and_take_up()

    @rule(count=st.integers(1, 3), is_owner=st.booleans(), tag=st.integers(1, 9))
    def submit(self, count: int, is_owner: bool, tag: int) -> None:
        payload = {"jobspec": jobspec(count)}
        if is_owner:
            request = asked(topics.INGEST_SUBMIT, payload, tag=tag)
        else:
            request = asked_by_guest(topics.INGEST_SUBMIT, payload)
        self.now += 0.001
        self.take(self.twins.turn(self.now, [request] * count))

    @rule(data=st.data(), errnum=st.sampled_from(ERRNUMS))
    def answer(self, data: st.DataObject, errnum: int) -> None:
        if not self.open:
            return
        request = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        is_start = request.topic == topics.JOB_GETINFO
        errnum = errnum if not is_start or errnum == Errno.ENOSYS else 0
        payload = None if errnum else self.answer_to(request, data)
        response = Response(request.topic, payload, errnum, request.matchtag)
        self.take(self.twins.turn(self.now, [response]))

    def answer_to(self, request: Request, data: st.DataObject) -> Any:
        assert isinstance(request.payload, dict) or request.payload is None
        match request.topic:
            case topics.JOB_GETINFO:
                return {"max_jobid": 0}
            case topics.JOB_SUBMIT_ROOM:
                assert request.payload is not None
                full = st.sampled_from([None, "too many"])
                return {"refusals": [data.draw(full) for _ in request.payload["jobspecs"]]}
            case topics.JOB_SUBMIT:
                assert request.payload is not None
                refused = [job["id"] for job in request.payload["jobs"] if data.draw(st.booleans())]
                full = [GUEST_USERID] if data.draw(st.booleans()) else []
                return {"errors": [[jobid, "no"] for jobid in refused], "full": full}
        return {}

    @rule()
    def job_manager_is_back(self) -> None:
        self.take(self.twins.turn(self.now, [service_back(topics.JOB_MANAGER)]))

    @rule()
    def time_comes(self) -> None:
        self.now += AGAIN_S
        self.take(self.twins.turn(self.now, [TimerFired("again")]))

    @rule(by=st.sampled_from([-60.0, 60.0]))
    def clock_is_set(self, by: float) -> None:
        self.take(self.twins.turn(self.now, [ClockStepped(by)]))

    @rule()
    def submitter_goes(self) -> None:
        self.take(self.twins.turn(self.now, [gone(topics.JOB_INGEST, "client")]))


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
