"""Nodes come and go, and so does the job manager."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.sched.context import RAISE_AGAIN_S
from flux_trio.cores.turns import Note, SetTimer, TimerFired
from flux_trio.messages import ROLE_USER, Errno, Request, Response
from tests.support.asking import asked, gone, service_back
from tests.support.sched_script import (
    MANAGER,
    SchedScript,
    alloc,
    answer,
    answers,
    jobspec,
    leaves,
    only,
    sent,
    success,
    tell,
)
from tests.support.scheduling import machine


def refusal(request: Request) -> Response:
    """What the broker answers in place of a service with a full inbox."""
    return Response(request.topic, "its inbox is full", Errno.EAGAIN, request.matchtag)


class TestResources:
    def test_nothing_is_granted_on_offline_targets(self, script: SchedScript) -> None:
        """28.background.4, 28.offline.3-5, 28.online.3."""
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

    def test_r_that_was_looked_up_for_an_earlier_hello_does_not_count(self) -> None:
        """The kvs answers late: what the job held then, it may have given back."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 4)))
        script.kvs_waits = True
        script.turn(*script.hello_answers(hello, {"j1": machine(1, 1)}))
        script.turn(gone("sched", MANAGER))
        assert script.turn(*script.take_kvs_answers()) == []
        assert script.core.holders == set()

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
