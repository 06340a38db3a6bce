"""The scheduler's side of RFC 27 and 28: what comes in, what goes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.cores.sched.annotations import ANNOTATE_DELAY_S, NO_NODES, NO_ROOM
from flux_trio.cores.sched.context import RAISE_AGAIN_S
from flux_trio.cores.turns import Exit, Log, Note, SetTimer, TimerFired
from flux_trio.messages import ROLE_USER, Errno, Flag, Request, Response, topics
from tests.support.asking import asked, asked_by_guest, gone, service_back
from tests.support.sched_script import (
    MANAGER,
    SchedScript,
    alloc,
    answer,
    answers,
    jobspec,
    only,
    r_key,
    sent,
    success,
    tell,
)
from tests.support.scheduling import machine


@pytest.fixture
def script() -> SchedScript:
    """Attached, with two nodes of two cores."""
    script = SchedScript()
    script.attach(machine(2, 2))
    return script


def leaves(actions: list[Any]) -> bool:
    """Whether it was logged and the service leaves."""
    return [type(action) for action in actions] == [Log, Exit]


def refusal(request: Request) -> Response:
    """What the broker answers in place of a service with a full inbox."""
    return Response(request.topic, "its inbox is full", Errno.EAGAIN, request.matchtag)


class TestStart:
    def test_acquires_the_default_group(self) -> None:
        """28.impl.1, 28.acquire.1."""
        acquire = only(SchedScript().started)
        assert (acquire.topic, acquire.payload) == ("resource.acquire", {"group": "default"})
        assert acquire.is_streaming

    def test_hello_follows_the_first_grow_and_is_empty_and_streaming(self) -> None:
        """27.hello.1, 27.hello.2, 27.hello.3; readings: Names and order at scheduler start."""
        hello = only(SchedScript().grow(machine(1, 1)))
        assert (hello.topic, hello.payload) == ("job-manager.sched-hello", None)
        assert hello.is_streaming

    def test_a_second_grow_says_no_hello(self, script: SchedScript) -> None:
        assert script.grow(machine(1, 1, first=2)) == []

    @pytest.mark.parametrize(
        ("config", "payload"),
        [
            ({}, {"mode": "unlimited"}),
            ({"mode": "limited", "limit": 42}, {"mode": "limited", "limit": 42}),
        ],
    )
    def test_ready_says_the_mode(self, config: dict[str, Any], payload: dict[str, Any]) -> None:
        """27.ready.1, 27.ready.4, 27.ready.5, 27.ready.9, 27.ready.11."""
        script = SchedScript(**config)
        hello = only(script.grow(machine(1, 1)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert (ready.topic, ready.payload) == ("job-manager.sched-ready", payload)

    def test_ready_waits_for_the_end_of_hello_and_for_every_r(self) -> None:
        """27.hello.14, 27.ready.2."""
        script = SchedScript()
        script.kvs_waits = True
        hello = only(script.grow(machine(2, 1)))
        told, end = script.hello_answers(hello, {"j7": machine(1, 1)})
        assert script.turn(told) == []
        assert script.turn(end) == []
        assert [request.payload for request in script.unanswered] == [{"keys": [r_key(7)]}]
        ready = only(script.turn(*script.take_kvs_answers()))
        assert ready.topic == "job-manager.sched-ready"

    def test_what_hello_told_is_not_granted(self) -> None:
        """27.hello.12, 27.criteria.3, 28.disconnect.5."""
        script = SchedScript()
        script.attach(machine(2, 1), j7=machine(1, 1))
        script.turn(alloc(1))
        assert script.r(1).summary() == "rank1/core0"
        assert answers(script.turn(alloc(2))) == []
        assert answers(script.turn(tell("free", id=7))) == [success(2, "rank0/core0")]

    def test_hello_may_tell_of_ranks_that_are_not_ours(self) -> None:
        """27.hello.12, note."""
        script = SchedScript()
        script.attach(machine(1, 1), j7=machine(1, 1, first=5))
        assert sent(script.turn(tell("free", id=7))) == [("sched.free", {"id": 7})]
        assert script.grow(machine(1, 1, first=5)) == []

    def test_a_job_whose_r_overlaps_another_gets_an_exception(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        actions = script.turn(
            *script.hello_answers(hello, {"j7": machine(1, 2), "j8": machine(1, 1)})
        )
        raised, ready = (action for action in actions if isinstance(action, Request))
        assert raised.topic == "job-manager.raise"
        assert (raised.payload["id"], raised.payload["severity"]) == (8, 0)
        assert "core0 of rank0 is allocated already" in raised.payload["note"]
        assert ready.topic == "job-manager.sched-ready"
        script.turn(answer(ready, {"count": 1}))
        assert ("sched.free", {"id": 8}) in sent(script.turn(tell("free", id=8)))

    def test_a_job_that_is_told_twice_is_logged_and_marked_once(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        first, end = script.hello_answers(hello, {"j7": machine(1, 1)})
        log, ready = script.turn(first, first, end)
        place = "job 7: sched.alloc: sched-hello response in state ALLOCATED: expected "
        assert log.text.startswith(place)
        assert log.text.endswith(" (after sched-hello response)")
        (note,) = script.turn(answer(ready, {"count": 0}))
        assert [jobid for jobid, _ in note.data["allocated"]] == [7]

    def test_a_job_whose_r_is_nowhere_gets_an_exception(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        told = script.hello_answers(hello, {"j7": machine(1, 1)})
        script.kvs.clear()
        raised, _ready = (each for each in script.turn(*told) if isinstance(each, Request))
        assert (raised.payload["id"], raised.payload["severity"]) == (7, 0)
        assert raised.payload["note"] == "its R is not in the kvs"

    @pytest.mark.parametrize(
        "found", [{"errnum": Errno.EIO}, {"payload": {"values": []}}, {"payload": {"value": "{}"}}]
    )
    def test_leaves_when_the_kvs_cannot_say_who_holds_what(self, found: dict[str, Any]) -> None:
        script = SchedScript()
        script.kvs_waits = True
        hello = only(script.grow(machine(1, 2)))
        script.turn(*script.hello_answers(hello, {"j7": machine(1, 1)}))
        assert leaves(script.turn(answer(script.unanswered[0], **found)))

    def test_what_is_allocated_is_noted_after_ready(self) -> None:
        script = SchedScript()
        (note,) = script.attach(machine(2, 1), j7=machine(1, 1))
        assert note == Note(
            "state", {"service": "sched", "allocated": [[7, machine(1, 1).to_json()]], "pending": 0}
        )

    @pytest.mark.parametrize("errnum", [Errno.EPROTO, Errno.EINVAL])
    def test_leaves_when_hello_fails(self, errnum: int) -> None:
        """27.hello.16, 27.hello.17."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        assert leaves(script.turn(answer(hello, errnum=errnum)))

    def test_first_hello_that_meets_enosys_waits_for_the_job_manager(self) -> None:
        """readings: Job manager gone.

        ENOSYS says that nobody holds the name; it is no answer to hello.
        """
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        assert script.turn(answer(hello, errnum=Errno.ENOSYS)) == []
        again = only(script.turn(service_back(MANAGER)))
        assert again.topic == hello.topic

    def test_leaves_when_ready_fails(self) -> None:
        """27.ready.14, 27.ready.15."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert leaves(script.turn(answer(ready, errnum=Errno.EPROTO)))

    @pytest.mark.parametrize(
        "response",
        [
            {"errnum": Errno.EINVAL},
            {"payload": {"type": "other"}},
            {"payload": {"type": "online", "targets": "0"}},  # before any grow
            {"payload": {"type": "grow", "resources": {}, "online": "", "offline": ""}},
        ],
    )
    def test_leaves_when_acquire_fails(self, response: dict[str, Any]) -> None:
        """28.error.1, 28.error.2."""
        script = SchedScript()
        assert leaves(script.turn(answer(script.started[0], **response)))

    def test_change_that_has_no_place_names_the_group_and_what_came_before(self) -> None:
        script = SchedScript()
        online = {"type": "online", "targets": "0"}
        log, _ = script.turn(answer(script.started[0], payload=online))
        text = "resource group default: resource.acquire: online in state REQUESTED: expected "
        assert text in log.text
        assert log.text.endswith("(after resource.acquire)")

    @pytest.mark.parametrize("before", ["", "grow", "shrink"])
    def test_leaves_for_the_reason_that_the_resource_service_gives(self, before: str) -> None:
        """28.error.1, 28.error.2."""
        script = SchedScript()
        if before:
            script.grow(machine(2, 2))
        if before == "shrink":
            script.acquired(type="shrink", targets="1")
        log, _ = script.turn(answer(script.started[0], "out of order", errnum=Errno.EIO))
        assert log.text == "resource.acquire: out of order"

    @pytest.mark.parametrize("before", ["", "grow"])
    def test_leaves_when_a_response_ends_the_stream(self, before: str) -> None:
        """6.streaming.4: without the streaming flag it is the last one, so no change can follow."""
        script = SchedScript()
        if before:
            script.grow(machine(2, 2))
        resources = machine(2, 2).to_json()
        told = {"type": "grow", "resources": resources, "online": "0-1", "offline": ""}
        last = Response(topics.RESOURCE_ACQUIRE, told, matchtag=script.started[0].matchtag)
        log, leaving = script.turn(last)
        text = "resource.acquire: a response without the streaming flag ends the stream"
        assert (log.text, leaving) == (text, Exit(text))

    def test_releases_nothing_after_an_error(self, script: SchedScript) -> None:
        """28.error.2: a request that was in the same inbox as the error."""
        script.turn(alloc(1, jobspec(4)))
        script.acquired(type="shrink", targets="0")
        error = answer(script.started[0], "out of order", errnum=Errno.EIO)
        actions = script.turn(error, tell("free", id=1))
        assert [type(action) for action in actions[:2]] == [Log, Exit]
        assert sent(actions) == [("sched.free", {"id": 1})]


class TestAlloc:
    def test_r_is_durable_before_success(self, script: SchedScript) -> None:
        """27.success.1."""
        script.kvs_waits = True
        assert script.turn(alloc(1, jobspec(3))) == []
        (commit,) = script.unanswered
        assert [op[:2] for op in commit.payload["ops"]] == [["put", r_key(1)]]
        assert answers(script.turn(*script.take_kvs_answers())) == [
            success(1, "rank0/core[0-1] rank1/core0")
        ]

    def test_the_grants_of_a_turn_are_one_commit(self, script: SchedScript) -> None:
        actions = script.turn(alloc(1), alloc(2), alloc(3))
        assert [payload["id"] for payload in answers(actions)] == [1, 2, 3]
        assert len(script.commits) == 1

    def test_r_says_slots_and_times(self, script: SchedScript) -> None:
        """20.nslots.3; an expiration only if the job has an end."""
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
        text = script.kvs[r_key(1)]
        times = json.loads(text, parse_float=str)["execution"]
        for name in ("starttime", "expiration"):
            assert len(times[name].partition(".")[2]) <= 6
        assert float(times["starttime"]) < float(times["expiration"])

    def test_no_job_outlives_the_instance(self) -> None:
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
            (jobspec(5), "5 slots with 1 core each wanted, there are only 4"),
            (jobspec(3, nnodes=1), "1 node with 3 cores each wanted, there are only 0"),
            (
                jobspec(constraints={"hostlist": ["node7"]}),
                "1 slot with 1 core each wanted, there are only 0 that meet its constraints",
            ),
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
        assert list(script.kvs) == [r_key(2)]

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
        """27.free.5, 27.free.6, 27.free.7, 27.free.8."""
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


class TestAnnotations:
    def test_the_head_is_told_once_why_it_waits(self, script: SchedScript) -> None:
        """27.annotate.2, 27.annotate.10, 27.annotate.12."""
        actions = script.turn(alloc(1, jobspec(4)), alloc(2), alloc(3))
        timers = [action for action in actions if isinstance(action, SetTimer)]
        assert timers == [SetTimer("annotate", script.now + ANNOTATE_DELAY_S)]
        assert sent(script.turn(TimerFired("annotate"))) == [
            (
                "sched.alloc",
                {"id": 2, "type": 1, "annotations": {"sched": {"reason_pending": NO_ROOM}}},
            )
        ]
        assert script.turn(alloc(4)) == []
        assert answers(script.turn(tell("free", id=1)))[0] == success(
            2, "rank0/core0", reason_pending=None
        )

    def test_who_starts_soon_is_told_nothing(self, script: SchedScript) -> None:
        script.turn(alloc(1, jobspec(4)), alloc(2))
        assert answers(script.turn(tell("free", id=1))) == [success(2, "rank0/core0")]
        assert script.turn(TimerFired("annotate")) == []

    def test_an_estimate_is_told_again_when_it_changes(self) -> None:
        """27.annotate.11, 27.success.5."""
        script = SchedScript("easy")
        script.attach(machine(2, 1))
        script.turn(
            alloc(1, jobspec(duration=10.0)), alloc(2, jobspec(duration=20.0)), alloc(3, jobspec(2))
        )
        told = only(answers(script.turn(TimerFired("annotate"))))
        keys = {"reason_pending": NO_ROOM, "t_estimate": 1020.0}
        assert told == {"id": 3, "type": 1, "annotations": {"sched": keys}}
        script.now += 1.0
        (_, timer) = script.turn(tell("free", id=2))
        assert isinstance(timer, SetTimer)
        told = only(answers(script.turn(TimerFired("annotate"))))
        assert told["annotations"] == {"sched": {"t_estimate": 1010.0}}
        (_, granted) = sent(script.turn(tell("free", id=1)))
        outdated = {"reason_pending": None, "t_estimate": None}
        assert granted[1] == success(3, "rank[0-1]/core0", **outdated)

    def test_an_estimate_ends_with_the_grant_that_is_revoked(self) -> None:
        """27.annotate.11, 28.offline.3: the job would else show a start in the past for ever."""
        script, stored = self._revoked("0-1")
        assert answers(script.turn(*stored)) == []
        told = only(answers(script.turn(TimerFired("annotate"))))
        outlook = {"reason_pending": NO_NODES, "t_estimate": None}
        assert told == {"id": 2, "type": 1, "annotations": {"sched": outlook}}

    def test_an_estimate_ends_with_the_grant_that_follows_a_revoked_one(self) -> None:
        """27.annotate.11, 27.success.5, 28.offline.3."""
        script, stored = self._revoked("0")
        outdated = {"reason_pending": None, "t_estimate": None}
        assert answers(script.turn(*stored)) == []
        (granted,) = answers(script.turn(*script.take_kvs_answers()))
        assert granted == success(2, "rank1/core0", **outdated)

    def _revoked(self, offline: str) -> tuple[SchedScript, list[Response]]:
        """Job 2 was told an estimate and granted rank 0; R is being stored as nodes go offline.

        Returns what the KVS says of R.
        """
        script = SchedScript("easy")
        script.attach(machine(2, 1))
        script.turn(alloc(1, jobspec(2, duration=10.0)), alloc(2))
        told = only(answers(script.turn(TimerFired("annotate"))))
        assert told["annotations"]["sched"]["t_estimate"] == 1010.0
        script.now += 5.0
        script.kvs_waits = True
        script.turn(tell("free", id=1))
        stored = script.take_kvs_answers()
        assert script.r(2).summary() == "rank0/core0"
        script.acquired(type="offline", targets=offline)
        return script, stored

    def test_one_that_is_no_longer_the_head_is_told_so(self, script: SchedScript) -> None:
        script.turn(alloc(1, jobspec(4)), alloc(2))
        script.turn(TimerFired("annotate"))
        script.turn(alloc(3, priority=99))
        told = answers(script.turn(TimerFired("annotate")))
        assert [(payload["id"], payload["annotations"]["sched"]) for payload in told] == [
            (3, {"reason_pending": NO_ROOM}),
            (2, {"reason_pending": None}),
        ]

    def test_a_canceled_job_is_told_nothing_more(self, script: SchedScript) -> None:
        """27.annotate.1."""
        script.turn(alloc(1, jobspec(4)), alloc(2))
        actions = script.turn(tell("cancel", id=2), TimerFired("annotate"))
        assert answers(actions) == [{"id": 2, "type": 3}]

    def test_offline_nodes_are_a_reason(self, script: SchedScript) -> None:
        script.acquired(type="offline", targets="1")
        script.turn(alloc(1, jobspec(4)))
        told = only(answers(script.turn(TimerFired("annotate"))))
        assert told["annotations"]["sched"] == {"reason_pending": NO_NODES}


class TestResources:
    def test_nothing_is_granted_on_offline_targets(self, script: SchedScript) -> None:
        """28.offline.3, 28.offline.4, 28.online.3."""
        script.turn(alloc(1))
        assert script.acquired(type="offline", targets="0") == []
        script.turn(alloc(2))
        assert script.r(2).summary() == "rank1/core0"
        script.turn(tell("free", id=1), alloc(3), alloc(4))
        script.acquired(type="online", targets="0")
        assert script.r(4).summary() == "rank0/core0"

    def test_what_is_grown_is_added(self, script: SchedScript) -> None:
        """28.grow.1."""
        script.turn(alloc(1, jobspec(4)), alloc(2))
        assert answers(script.grow(machine(1, 1, first=2))) == [success(2, "rank2/core0")]

    def test_free_targets_are_released_at_once(self, script: SchedScript) -> None:
        """28.release.1-3, 28.release.5, 28.release.6, 28.shrink.6."""
        release = only(script.acquired(type="shrink", targets="1"))
        assert release.topic == "resource.release"
        assert release.payload == {"group": "default", "targets": "1"}
        assert script.turn(answer(release)) == []
        script.acquired(type="online", targets="1")
        script.turn(alloc(1), alloc(2))
        assert answers(script.turn(alloc(3))) == []  # 28.shrink.3

    def test_held_targets_are_released_when_free_and_the_job_gets_an_exception(
        self, script: SchedScript
    ) -> None:
        """28.shrink.4, 28.shrink.5, 28.shrink.6."""
        script.turn(alloc(1, jobspec(3)))
        (topic, raised) = only(sent(script.acquired(type="shrink", targets="0-1")))
        assert (topic, raised["id"], raised["severity"]) == ("job-manager.raise", 1, 0)
        assert sent(script.turn(tell("free", id=1))) == [
            ("resource.release", {"group": "default", "targets": "0-1"}),
            ("sched.free", {"id": 1}),
        ]

    @pytest.mark.parametrize(
        "news",
        [
            {"type": "offline", "targets": "2"},
            {"type": "online", "targets": "2"},
            {"type": "shrink", "targets": "2"},
            {
                "type": "grow",
                "resources": machine(1, 2, first=3).to_json(),
                "online": "3",
                "offline": "",
            },
        ],
    )
    def test_held_targets_are_released_one_by_one_whatever_news_follow(
        self, news: dict[str, Any]
    ) -> None:
        """28.release.1, 28.shrink.6."""
        script = SchedScript()
        script.attach(machine(3, 2))
        for jobid in (1, 2, 3):
            script.turn(alloc(jobid, jobspec(2)))
        script.acquired(type="shrink", targets="0-1")
        script.acquired(**news)
        for jobid in (1, 2, 3):
            left = sent(script.turn(tell("free", id=jobid)))[:-1]
            is_shrunk = jobid < 3 or news["type"] == "shrink"
            payload = {"group": "default", "targets": str(jobid - 1)}
            assert left == [("resource.release", payload)] * is_shrunk

    def test_targets_may_be_shrunk_again_after_all_were_released(self, script: SchedScript) -> None:
        """28.shrink.6."""
        for targets in ("1", "0"):
            released = sent(script.acquired(type="shrink", targets=targets))
            assert released == [("resource.release", {"group": "default", "targets": targets})]

    def test_no_release_without_shrink(self, script: SchedScript) -> None:
        """28.release.7."""
        script.turn(alloc(1))
        assert sent(script.turn(tell("free", id=1))) == [("sched.free", {"id": 1})]

    def test_leaves_when_release_fails(self, script: SchedScript) -> None:
        """28.release.9, 28.release.10."""
        release = only(script.acquired(type="shrink", targets="1"))
        assert leaves(script.turn(answer(release, errnum=Errno.EINVAL)))

    def test_requests_are_judged_anew_after_shrink(self, script: SchedScript) -> None:
        """28.shrink.7."""
        waiting = (jobspec(4), jobspec(3), jobspec(2), jobspec(4), jobspec(1, nnodes=2))
        script.turn(alloc(1), *(alloc(2 + n, spec) for n, spec in enumerate(waiting)))
        assert script.core.requested == {2, 3, 4, 5, 6}
        done = answers(script.acquired(type="shrink", targets="1"))
        assert {(each["id"], each["type"]) for each in done} == {(2, 2), (3, 2), (5, 2), (6, 2)}
        assert len(done) == 4
        assert all(each["note"] for each in done)
        assert script.core.requested == {4}
        assert answers(script.turn(tell("free", id=1))) == [success(4, "rank0/core[0-1]")]

    def test_a_grant_on_the_way_to_the_kvs_is_taken_back(self, script: SchedScript) -> None:
        """28.shrink.3: nobody is told of targets that are gone."""
        script.kvs_waits = True
        script.turn(alloc(1))
        put = script.take_kvs_answers()
        release = only(script.acquired(type="shrink", targets="0"))
        assert release.payload["targets"] == "0"
        assert answers(script.turn(*put)) == []
        assert answers(script.turn(*script.take_kvs_answers())) == [success(1, "rank1/core0")]

    def test_a_grant_on_the_way_is_taken_back_when_its_target_goes_offline(
        self, script: SchedScript
    ) -> None:
        """28.offline.3: its job waits again, and gets what is online."""
        script.kvs_waits = True
        script.turn(alloc(1))
        put = script.take_kvs_answers()
        assert script.acquired(type="offline", targets="0") == []
        assert answers(script.turn(*put)) == []
        assert answers(script.turn(*script.take_kvs_answers())) == [success(1, "rank1/core0")]

    def test_leaves_when_the_kvs_fails(self, script: SchedScript) -> None:
        script.kvs_waits = True
        script.turn(alloc(1))
        (commit,) = script.unanswered
        assert leaves(script.turn(answer(commit, errnum=Errno.EIO)))


class TestJobManagerGone:
    def test_a_ready_that_finds_nobody_waits_for_the_next_one(self) -> None:
        """readings: Job manager gone. The broker answers, then says farewell."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        farewell = gone("sched", "job-manager")
        hello = only(script.turn(answer(ready, errnum=Errno.ENOSYS), farewell))
        assert hello.topic == "job-manager.sched-hello"

    def test_farewell_after_a_hello_that_found_nobody_is_answered_by_a_hello(self) -> None:
        """The broker answers the hello, then passes on the farewell."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        assert script.turn(answer(hello, errnum=Errno.ENOSYS)) == []
        hello = only(script.turn(gone("sched", MANAGER)))
        assert hello.topic == "job-manager.sched-hello"
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert ready.topic == "job-manager.sched-ready"

    def test_one_that_leaves_in_the_turn_of_its_request_is_not_answered(
        self, script: SchedScript
    ) -> None:
        """6.disconnect.2"""
        script.turn(alloc(1, jobspec(1)))
        hello = only(script.turn(tell("free", id=1), gone("sched", MANAGER)))
        assert hello.topic == "job-manager.sched-hello"

    def test_says_hello_again_once_it_is_back(self, script: SchedScript) -> None:
        """readings: Job manager gone."""
        script.turn(alloc(1, jobspec(3)), alloc(2, jobspec(2)))
        hello = only(script.turn(gone("sched", MANAGER)))
        assert script.turn(answer(hello, errnum=Errno.ENOSYS)) == []
        assert script.turn(service_back("kvs"), service_back(MANAGER, rolemask=ROLE_USER)) == []
        hello = only(script.turn(service_back(MANAGER)))
        assert script.turn(service_back(MANAGER)) == []
        assert hello.topic == "job-manager.sched-hello"
        ready = only(script.turn(*script.hello_answers(hello, {"j1": script.r(1)})))
        script.turn(answer(ready, {"count": 1}))
        assert answers(script.turn(alloc(2, jobspec(2)))) == []
        assert answers(script.turn(tell("free", id=1)))[0]["id"] == 2

    def test_what_was_being_granted_is_forgotten(self, script: SchedScript) -> None:
        script.kvs_waits = True
        script.turn(alloc(1))
        hello = only(script.turn(gone("sched", MANAGER)))
        assert answers(script.turn(*script.take_kvs_answers())) == []
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert ready.topic == "job-manager.sched-ready"

    def test_shrunk_targets_are_released_when_the_new_one_tells_of_nobody(
        self, script: SchedScript
    ) -> None:
        script.turn(alloc(1))
        script.acquired(type="shrink", targets="0")
        hello = only(script.turn(gone("sched", MANAGER)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        released = sent(script.turn(answer(ready, {"count": 0})))
        assert released == [("resource.release", {"group": "default", "targets": "0"})]

    def test_targets_shrunk_while_it_is_away_wait_for_what_the_new_one_tells(
        self, script: SchedScript
    ) -> None:
        """28.shrink.4, 28.shrink.6: until then nobody knows who holds them."""
        script.turn(alloc(1))
        hello = only(script.turn(gone("sched", MANAGER)))
        assert sent(script.acquired(type="shrink", targets="0-1")) == []
        ready = only(script.turn(*script.hello_answers(hello, {"j1": script.r(1)})))
        (release, raised) = sent(script.turn(answer(ready, {"count": 0})))
        assert release == ("resource.release", {"group": "default", "targets": "1"})
        assert (raised[0], raised[1]["id"]) == ("job-manager.raise", 1)
        assert sent(script.turn(tell("free", id=1)))[0] == (
            "resource.release",
            {"group": "default", "targets": "0"},
        )

    def test_exception_that_is_lost_with_the_job_manager_is_raised_again(
        self, script: SchedScript
    ) -> None:
        """28.shrink.4: the new one tells of a job that still holds what was shrunk."""
        script.turn(alloc(1))
        first = only(sent(script.acquired(type="shrink", targets="0")))
        hello = only(script.turn(gone("sched", MANAGER)))
        ready = only(script.turn(*script.hello_answers(hello, {"j1": script.r(1)})))
        again = only(sent(script.turn(answer(ready, {"count": 0}))))
        assert again == first
        assert (again[0], again[1]["id"]) == ("job-manager.raise", 1)

    def test_exception_that_a_full_inbox_refuses_is_raised_again_later(
        self, script: SchedScript
    ) -> None:
        """28.shrink.4"""
        script.turn(alloc(1))
        raised = only(script.acquired(type="shrink", targets="0"))
        again_at = SetTimer("raise", script.now + RAISE_AGAIN_S)
        assert script.turn(refusal(raised)) == [again_at]
        again = only(script.turn(TimerFired("raise")))
        assert (again.topic, again.payload) == (raised.topic, raised.payload)
        assert script.turn(refusal(again)) == [again_at]
        last = only(script.turn(TimerFired("raise")))
        assert script.turn(answer(last, {})) == []

    def test_exception_that_was_refused_ends_with_the_job_manager(
        self, script: SchedScript
    ) -> None:
        """The next one tells who still holds what was shrunk."""
        script.turn(alloc(1))
        raised = only(script.acquired(type="shrink", targets="0"))
        script.turn(refusal(raised))
        told = sent(script.turn(gone("sched", MANAGER), TimerFired("raise")))
        assert [topic for topic, _ in told] == ["job-manager.sched-hello"]

    def test_a_late_scheduler_that_hears_of_two_ends_at_once_says_one_hello(
        self, script: SchedScript
    ) -> None:
        """27.hello.15: a second hello in the same turn would be answered after the ENODATA."""
        back = service_back("job-manager")
        asked_for = script.turn(gone("sched", MANAGER), back, gone("sched", MANAGER), back)
        assert [(each.topic, each.payload) for each in asked_for] == [
            ("job-manager.sched-hello", None)
        ]

    def test_another_peer_that_is_gone_does_not_matter(self, script: SchedScript) -> None:
        assert script.turn(gone("sched", "alice")) == []


class TestRest:
    def test_is_noted(self, script: SchedScript) -> None:
        script.turn(alloc(1))
        *_, note = script.turn(tell("free", id=1))
        assert note == Note("state", {"service": "sched", "allocated": [], "pending": 0})

    def test_statistics(self, script: SchedScript) -> None:
        script.turn(alloc(1, jobspec(4)), alloc(2))
        script.acquired(type="offline", targets="1")
        response = only(script.turn(asked("sched.stats-get")))
        assert isinstance(response, Response)
        assert isinstance(response.payload, dict)
        assert response.payload.pop("requests")["sched.alloc"] == 2
        assert response.payload == {
            "policy": "fifo",
            "pending": 1,
            "granting": 0,
            "allocated": 1,
            "nodes": {"all": 2, "up": 1},
        }


def test_requests_that_want_no_answer_get_none(script: SchedScript) -> None:
    """RFC 6, No-Response Flag."""
    request = Request(
        topics.SCHED_EXPIRATION, {"id": 1}, flags=int(Flag.NORESPONSE), rolemask=1, routes=("a",)
    )
    assert script.turn(request) == []
