"""What a scheduler is asked about jobs (RFC 27): grants, cancels, priorities, frees, durations."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from flux_trio.cores.turns import Log, TimerFired
from flux_trio.formats import job_key
from flux_trio.messages import Errno, Flag, Request, topics
from tests.support.asking import asked, asked_by_guest
from tests.support.sched_script import (
    MANAGER,
    SchedScript,
    alloc,
    answers,
    jobspec,
    only,
    sent,
    success,
    tell,
)
from tests.support.scheduling import machine


class TestAlloc:
    def test_r_is_durable_before_success(self, script: SchedScript) -> None:
        """27.annotate.10, 27.annotate.13, 27.success.1: what is granted is told in a text, too."""
        script.kvs_waits = True
        assert script.turn(alloc(1, jobspec(3))) == []
        (commit,) = script.unanswered
        assert [op[:2] for op in commit.payload["ops"]] == [["put", job_key(1, "R")]]
        assert answers(script.turn(*script.take_kvs_answers())) == [
            success(1, "rank0/core[0-1] rank1/core0")
        ]

    def test_the_grants_of_a_turn_are_one_commit(self, script: SchedScript) -> None:
        actions = script.turn(alloc(1), alloc(2), alloc(3))
        assert [payload["id"] for payload in answers(actions)] == [1, 2, 3]
        assert len(script.commits) == 1

    def test_r_says_slots_and_times(self, script: SchedScript) -> None:
        """14.attributes.2, 20.expiration.6, 20.nslots.3; no expiration without an end."""
        script.turn(alloc(1, jobspec(2, duration=60.0)), alloc(2, jobspec(1, nnodes=1)))
        assert (script.r(1).nslots, script.r(1).starttime, script.r(1).expiration) == (
            2,
            1000.0,
            1060.0,
        )
        assert (script.r(2).nslots, script.r(2).expiration) == (1, 0.0)

    @pytest.mark.parametrize("duration", [1e-9, 0.1, 60.0])
    def test_times_of_r_have_at_most_six_decimals(
        self, script: SchedScript, duration: float
    ) -> None:
        """20.starttime.3, 20.expiration.4, 20.expiration.5: microseconds."""
        script.now = 1700000000.1234567
        script.turn(alloc(1, jobspec(duration=duration)))
        text = script.kvs[job_key(1, "R")]
        times = json.loads(text, parse_float=str)["execution"]
        for name in ("starttime", "expiration"):
            assert len(times[name].partition(".")[2]) <= 6
        assert float(times["starttime"]) < float(times["expiration"])

    def test_no_job_outlives_the_instance(self) -> None:
        """14.attributes.3, 20.expiration.2"""
        script = SchedScript()
        script.attach(machine(1, 3, expiration=1100.0))
        script.turn(alloc(1, jobspec(duration=60.0)), alloc(2, jobspec(duration=200.0)), alloc(3))
        assert [script.r(jobid).expiration for jobid in (1, 2, 3)] == [1060.0, 1100.0, 1100.0]
        script.turn(tell("free", id=1))
        script.now = 1100.0
        assert answers(script.turn(alloc(4))) == []

    def test_r_has_the_properties_of_its_ranks(self, script: SchedScript) -> None:
        script.grow(machine(1, 1, first=2, properties={"fast": machine(1, 1, first=2).ranks}))
        script.turn(alloc(1, jobspec(constraints={"properties": ["fast"]})))
        assert script.r(1).summary() == "rank2/core0"
        assert {name: str(ids) for name, ids in script.r(1).properties.items()} == {"fast": "2"}

    @pytest.mark.parametrize(
        ("spec", "note"),
        [
            (jobspec(5), "5 slots with 1 core each; there are 4"),
            (jobspec(3, nnodes=1), "1 node with 3 cores each; there are 0"),
            (jobspec(constraints={"hostlist": ["node7"]}), "1 slot with 1 core each; 0 fit"),
            ({"version": 1}, "invalid jobspec: jobspec: expected the key"),
            (jobspec() | {"version": 2}, "invalid jobspec: jobspec.version"),
        ],
    )
    def test_what_can_never_be_had_is_denied(
        self, script: SchedScript, spec: dict[str, Any], note: str
    ) -> None:
        """27.deny.1, 27.deny.2, 27.impl.10."""
        denied = only(answers(script.turn(alloc(1, spec))))
        assert (denied["id"], denied["type"]) == (1, 2)
        assert note in denied["note"]
        assert answers(script.turn(alloc(1))) == [success(1, "rank0/core0")]

    def test_what_does_not_fit_now_is_not_denied(self, script: SchedScript) -> None:
        """28.criteria.3: not even when its targets are offline."""
        script.acquired(type="offline", targets="0-1")
        assert answers(script.turn(alloc(1, jobspec(4)))) == []
        actions = script.acquired(type="online", targets="0-1")
        assert answers(actions) == [success(1, "rank[0-1]/core[0-1]")]

    def test_a_request_that_cannot_be_read_is_denied_if_it_has_an_id(
        self, script: SchedScript
    ) -> None:
        """27.impl.10: an error response could not name the job."""
        denied = only(answers(script.turn(tell("alloc", id=1, priority=-1))))
        assert (denied["id"], denied["type"]) == (1, 2)
        refused = only(script.turn(tell("alloc", priority=1)))
        assert refused.errnum == Errno.EPROTO

    def test_a_request_that_is_too_deep_for_an_object_is_denied(self, script: SchedScript) -> None:
        """27.impl.10: flux-core's job manager takes what is deeper than a payload may be."""
        text = '{"id":1,"priority":16,"jobspec":' + '{"a":' * 300 + "1" + "}" * 301
        request = msgspec.structs.replace(tell("alloc"), payload=text)
        denied = only(answers(script.turn(request)))
        assert (denied["id"], denied["type"]) == (1, 2)
        assert "expected a JSON object (at most 64 levels" in denied["note"]

    def test_request_for_a_negative_job_id_is_denied_and_the_others_go_on(
        self, script: SchedScript
    ) -> None:
        denied = only(answers(script.turn(alloc(-1))))
        assert (denied["id"], denied["type"]) == (-1, 2)
        assert answers(script.turn(alloc(2))) == [success(2, "rank0/core0")]

    def test_a_second_request_of_one_job_is_logged_and_ignored(self, script: SchedScript) -> None:
        """27.impl.8 is the job manager's to keep."""
        script.turn(alloc(1, jobspec(4)), alloc(2))
        (log,) = script.turn(alloc(2), alloc(1))[:1]
        assert isinstance(log, Log)
        assert answers(script.turn(tell("free", id=1))) == [success(2, "rank0/core0")]

    def test_requests_before_ready_were_meant_for_an_earlier_scheduler(self) -> None:
        """28.grow.7: they come again, and are judged only then."""
        script = SchedScript()
        early = [alloc(1), alloc(2, jobspec(9)), tell("cancel", id=1), tell("free", id=3)]
        ignored = script.turn(*early)
        assert [type(each) for each in ignored] == [Log] * len(early)
        assert ignored[0].text == "ignored sched.alloc of job 1: sched-ready is not answered"
        assert answers(script.attach(machine(1, 1))) == []
        done = answers(script.turn(alloc(1), alloc(2, jobspec(9))))
        assert [(payload["id"], payload["type"]) for payload in done] == [(2, 2), (1, 0)]

    def test_only_the_owner_may_ask(self, script: SchedScript) -> None:
        refused = only(script.turn(asked_by_guest("sched.alloc", {"id": 1})))
        assert refused.errnum == Errno.EPERM

    def test_an_unknown_method(self, script: SchedScript) -> None:
        refused = only(script.turn(asked("sched.other")))
        assert (refused.errnum, refused.payload) == (
            Errno.ENOSYS,
            "no method other in service sched",
        )


class TestCancel:
    def test_a_pending_request_is_answered_cancel_and_may_come_again(
        self, script: SchedScript
    ) -> None:
        """27.alloccancel.1, 27.alloccancel.2, 27.cancel.4, 27.cancel.5, 27.cancel.8."""
        script.turn(alloc(1, jobspec(4)), alloc(2))
        assert sent(script.turn(tell("cancel", id=2))) == [("sched.alloc", {"id": 2, "type": 3})]
        script.turn(tell("free", id=1))
        assert answers(script.turn(alloc(2))) == [success(2, "rank0/core0")]

    def test_without_a_pending_request_it_is_ignored(self, script: SchedScript) -> None:
        """27.cancel.6."""
        script.turn(alloc(1, jobspec(4)))
        assert script.turn(tell("cancel", id=1), tell("cancel", id=99)) == []
        assert answers(script.turn(alloc(2))) == []

    @pytest.mark.parametrize("request_", [tell("cancel", id=7), tell("prioritize", jobs=[[7, 1]])])
    def test_a_job_that_was_not_asked_for_may_be_asked_for_afterwards(
        self, script: SchedScript, request_: Request
    ) -> None:
        """27.cancel.6, 27.prioritize.7."""
        assert script.turn(request_) == []
        assert answers(script.turn(alloc(7))) == [success(7, "rank0/core0")]

    @pytest.mark.parametrize(
        "request_",
        [
            tell("cancel", id=1),
            tell("prioritize", jobs=[[1, 1]]),
            asked("sched.expiration", {"id": 1, "expiration": 1020}, by=MANAGER, tag=5),
        ],
    )
    def test_what_is_granted_stays_so_until_it_is_freed(
        self, script: SchedScript, request_: Request
    ) -> None:
        """27.cancel.6, 27.prioritize.7, 27.expiration.5."""
        script.turn(alloc(1, jobspec(4, duration=10.0)))
        script.turn(request_)
        assert answers(script.turn(alloc(2))) == []
        extended = asked("sched.expiration", {"id": 1, "expiration": 1030})
        assert [each.errnum for each in script.turn(extended)] == [0]
        assert sent(script.turn(tell("free", id=1))) == [
            ("sched.free", {"id": 1}),
            ("sched.alloc", success(2, "rank0/core0")),
        ]

    def test_a_grant_that_is_not_durable_yet_is_taken_back(self, script: SchedScript) -> None:
        script.kvs_waits = True
        script.turn(alloc(1, jobspec(4)))
        put = script.take_kvs_answers()
        assert answers(script.turn(tell("cancel", id=1))) == [{"id": 1, "type": 3}]
        assert answers(script.turn(*put)) == []
        script.kvs_waits = False
        assert answers(script.turn(alloc(2, jobspec(4)), *script.take_kvs_answers())) == [
            success(2, "rank[0-1]/core[0-1]")
        ]
        assert list(script.kvs) == [job_key(2, "R")]

    def test_nothing_is_answered_even_to_what_cannot_be_read(self, script: SchedScript) -> None:
        """27.cancel.4, 27.prioritize.8."""
        actions = script.turn(tell("cancel"), tell("prioritize", jobs=[[1]]))
        assert [type(action) for action in actions] == [Log, Log]


class TestPrioritize:
    def test_higher_priorities_are_served_first(self, script: SchedScript) -> None:
        """27.prioritize.6, 27.prioritize.7, 27.prioritize.8."""
        script.turn(alloc(9, jobspec(4)))
        script.turn(*(alloc(jobid, jobspec(4)) for jobid in (1, 2, 3, 4)))
        pairs = [[1, 444], [99, 7], [2, 298], [3, 343205], [4, 99]]
        assert script.turn(tell("prioritize", jobs=pairs)) == []
        order = []
        last = 9
        for _ in range(4):
            granted = only(answers(script.turn(tell("free", id=last))))
            last = granted["id"]
            order.append(last)
        assert order == [3, 1, 2, 4]


class TestFree:
    def test_is_answered_with_the_id_and_makes_room(self, script: SchedScript) -> None:
        """27.free.5, 27.free.6, 27.free.7, 27.free.8, 27.impl.7."""
        script.turn(alloc(1, jobspec(4)), alloc(2))
        assert sent(script.turn(tell("free", id=1))) == [
            ("sched.free", {"id": 1}),
            ("sched.alloc", success(2, "rank0/core0")),
        ]

    def test_of_what_is_not_allocated_is_no_error_response(self, script: SchedScript) -> None:
        """27.impl.11."""
        log, response = script.turn(tell("free", id=99))
        assert isinstance(log, Log)
        assert (response.errnum, response.payload) == (0, {"id": 99})


class TestExpiration:
    def test_success_is_an_empty_response(self, script: SchedScript) -> None:
        """27.expiration.5."""
        script.turn(alloc(1, jobspec(duration=10.0)))
        request = asked("sched.expiration", {"id": 1, "expiration": 1020}, by=MANAGER, tag=5)
        response = only(script.turn(request))
        assert (response.errnum, response.payload, response.matchtag) == (0, None, 5)

    def test_is_refused_for_a_job_without_resources(self, script: SchedScript) -> None:
        """27.expiration.6."""
        response = only(script.turn(asked("sched.expiration", {"id": 1, "expiration": 1020})))
        assert response.errnum == Errno.ENOENT

    @pytest.mark.parametrize("expiration", [-1, 1102, 1e300])
    def test_is_refused_beyond_the_end_of_the_instance(self, expiration: float) -> None:
        """27.expiration.8; readings: sched.expiration."""
        script = SchedScript()
        script.attach(machine(1, 1, expiration=1100.25))
        script.turn(alloc(1))
        payload = {"id": 1, "expiration": expiration}
        response = only(script.turn(asked("sched.expiration", payload)))
        assert response.errnum == Errno.EINVAL
        response = only(script.turn(asked("sched.expiration", {"id": 1, "expiration": 1101})))
        assert response.errnum == 0

    def test_counts_in_estimates(self) -> None:
        """27.expiration.12."""
        script = SchedScript("easy")
        script.attach(machine(1, 2))
        script.turn(alloc(1, jobspec(duration=10.0)), alloc(2, jobspec(2)))
        script.turn(tell("expiration", id=1, expiration=1050))
        told = only(answers(script.turn(TimerFired("annotate"))))
        assert told["annotations"]["sched"]["t_estimate"] == 1050.0


def test_requests_that_want_no_answer_get_none(script: SchedScript) -> None:
    """RFC 6, No-Response Flag."""
    request = Request(
        topics.SCHED_EXPIRATION, {"id": 1}, flags=int(Flag.NORESPONSE), rolemask=1, routes=("a",)
    )
    assert script.turn(request) == []


@pytest.mark.parametrize("policy", ["easy", "conservative"])
@pytest.mark.parametrize("seed", range(20))
def test_updated_expiration_is_planned_with_as_one_that_was_there_from_the_start(
    policy: str, seed: int
) -> None:
    """27.expiration.12; 0 is a job that never ends."""
    rng = Random(seed)
    ends = {jobid: rng.choice([0.0, 5.0, 20.0, 200.0]) for jobid in (1, 2)}
    before = {jobid: rng.choice([0.0, 10.0, 100.0]) for jobid in ends}
    wait = [
        alloc(jobid, jobspec(rng.randint(1, 3), duration=rng.choice([2.0, 15.0, 50.0])))
        for jobid in range(3, 8)
    ]

    def plan(durations: dict[int, float], updates: dict[int, float]) -> list[Any]:
        script = SchedScript(policy)
        script.attach(machine(1, 3))
        script.turn(*(alloc(jobid, jobspec(duration=durations[jobid])) for jobid in durations))
        for jobid, end in updates.items():
            expiration = script.now + end if end else 0
            script.turn(tell("expiration", id=jobid, expiration=expiration))
        said = [*answers(script.turn(*wait)), *answers(script.turn(TimerFired("annotate")))]
        return [each for each in said if "annotations" in each or each["type"] == 0]

    assert plan(before, ends) == plan(ends, {})
