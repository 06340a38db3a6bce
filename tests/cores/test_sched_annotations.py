"""What a scheduler tells of jobs that wait."""

from __future__ import annotations

from flux_trio.cores.sched.annotations import ANNOTATE_DELAY_S, NO_NODES, NO_ROOM
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.messages import Response
from tests.support.sched_script import (
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
