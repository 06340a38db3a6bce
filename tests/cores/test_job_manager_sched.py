"""The job manager's side of RFC 27: what it sends a scheduler, and what the answers mean."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from flux_trio.messages import topics
from flux_trio.protocols import JobState, SetPriority
from tests.support.asking import asked
from tests.support.manager_script import (
    ANNOTATE,
    CANCEL,
    DENY,
    START,
    USERID,
    ManagerScript,
    alloc_answer,
    allocs,
)


def limited(limit: int, *jobids: int) -> ManagerScript:
    """A job manager with a limited scheduler and jobs that were submitted."""
    m = ManagerScript()
    m.attach_exec()
    m.attach_sched(limit)
    for jobid in jobids:
        m.submit(jobid)
    return m


# --- hello and ready


def test_hello_without_allocations_ends_at_once(alone: ManagerScript) -> None:
    """6.streaming.2, 27.hello.5, 27.hello.15: no response but ENODATA, pending jobs or not."""
    alone.submit(1)
    assert alone.hello() == ["job-manager.sched-hello -> ENODATA"]


def test_hello_reports_every_job_with_resources_once(m: ManagerScript) -> None:
    """27.hello.4, 27.hello.6-11, 27.hello.15, 27.criteria.3: in RUN, and in CLEANUP before free."""
    m.now = START + 0.25
    m.submit(1, 2, 3, 4)
    for jobid in (1, 2, 3):
        m.alloc(jobid)
    m.execute(2, "start", "finish")
    m.execute(3, "start", "finish", "release final")
    jobs = [
        {"id": n, "priority": 16, "userid": USERID, "t_submit": START + 0.25} for n in (1, 2, 3)
    ]
    m.now = START + 9
    assert m.hello("other")[-4:] == [
        *[f"job-manager.sched-hello -> {job}" for job in jobs],
        "job-manager.sched-hello -> ENODATA",
    ]


def test_freed_job_is_not_reported(m: ManagerScript) -> None:
    """27.hello.5: only jobs that hold resources."""
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    assert m.hello()[-1:] == ["job-manager.sched-hello -> ENODATA"]


def test_answers_to_an_earlier_job_manager_mean_nothing(m: ManagerScript) -> None:
    """They come before the scheduler has said hello to this one."""
    m.submit(1, 2)
    m.alloc(1)
    m.raise_(1)
    later = m.restarted()
    assert later.freed(1) == []
    assert later.alloc(2) == []
    (job, _end) = later.hello()
    assert "'id': 1," in job


def test_hello_needs_the_streaming_flag_and_no_payload(alone: ManagerScript) -> None:
    """6.streaming.1"""
    assert alone.ask("job-manager.sched-hello") == [
        "job-manager.sched-hello -> EPROTO sched-hello needs the streaming flag"
    ]
    assert alone.ask("job-manager.sched-hello", {"x": 1}, streaming=True) == [
        "job-manager.sched-hello -> EPROTO sched-hello takes no payload"
    ]


def test_ready_needs_hello(alone: ManagerScript) -> None:
    refusal = "job-manager.sched-ready -> EPROTO sched-ready: expected sched-hello first, got"
    assert alone.ready(by="one") == [f"{refusal} it in state DETACHED"]
    alone.hello("one")
    assert alone.ready(by="another") == [f"{refusal} that of another scheduler"]
    alone.ready(by="one")
    assert alone.ready(by="one") == [f"{refusal} it in state READY"]


def test_limit_without_mode_limited_has_no_effect(alone: ManagerScript) -> None:
    """27.ready.6, and readings: The limit of ready."""
    alone.hello()
    ready = {"mode": "unlimited", "limit": 1}
    assert alone.ask("job-manager.sched-ready", ready, by="sched") == [
        "job-manager.sched-ready -> {'count': 0}"
    ]
    assert allocs(alone.submit(1, 2)) == [1, 2]


@pytest.mark.parametrize(
    "payload", [{}, {"mode": "single"}, {"mode": "limited"}, {"mode": "unlimited", "limit": 0}]
)
def test_mode_that_is_not_one_is_refused(alone: ManagerScript, payload: dict[str, Any]) -> None:
    """27.ready.3, 27.ready.5, 27.ready.9: an object with a mode, and a limit if it is limited."""
    alone.hello()
    (line,) = alone.ask("job-manager.sched-ready", payload, by="sched")
    assert line.startswith("job-manager.sched-ready -> EPROTO ")


def test_key_that_nobody_knows_is_no_reason_to_refuse_ready(alone: ManagerScript) -> None:
    """27.ready.11: RFC 27 says which keys there have to be, and forbids no other one."""
    alone.hello()
    asked = {"mode": "unlimited", "more": 1}
    answers = alone.ask("job-manager.sched-ready", asked, by="sched")
    assert answers == ["job-manager.sched-ready -> {'count': 0}"]


def test_ready_tells_how_many_wait(alone: ManagerScript) -> None:
    """27.ready.12, 27.ready.13: the count comes before any request."""
    alone.submit(1, 2)
    alone.hello()
    assert alone.ready() == [
        "job-manager.sched-ready -> {'count': 2}",
        "sched.alloc 1",
        "sched.alloc 2",
    ]


def test_nothing_is_sent_between_hello_and_ready(alone: ManagerScript) -> None:
    """27.ready.13: requests start after the ready response."""
    alone.hello()
    assert alone.submit(1) == ["job-manager.submit -> {'errors': []}"]
    assert allocs(alone.ready()) == [1]


def test_unlimited_mode_has_no_cap(m: ManagerScript) -> None:
    """27.ready.6, 27.alloc.1, 27.criteria.2: every job in SCHED is sent."""
    assert allocs(m.submit(*range(1, 500))) == list(range(1, 500))


# --- order


def test_requests_go_out_by_priority_then_submit_time_then_id(alone: ManagerScript) -> None:
    """27.criteria.5, 33.impl.1: descending priority, earlier submit first."""
    alone.submit(5, urgency=16)
    alone.now += 1
    alone.submit(4, 3, urgency=16)
    alone.submit(9, urgency=20)
    assert allocs(alone.attach_sched()) == [9, 5, 3, 4]


def test_priority_that_changes_while_no_scheduler_is_ready_moves_the_job(
    alone: ManagerScript,
) -> None:
    """27.criteria.5: also if the job stays in SCHED, and whether it moves up or down."""
    alone.submit(1, 2, 3, 4)
    alone.put(SetPriority(3, 20, "plugin"))
    alone.put(SetPriority(1, 4, "plugin"))
    assert alone.state(3) == JobState.SCHED
    assert allocs(alone.attach_sched()) == [3, 2, 4, 1]


def test_answers_come_in_any_order_and_any_time(m: ManagerScript) -> None:
    """27.background.5, 27.background.6, 27.impl.3: matched by id alone."""
    m.submit(1, 2, 3)
    m.now += 1e6
    assert m.put(alloc_answer(3), alloc_answer(1)) == ["job-exec.start 3", "job-exec.start 1"]
    assert m.state(2) == JobState.SCHED


def test_one_request_a_job_is_in_flight(m: ManagerScript) -> None:
    """27.impl.8, 27.criteria.8, 27.prioritize.1: another priority is told, not asked again."""
    m.submit(1)
    assert m.urgency(1, 20)[-1:] == ["sched.prioritize [[1, 20]]"]


# --- limited mode


def test_limit_is_kept(m: ManagerScript) -> None:
    """27.ready.7, 27.ready.8, 27.ready.11, 27.success.8, 27.deny.6, 27.alloccancel.4: a final
    answer makes room, an annotation does not.
    """
    m = limited(2, 1, 2, 3, 4, 5)
    assert m.stats()["sched"] == {"link": "ready", "waiting": 3, "outstanding": 2}
    assert m.alloc(1, ANNOTATE, annotations={}) == []
    assert allocs(m.alloc(1)) == [3]
    assert allocs(m.alloc(2, DENY)) == [4]
    m.raise_(3)
    assert allocs(m.alloc(3, CANCEL)) == [5]


def test_better_job_takes_the_place_of_the_lowest_request() -> None:
    """27.cancel.10, 27.alloccancel.4: with the limit reached, the lowest is taken back and sent
    again later (readings: Limited mode and priority).
    """
    m = limited(2, 1, 2)
    assert m.submit(3, urgency=20) == ["job-manager.submit -> {'errors': []}", "sched.cancel 2"]
    assert allocs(m.alloc(2, CANCEL)) == [3]
    assert allocs(m.alloc(1)) == [2]


def test_as_many_are_taken_back_as_better_ones_wait_and_no_more() -> None:
    m = limited(3, 1, 2, 3)
    assert m.submit(4, 5, urgency=20)[1:] == ["sched.cancel 3", "sched.cancel 2"]
    assert m.submit(6)[1:] == []
    assert m.submit(7, urgency=20)[1:] == ["sched.cancel 1"]


def test_lowest_request_that_was_granted_meanwhile_runs() -> None:
    """readings: A SUCCESS that crosses a cancel. The SUCCESS came first."""
    m = limited(1, 1)
    m.submit(2, urgency=20)
    assert m.alloc(1) == ["sched.alloc 2", "job-exec.start 1"]


# --- annotations


def test_annotations_merge_and_the_alloc_event_has_them_all(m: ManagerScript) -> None:
    """27.annotate.3, 27.annotate.4, 27.annotate.5, 27.annotate.19, 27.success.3-7, 27.alloc.12,
    21.events.21: kept apart by job, nothing in the eventlog before alloc, and null nowhere.
    """
    m.submit(1, 2)
    m.alloc(1, ANNOTATE, annotations={"sched": {"a": 1, "b": 2, "t": 3}, "user": {"u": 1}})
    m.alloc(1, ANNOTATE, annotations={"sched": {"b": None}})
    assert m.names(1)[-1] == "priority"
    assert m.alloc(1, annotations={"sched": {"c": [True, 3], "t": None}}) == ["job-exec.start 1"]
    merged = {"sched": {"a": 1, "c": [True, 3]}, "user": {"u": 1}}
    assert m.context(1, "alloc") == {"annotations": merged}
    m.alloc(2)
    assert m.context(2, "alloc") == {}


def test_annotations_of_a_failed_allocation_are_discarded(m: ManagerScript) -> None:
    """27.annotate.20: all of them with DENY and with a cancel of the job."""
    for jobid, end in ((1, lambda: m.alloc(1, DENY)), (2, lambda: m.raise_(2))):
        m.submit(jobid)
        m.ask(topics.JOB_JOURNAL, {}, streaming=True)
        m.alloc(jobid, ANNOTATE, annotations={"sched": {"a": 1}, "user": {"b": 1}})
        m.messages.clear()
        end()
        told = [e for r in m.messages if r.topic.endswith("journal") for e in r.payload["events"]]
        assert [jobid, -1, {"annotations": {}}] in [[e[0], e[1], e[2].get("context")] for e in told]


def test_annotations_of_a_canceled_request_lose_the_schedulers_part(m: ManagerScript) -> None:
    """27.annotate.20: a job that stays in SCHED keeps the others (readings: Annotations)."""
    m.submit(1)
    m.alloc(1, ANNOTATE, annotations={"sched": {"a": 1}, "user": {"b": 1}})
    m.queue(start=False)
    m.alloc(1, CANCEL)
    m.queue(start=True)
    m.alloc(1)
    assert m.context(1, "alloc") == {"annotations": {"user": {"b": 1}}}


# --- DENY


def test_denied_job_gets_a_fatal_alloc_exception(m: ManagerScript) -> None:
    """27.deny.2-6, 21.events.37: with the note, when there is one."""
    m.submit(1, 2)
    m.alloc(1, DENY, note="never")
    assert m.alloc(2, DENY) == ["event job-exception 2 alloc 0"]
    assert [m.context(n, "exception")["note"] for n in (1, 2)] == ["never", ""]
    for jobid in (1, 2):
        exception = m.context(jobid, "exception")
        assert (exception["type"], exception["severity"]) == ("alloc", 0)
        assert m.names(jobid)[-2:] == ["exception", "clean"]


# --- priorities


def test_priorities_of_one_turn_are_one_message(m: ManagerScript) -> None:
    """27.prioritize.2-5, 27.prioritize.9: [id, priority] pairs, all together."""
    m.submit(1, 2, 3)
    urgencies = [asked("job-manager.urgency", {"id": n, "urgency": 20 + n}) for n in (1, 2)]
    assert m.put(*urgencies)[-1:] == ["sched.prioritize [[1, 21], [2, 22]]"]
    assert not m.last("sched.prioritize").wants_response


def test_request_with_another_priority_is_one_request_with_another_rank() -> None:
    """27.ready.7, 27.cancel.10: it counts once, and the lowest is another."""
    m = limited(2, 1, 2)
    m.urgency(2, 20)
    assert m.stats()["sched"]["outstanding"] == 2
    assert m.submit(3, urgency=18)[1:] == ["sched.cancel 1"]


def test_same_priority_is_not_told_again(m: ManagerScript) -> None:
    m.submit(1)
    assert m.urgency(1, 16) == ["job-manager.urgency -> {'old_urgency': 16}"]


def test_answered_requests_are_not_prioritized(m: ManagerScript) -> None:
    m.submit(1)
    urgency = asked("job-manager.urgency", {"id": 1, "urgency": 20})
    did = m.put(urgency, alloc_answer(1))
    assert not [line for line in did if line.startswith("sched.prioritize")]
    assert m.state(1) == JobState.RUN


def test_urgency_0_holds_a_job_and_takes_its_request_back(m: ManagerScript) -> None:
    """21.states.9: an urgency event in SCHED goes by PRIORITY; the least priority is held."""
    m.submit(1)
    assert m.urgency(1, 0)[-1:] == ["sched.cancel 1"]
    assert m.alloc(1, CANCEL) == []
    assert m.names(1)[-2:] == ["urgency", "priority"]
    assert m.context(1, "priority") == {"priority": 0}
    assert allocs(m.urgency(1, 16)) == [1]


def test_job_that_is_held_before_it_was_sent_is_not_sent(alone: ManagerScript) -> None:
    alone.submit(1, urgency=0)
    alone.submit(2)
    alone.urgency(2, 0)
    assert alone.attach_sched() == ["job-manager.sched-ready -> {'count': 0}"]


def test_job_released_before_its_cancel_is_answered_is_sent_after_it(m: ManagerScript) -> None:
    """27.impl.8: one request in flight."""
    m.submit(1)
    m.urgency(1, 0)
    assert allocs(m.urgency(1, 16)) == []
    assert allocs(m.alloc(1, CANCEL)) == [1]


def test_changed_jobspec_is_asked_for_anew(m: ManagerScript) -> None:
    """21.states.9: the request with the old jobspec does not stay."""
    m.submit(1)
    assert m.post(1, "jobspec-update", **{"attributes.system.duration": 60})[-1:] == [
        "sched.cancel 1"
    ]
    assert allocs(m.alloc(1, CANCEL)) == [1]
    sent = m.last("sched.alloc").payload["jobspec"]
    assert sent["attributes"]["system"]["duration"] == 60


# --- queue stop and start


def test_stopped_queue_takes_its_requests_back_and_sends_them_again(m: ManagerScript) -> None:
    """33.admin.6, 33.admin.7, 27.cancel.3, 27.cancel.9, 27.alloccancel.3: in order of priority;
    frees go on.
    """
    m.running(9)
    m.submit(1, 2)
    m.submit(3, urgency=20)
    m.raise_(2)
    assert m.queue(start=False) == [
        "sched.cancel 3",
        "sched.cancel 1",
        "job-manager.queue-start -> {}",
    ]
    assert allocs(m.submit(4)) == []
    for jobid in (1, 2, 3):
        m.alloc(jobid, CANCEL)
    assert m.execute(9, "finish", "release final") == ["sched.free 9"]
    assert allocs(m.queue(start=True)) == [3, 1, 4]


class LimitedScheduler:
    """A scheduler that answers each sched.cancel at once. `sent` are the jobs that it has."""

    def __init__(self, limit: int) -> None:
        self.m = limited(limit)
        self.sent: set[int] = set()
        self.urgencies: dict[int, int] = {}  # of the jobs without resources

    def take(self, did: list[str]) -> None:
        for each in did:
            topic, _, rest = each.partition(" ")
            if topic == topics.SCHED_ALLOC:
                self.sent.add(int(rest))
            elif topic == topics.SCHED_CANCEL:
                self.sent.discard(int(rest))
                self.take(self.m.alloc(int(rest), CANCEL))

    def submit(self, jobid: int, urgency: int) -> None:
        self.urgencies[jobid] = urgency
        self.take(self.m.submit(jobid, urgency=urgency))

    def change(self, jobid: int, urgency: int) -> None:
        self.urgencies[jobid] = urgency
        self.take(self.m.urgency(jobid, urgency))

    def grant(self, jobid: int) -> None:
        self.sent.discard(jobid)
        del self.urgencies[jobid]
        self.take(self.m.alloc(jobid))

    def rank(self, jobid: int) -> tuple[int, int]:
        return -self.urgencies[jobid], jobid


@pytest.mark.parametrize("seed", range(60))
def test_no_job_that_waits_is_better_than_the_lowest_one_sent(seed: int) -> None:
    """readings: Limited mode and priority. Urgencies of jobs that were sent change, and others."""
    rng = Random(seed)
    sched = LimitedScheduler(rng.randint(1, 3))
    for number in range(1, 40):
        act = rng.random() if sched.urgencies else 0.0
        if act < 0.3:
            sched.submit(number, rng.choice([8, 16, 24]))
        elif act < 0.6 and sched.sent:
            sched.change(rng.choice(sorted(sched.sent)), rng.choice([4, 8, 12, 20]))
        elif act < 0.9 or not sched.sent:
            sched.change(rng.choice(sorted(sched.urgencies)), rng.choice([4, 10, 18, 26]))
        else:
            sched.grant(rng.choice(sorted(sched.sent)))
        waiting = sched.urgencies.keys() - sched.sent
        assert sched.sent or not waiting
        if waiting:
            assert min(map(sched.rank, waiting)) > max(map(sched.rank, sched.sent))
