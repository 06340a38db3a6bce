"""The judge of a live flux-core: what it knows when it joins, and that what it keeps is bounded."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from flux_trio.attach import judging
from flux_trio.attach.judging import AUDITED, KEPT_MAX, LiveJudge
from flux_trio.formats import job_key
from flux_trio.judge import Verdict
from flux_trio.judge.known import load_shipped
from flux_trio.trace.traced_message import TracedMessage
from tests.trace.test_live_module_trace import told

FIRST, SECOND = 1000, 1001
DOUBLE = "invariant.no-double-allocation"
R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "starttime": 100.0,
        "expiration": 0.0,
        "nodelist": ["n0"],
        "nslots": 1,
    },
}
JOBSPEC = {
    "version": 1,
    "resources": [
        {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
    ],
    "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 0}},
}
HELD = ("submit", "validate", "depend", "priority", "alloc", "start")


def new_judge(scheduler: str = "sched-simple") -> LiveJudge:
    return LiveJudge({}, scheduler, load_shipped("flux-core-0.88"), 100.0)


def message(
    t: float, sender: str, receiver: str, type_: int, topic: str, payload: Any = None
) -> list[TracedMessage]:
    """A message as both of its ends show it."""
    sides = (("tx", sender), ("rx", receiver))
    return [TracedMessage(t, way, name, type_, topic, 9, payload) for way, name in sides]  # type: ignore[arg-type]


def backlog(*names: str) -> list[TracedMessage]:
    """What the job manager tells a new follower of its journal about the first job."""
    events = [{"timestamp": 90.0, "name": name, "context": {}} for name in names]
    payload = {"id": FIRST, "events": events, "R": R}
    return [TracedMessage(101.0, "tx", "job-manager", 2, "job-manager.events-journal", 9, payload)]


def granted(
    t: float = 102.0, jobid: int = SECOND, sender: str = "sched-simple"
) -> list[TracedMessage]:
    """The second job is granted what the first one may hold."""
    ask = {"id": jobid, "priority": 16, "userid": 0, "t_submit": 101.0, "jobspec": JOBSPEC}
    success = {"id": jobid, "type": 0, "R": R}
    module = "connector-local" if sender == "client" else sender
    return [
        *message(t, "job-manager", module, 1, "sched.alloc", ask),
        *message(t + 0.01, module, "job-manager", 2, "sched.alloc", success),
    ]


def judged(judge: LiveJudge, *messages: TracedMessage) -> list[str]:
    """The clauses that are broken by messages that come at once."""
    for each in messages:
        judge.put(each)
    return [found.clause for found in judge.judge(float("inf"))]


def test_what_a_healthy_flux_core_told_breaks_nothing() -> None:
    judge = new_judge()
    assert judged(judge, *told()) == []
    judgement = judge.judgement()
    kept = [id_ for id_, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT]
    assert len(kept) > 80
    assert judgement.is_kept


@pytest.mark.parametrize("scheduler", ["sched-simple", ""])
def test_what_a_job_held_when_the_judge_joined_is_not_given_again(scheduler: str) -> None:
    judge = new_judge(scheduler)
    assert judged(judge, *backlog(*HELD), *granted()) == [DOUBLE]


@pytest.mark.parametrize("names", [(*HELD, "free"), ("submit", "validate")])
def test_a_job_that_held_nothing_then_is_no_reason(names: tuple[str, ...]) -> None:
    judge = new_judge()
    assert judged(judge, *backlog(*names), *granted()) == []


def test_the_parties_are_known_though_their_hellos_were_not_seen() -> None:
    judge = new_judge("sched-fifo")
    start = {"id": FIRST, "userid": 0, "jobspec": {}, "reattach": False, "R": R}
    judged(judge, *message(101.0, "job-manager", "job-exec", 1, "job-exec.start", start))
    facts = judge._monitor.facts
    assert (facts.scheduler, facts.exec_peer, facts.exec_service) == (
        "sched-fifo",
        "job-exec",
        "job-exec",
    )


def test_of_a_clause_that_is_broken_often_some_are_kept_and_all_are_counted() -> None:
    judge = new_judge()
    judged(judge, *backlog(*HELD))
    for n in range(KEPT_MAX + 5):
        judged(judge, *granted(102.0 + n, SECOND + n))
    judgement = judge.judgement()
    of_it = [each for each in judgement.violations if each.clause == DOUBLE]
    assert len(of_it) == KEPT_MAX
    assert judge.counts[DOUBLE] >= KEPT_MAX + 5
    assert judgement.verdicts[DOUBLE] is Verdict.BROKEN
    assert all(each.record.n in judge.shown() for each in of_it)


def test_scheduler_that_is_no_module_is_not_asked_for_commits_that_a_trace_does_not_show() -> None:
    """The kvs is not traced, so only modules are seen to write to it."""
    journal = {"id": 7, "events": []}
    commit = message(100.5, "job-manager", "kvs", 1, "kvs.commit", {"ops": []})[:1]
    told_by = TracedMessage(100.4, "tx", "job-manager", 2, "job-manager.events-journal", 9, journal)
    for scheduler, broken in (("sched-simple", ["27.success.1"]), ("client", [])):
        judge = new_judge(scheduler)
        assert judged(judge, told_by, *commit, *granted(102.0, sender=scheduler)) == broken


@pytest.mark.parametrize(
    ("module", "broken"), [("my-exec", ["32.criteria.1"]), ("connector-local", [])]
)
def test_one_of_several_programs_is_not_taken_for_another(module: str, broken: list[str]) -> None:
    """An execution service that is no module, and a program that asks the scheduler."""
    judge = new_judge()
    start = {"id": FIRST, "userid": 0, "jobspec": JOBSPEC, "reattach": False, "R": R}
    judged(judge, *message(101.0, "job-manager", module, 1, "my-exec.start", start))
    asks = message(102.0, module, "sched-simple", 1, "sched.resource-status")
    assert judged(judge, *asks) == broken


def test_known_departures_are_counted_apart() -> None:
    judge = new_judge()
    start = {"id": FIRST, "userid": 0, "jobspec": {}, "reattach": False, "R": R}
    release = {"id": FIRST, "type": "release", "data": {"ranks": "all", "final": True}}
    judged(judge, *message(101.0, "job-manager", "job-exec", 1, "job-exec.start", start))
    broken = judged(judge, *message(102.0, "job-exec", "job-manager", 2, "job-exec.start", release))
    assert "32.start.20" not in broken
    judgement = judge.judgement()
    assert judgement.verdicts["32.start.20"] is Verdict.KNOWN
    assert {each.clause: len(each.violations) for each in judgement.known}["32.start.20"] == 1


def test_after_lost_messages_nothing_is_owed_and_what_was_kept_stays() -> None:
    judge, messages = new_judge(), until_success()
    judged(judge, *messages)
    kept = {id_ for id_, verdict in judge.judgement().verdicts.items() if verdict is Verdict.KEPT}
    n = judge.nrecords
    judge.lose(17)
    assert judge.nlost == 17
    later = messages[-1].timestamp + 5.0
    assert judged(judge, TracedMessage(later, "rx", "job-manager", 4, "heartbeat.pulse", 0)) == []
    assert judge.due() == []
    assert judge.nrecords > n
    now = {id_ for id_, verdict in judge.judgement().verdicts.items() if verdict is Verdict.KEPT}
    assert kept <= now


def later_jobs(nth: int, messages: list[TracedMessage]) -> list[TracedMessage]:
    """The same messages about other jobs, some time later."""
    text = msgspec.json.encode(messages).decode()
    for jobid in {int(found) for found in re.findall(r'"id":(\d{9,})', text)}:
        text = text.replace(str(jobid), str(jobid + (nth << 40)))
        text = text.replace(job_key(jobid, ""), job_key(jobid + (nth << 40), ""))
    seconds = nth * (messages[-1].timestamp - messages[0].timestamp + 2.0)
    text = re.sub(r"\b\d{10}\.\d+", lambda each: repr(float(each[0]) + seconds), text)
    return msgspec.json.decode(text, type=list[TracedMessage])


def test_what_is_kept_does_not_grow_with_the_jobs_that_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "ENDED_MAX", 3)
    monkeypatch.setattr(judging, "RECENT", 10)
    judge, sizes = new_judge(), []
    for nth in range(24):
        assert judged(judge, *later_jobs(nth, list(told()))) == []
        assert len(judge.shown()) <= 10
        sizes.append(sum(map(len, judge._monitor.slots)))
    assert max(sizes[12:]) <= max(sizes[:12])
    assert judge.judgement().is_kept


def until_success() -> list[TracedMessage]:
    """What was told up to the first SUCCESS, after which the job manager logs alloc."""
    messages = list(told())
    places = (n for n, each in enumerate(messages) if (each.topic, each.type) == ("sched.alloc", 2))
    return messages[: next(places) + 1]


def test_what_is_due_says_for_how_long() -> None:
    judge, messages = new_judge(), until_success()
    assert judged(judge, *messages) == []
    assert judge.due() == []
    later = messages[-1].timestamp + 5.0
    judged(judge, TracedMessage(later, "rx", "job-manager", 4, "heartbeat.pulse", 0))
    ages = {each.clause: age for each, age in judge.due()}
    assert ages["27.success.6"] == pytest.approx(5.0)
    assert judge.judgement().debts


def test_what_is_due_for_long_is_due_though_its_beginning_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "RECENT", 3)
    judge, messages = new_judge(), until_success()
    judged(judge, *messages)
    for n in range(5):
        later = messages[-1].timestamp + 5.0 + n
        judged(judge, TracedMessage(later, "rx", "job-manager", 4, "heartbeat.pulse", 0))
    ages = {each.clause: age for each, age in judge.due()}
    assert ages["27.success.6"] >= 1.0


def test_a_judge_that_begins_anew_knows_the_configuration_of_the_last_reload() -> None:
    judge = new_judge()
    tables = {"queues": {"debug": {}}}
    judged(judge, *message(101.0, "config", "job-manager", 1, "job-manager.config-reload", tables))
    judge.lose(1)
    assert judge._recent[judge.nrecords].data == tables


def test_an_audit_is_a_verdict_like_others() -> None:
    judge = new_judge()
    judge.audited([])
    assert judge.judgement().verdicts[AUDITED] is Verdict.KEPT
    judge.audited(["n0 (rank 0): core 0: held by the scheduler"])
    judgement = judge.judgement()
    assert judgement.verdicts[AUDITED] is Verdict.BROKEN
    assert [each.text for each in judgement.violations] == [
        "n0 (rank 0): core 0: held by the scheduler"
    ]
