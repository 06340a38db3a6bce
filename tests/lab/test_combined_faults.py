"""What goes wrong together is drawn as a whole: each kind of meeting, and what it makes happen."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from flux_trio.cores.sched.granting import Grantings
from flux_trio.lab import (
    Crash,
    DiskFull,
    JobPlan,
    Linger,
    NodesDown,
    OwnerRequest,
    Plan,
    Shrink,
    Slow,
    When,
    draw_plan,
    run_plan,
)
from flux_trio.lab.plans.asking import draw_long_requests, draw_new_durations
from flux_trio.lab.plans.combined_faults import (
    Coincidence,
    draw_coincidence,
    draw_lost_manager,
    table_of,
)
from flux_trio.lab.plans.rarely_met import client_leaves_while_the_kvs_is_slow, draw_rarely_met
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories.running import play
from flux_trio.messages import topics
from flux_trio.trace import Kind

JOBS = tuple(JobPlan(at=float(place), urgency=16) for place in range(6))


NO_JOBS = Plan(1)
PLAN = Plan(1, nnodes=2, jobs=JOBS)
QUEUED = Plan(1, nnodes=4, queues=2, jobs=JOBS)


def drawn(seed: int) -> Coincidence:
    return draw_coincidence(Random(seed), QUEUED)


def test_two_thirds_of_the_seeds_have_a_meeting_and_a_world_without_jobs_has_none() -> None:
    found = [drawn(seed) for seed in range(400)]
    assert 100 < sum(each == ((), ()) for each in found) < 170
    assert all(draw_coincidence(Random(seed), NO_JOBS) == ((), ()) for seed in range(20))


def test_every_kind_of_meeting_is_drawn() -> None:
    """Each is known by what it has and no other one has."""
    seen: Counter[str] = Counter()
    for seed in range(400):
        faults, asked = drawn(seed)
        kinds = {type(each).__name__ for each in faults}
        places = {getattr(getattr(each, "when", None), "topic", "") for each in faults}
        wanted = [each.what for each in asked]
        if "DiskFull" in kinds:
            seen["the disk is full"] += 1
        elif "purge" in wanted:
            seen["purged"] += 1
        elif not faults and wanted:
            seen["there and back"] += wanted == ["urgency", "urgency"]
        elif topics.KVS_COMMIT in places and any(
            getattr(each, "module", "") == "sched" for each in faults
        ):
            seen["resources are stored"] += 1
        elif places & {topics.SCHED_HELLO, topics.SCHED_READY, topics.KVS_OWN.lookup_all}:
            seen["hello is answered"] += 1
        elif "Shrink" in kinds:
            seen["shrunk and back"] += 1
        elif asked:
            seen["a module is away"] += 1
    assert len(seen) == 7
    assert min(seen.values()) >= 10


def test_drawn_plan_has_a_meeting_only_if_the_number_of_its_faults_is_free() -> None:
    assert all(len(draw_plan(seed, nfaults=2).faults) == 2 for seed in range(50))
    assert any(isinstance(each, DiskFull) for seed in range(90) for each in draw_plan(seed).faults)


@pytest.mark.parametrize("lost", ["down", "shrink"])
def test_grant_is_taken_back_while_its_resources_are_stored(
    monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """What one meeting makes happen in some of the orders, and faults on their own nearly never."""
    when = When(topics.KVS_COMMIT, 1, "send", party="sched")
    nodes = NodesDown((0,), when) if lost == "down" else Shrink((0,), when)
    revoked: list[int] = []
    revoke = Grantings.revoke
    monkeypatch.setattr(
        Grantings, "revoke", lambda self, one: revoked.append(one.job.id) or revoke(self, one)
    )
    for seed in range(20):
        plan = Plan(seed, 2, jobs=(JobPlan(),), faults=(Linger("sched", when, 0.5), nodes))
        assert run_plan(plan, properties=OURS).problems == ()
    assert revoked


def test_purge_of_the_owner_removes_finished_jobs_and_a_restart_does_not_miss_them() -> None:
    plan = Plan(1, jobs=(JobPlan(), JobPlan(at=9.0)), actions=(OwnerRequest(5.0, "purge"),))
    plan_run = play(plan)
    assert len(plan_run.world.disk.store.dir("ended")) == 1
    sent = [each for each in plan_run.trace if each.kind == Kind.SEND]
    assert any(getattr(each.message, "topic", "") == topics.JOB_PURGE_EVENT for each in sent)


def test_new_durations_are_drawn_in_a_third_of_the_worlds_and_half_of_these_have_a_fault() -> None:
    drawn = [draw_new_durations(Random(seed), PLAN) for seed in range(600)]
    asked = [(faults, actions) for faults, actions in drawn if actions]
    assert 150 < len(asked) < 250
    assert all(each.what == "duration" for _, actions in asked for each in actions)
    assert {each.job for _, actions in asked for each in actions} == set(range(len(JOBS)))
    with_fault = [faults for faults, _ in asked if faults]
    assert len(asked) / 3 < len(with_fault) < len(asked) * 2 / 3
    assert not any(faults for faults, actions in drawn if not actions)
    assert draw_new_durations(Random(0), NO_JOBS) == ((), ())


def test_long_requests_are_drawn_in_a_quarter_of_the_worlds() -> None:
    drawn = [draw_long_requests(Random(seed), QUEUED)[1] for seed in range(600)]
    asked = [each for each in drawn if each]
    assert 100 < len(asked) < 200
    kinds = Counter(each.what for actions in asked for each in actions)
    assert set(kinds) == {"watch", "queue-drain", "queue-idle"}
    assert {each.queue for actions in asked for each in actions} == {None, 0, 1}
    assert draw_long_requests(Random(0), NO_JOBS) == ((), ())


def test_ends_of_the_job_manager_between_two_steps_are_drawn_in_a_fifth_of_the_worlds() -> None:
    drawn = [draw_lost_manager(Random(seed), PLAN)[0] for seed in range(600)]
    kinds = Counter(type(faults[0]) for faults in drawn if faults)
    assert set(kinds) == {Linger, Slow}
    assert all(30 < count < 90 for count in kinds.values())
    assert draw_lost_manager(Random(0), NO_JOBS) == ((), ())


def test_what_is_rarely_met_is_drawn_in_a_fifth_of_the_worlds() -> None:
    """Urgencies of jobs that were sent only where there is a limit."""
    limited = replace(QUEUED, limit=2)
    for plan, kinds in ((QUEUED, {"duration", ""}), (limited, {"duration", "urgency", ""})):
        drawn = [draw_rarely_met(Random(seed), plan) for seed in range(600)]
        some = [each for each in drawn if each != ((), ())]
        assert 80 < len(some) < 160
        admin = {"down", "drain", "queue-stop", "queue-disable"}
        admin |= {"up", "undrain", "queue-start", "queue-enable"}
        wanted = {asked[0].what if asked else "" for _, asked in some}
        assert wanted - admin == kinds
        assert wanted & admin
    assert draw_rarely_met(Random(0), NO_JOBS) == ((), ())


@pytest.mark.parametrize("seed", [6, 17])
def test_client_that_leaves_while_the_kvs_is_slow_is_owed_no_answer(seed: int) -> None:
    plan = draw_plan(seed, njobs=6, nfaults=0)
    faults, asked = client_leaves_while_the_kvs_is_slow(table_of(Random(seed), plan))
    plan = replace(plan, faults=faults, actions=(*plan.actions, *asked))
    assert run_plan(plan).problems == ()


def test_job_manager_reads_a_job_back_that_is_not_submitted_yet() -> None:
    stores = When(topics.KVS_COMMIT, 1, "send", party="job-ingest")
    faults = (Linger("job-ingest", stores, 2.0), Crash("job-manager", stores, 0.5))
    events = [each for each in _told(faults) if each != "job-manager.submit"]
    assert events[:2] == ["crashed", "started"]
    assert _told(faults).index("job-manager.submit") > _told(faults).index("started")
    assert run_plan(Plan(1, jobs=(JobPlan(),), faults=faults), properties=OURS).problems == ()


def test_job_manager_ends_between_the_finish_of_a_job_and_its_release() -> None:
    finished = When("job-exec.start", 2, "send", "response")
    released = When("job-exec.start", 3, "recv", "response")
    faults = (Slow("job-manager", finished, 0.1, 5.0), Crash("job-manager", released))
    told = _told(faults)
    assert told.index("finish") < told.index("crashed") < told.index("release")
    assert told.count("finish") == 1
    assert run_plan(Plan(1, jobs=(JobPlan(),), faults=faults), properties=OURS).problems == ()


def _told(faults: tuple[Any, ...]) -> list[str]:
    """The events of one job, what becomes of the job manager, and the submissions of ingest."""
    told = []
    for each in play(Plan(1, jobs=(JobPlan(),), faults=faults)).trace:
        data = each.data or {}
        if each.kind == Kind.EVENT:
            told.append(data["name"])
        elif each.kind == Kind.MODULE and data["module"] == "job-manager":
            told.append(data["what"])
        elif each.kind == Kind.SEND and getattr(each.message, "topic", "") == topics.JOB_SUBMIT:
            told.append(topics.JOB_SUBMIT)
    return told[told.index("started") + 1 :]
