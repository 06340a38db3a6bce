"""R of each SUCCESS is judged before the job manager goes by it."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import ResourceSet
from flux_trio.messages import Response, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked, asked_by_guest
from tests.support.manager_script import (
    ANNOTATE,
    CANCEL,
    DENY,
    NAME,
    PRIORITIZE,
    ManagerScript,
    alloc_answer,
    allocs,
)
from tests.support.scheduling import machine

SUSPENDED = "log 3: scheduling suspended: sched.alloc: SUCCESS for "
SMALL = machine(2, 4)


@pytest.fixture
def m() -> ManagerScript:
    """A job manager with peers, on two nodes of four cores."""
    return ManagerScript(peers=True, inventory=SMALL)


def waiting() -> ManagerScript:
    """Job 1 was granted; the lookup of its R is not answered."""
    m = ManagerScript(peers=True, lookups_wait=True, inventory=SMALL)
    m.submit(1)
    assert m.alloc(1) == []
    return m


def with_gpus(*gpus: int) -> str:
    bits = sum(1 << gpu for gpu in gpus)
    r = ResourceSet.build([(1, 1 << gpus[0], bits)], lambda rank: f"node{rank}")
    return msgspec.json.encode(r.to_json()).decode()


# --- what is refused


def test_job_that_is_granted_what_another_holds_stays_pending(m: ManagerScript) -> None:
    """27.impl.10: what came and what was expected is told; the other job does not notice."""
    m.submit(1, 2)
    m.store_r(1, {0: [0, 1], 1: [3]})
    m.store_r(2, {0: [1, 2], 1: [0, 1, 2, 3]})
    m.alloc(1)
    (line,) = m.alloc(2)
    assert line == (
        f"{SUSPENDED}job 2: R: expected resources that no other job holds, "
        "got rank0/core1 rank1/core3, which job 1 has"
    )
    assert (m.state(1), m.state(2)) == (JobState.RUN, JobState.SCHED)
    assert allocs(m.attach_sched()) == [2]


def test_what_jobs_hold_is_told_to_everybody(m: ManagerScript) -> None:
    m.put(asked_by_guest(topics.JOB_RESOURCE_STATUS))
    assert m.last(topics.JOB_RESOURCE_STATUS).payload == {"allocated": None}
    m.submit(1, 2)
    m.store_r(1, {0: [0, 1], 1: [3]})
    m.store_r(2, {0: [2]})
    m.alloc(1)
    m.alloc(2)
    m.ask(topics.JOB_RESOURCE_STATUS)
    total = ResourceSet.parse(m.last(topics.JOB_RESOURCE_STATUS).payload["allocated"])
    assert total.summary() == "rank0/core[0-2] rank1/core3"
    assert total.hosts == {0: "node0", 1: "node1"}
    m.execute(2, "start", "finish", "release final")
    m.ask(topics.JOB_RESOURCE_STATUS)
    total = ResourceSet.parse(m.last(topics.JOB_RESOURCE_STATUS).payload["allocated"])
    assert total.summary() == "rank0/core[0-1] rank1/core3"


def test_gpus_are_held_as_cores_are(m: ManagerScript) -> None:
    m.inventory = None
    m.attach_sched()
    m.submit(1, 2, 3)
    m.store_text(1, with_gpus(0, 1))
    m.store_text(2, with_gpus(2, 3))
    m.store_text(3, with_gpus(3, 1))
    assert m.alloc(1) + m.alloc(2) == ["job-exec.start 1", "job-exec.start 2"]
    (line,) = m.alloc(3)
    assert "got rank1/gpu1, which job 1 has" in line


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        ({2: [0], 7: [1]}, "ranks 0-1, got rank2/core0 rank7/core1"),
        ({0: [0], 1: [3, 4, 5]}, "rank1/core[0-3], got rank1/core[4-5]"),
    ],
)
def test_grant_outside_the_inventory_suspends_scheduling(
    m: ManagerScript, cores: dict[int, list[int]], text: str
) -> None:
    m.submit(1)
    m.store_r(1, cores)
    (line,) = m.alloc(1)
    assert line == f"{SUSPENDED}job 1: R: expected what the instance has, {text}"
    assert m.state(1) == JobState.SCHED


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (("node0", "elsewhere"), "host node1 at rank 1, got elsewhere"),
        (("node1", "node0"), "host node0 at rank 0, got node1"),
    ],
)
def test_grant_on_other_hosts_suspends_scheduling(
    m: ManagerScript, hosts: tuple[str, ...], text: str
) -> None:
    """27.success.1, and readings: R that is not of the instance."""
    m.submit(1)
    r = ResourceSet.build([(0, 1, 0), (1, 1, 0)], lambda rank: hosts[rank])
    m.store_text(1, msgspec.json.encode(r.to_json()).decode())
    (line,) = m.alloc(1)
    assert line == f"{SUSPENDED}job 1: R: expected {text}"
    assert m.state(1) == JobState.SCHED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "R: expected a JSON object"),
        ("{}", "R.version: expected the integer 1"),
        ('{"version": 1, "execution": {"R_lite": [], "nodelist": []}}', "R.execution.R_lite: "),
    ],
)
def test_grant_whose_r_is_none_suspends_scheduling(m: ManagerScript, text: str, why: str) -> None:
    """27.success.1, 20.format.1: and says what is wrong with it."""
    m.submit(1)
    m.store_text(1, text)
    (line,) = m.alloc(1)
    assert line.startswith(f"{SUSPENDED}job 1: R")
    assert why in line
    assert m.state(1) == JobState.SCHED


def test_grant_without_r_suspends_scheduling() -> None:
    """27.success.1."""
    m = waiting()
    m.kvs.commit(["unlink", "job.0000.0000.0000.0001.R"])
    assert m.looked_up() == [f"{SUSPENDED}job 1: R: job.0000.0000.0000.0001.R: no such key"]


def test_kvs_that_cannot_read_r_is_not_the_schedulers_fault() -> None:
    m = waiting()
    request = m.lookups.popleft()
    answer = Response(request.topic, "disk", 5, request.matchtag)
    assert m.put(answer) == ["exit: cannot read R of jobs that were granted resources: disk"]


# --- what is not


def test_grants_of_a_turn_are_judged_in_the_order_they_came(m: ManagerScript) -> None:
    m.submit(1, 2, 3)
    for jobid, core in ((1, 0), (2, 1), (3, 1)):
        m.store_r(jobid, {0: [core]})
    did = m.put(alloc_answer(1), alloc_answer(3), alloc_answer(2))
    assert did[0].endswith(
        "job 2: R: expected resources that no other job holds, got rank0/core1, which job 3 has"
    )
    assert did[1:] == ["job-exec.start 1", "job-exec.start 3"]


def test_what_was_freed_may_be_granted_as_soon_as_the_free_is_sent(m: ManagerScript) -> None:
    """27.free.5: the scheduler may use it again before it has answered."""
    m.submit(1, 2)
    m.store_r(1, {0: [0]})
    m.store_r(2, {0: [0]})
    m.alloc(1)
    assert m.execute(1, "start", "finish", "release final") == ["sched.free 1"]
    assert m.alloc(2) == ["job-exec.start 2"]


def test_inventory_that_grew_is_asked_for_before_anyone_is_blamed(m: ManagerScript) -> None:
    m.submit(1)
    m.inventory = machine(3, 4)
    m.store_r(1, {2: [0]})
    assert m.alloc(1) == ["job-exec.start 1"]


def test_without_a_resource_service_overlaps_are_still_seen() -> None:
    m = ManagerScript(peers=True)
    m.submit(1, 2)
    m.store_r(1, {5: [0]})
    m.store_r(2, {5: [0]})
    assert m.alloc(1) == ["job-exec.start 1"]
    (line,) = m.alloc(2)
    assert line.startswith(SUSPENDED)


def test_jobs_that_run_hold_their_resources_after_a_restart(m: ManagerScript) -> None:
    m.running(1)
    m.submit(2)
    after = m.restarted(peers=True)
    after.store_r(2, {0: [0]})
    (line,) = after.alloc(2)
    assert line.endswith("got rank0/core0, which job 1 has")


def test_what_jobs_share_since_before_a_restart_ends_with_the_last_of_them() -> None:
    """An earlier life may have left such a thing: the next grant must not profit."""
    m = ManagerScript(peers=True)
    m.submit(1, 2)
    m.alloc(1)
    m.alloc(2)
    m.store_r(2, {0: [0]})  # as job 1
    after = m.restarted(peers=True)
    for jobid in (1, 2):
        after.submit(jobid + 10)
        after.store_r(jobid + 10, {0: [0]})
    after.execute(1, "start", "finish", "release final")
    (line,) = after.alloc(11)
    assert line.endswith("got rank0/core0, which job 2 has")


def test_job_whose_r_is_lost_is_told_of_at_the_restart(m: ManagerScript) -> None:
    m.running(1)
    m.kvs.commit(["unlink", "job.0000.0000.0000.0001.R"])
    (line,) = m.restarted().began
    assert line == (
        "log 2: job 1: what it holds is not known: R: job.0000.0000.0000.0001.R: no such key"
    )


# --- what crosses the lookup


def test_job_canceled_during_the_lookup_is_freed_at_once() -> None:
    """readings: A SUCCESS that crosses a cancel. And R does not matter any more."""
    m = waiting()
    assert "sched.free 1" in m.raise_(1)
    assert m.looked_up() == []
    assert m.freed(1) == []
    assert m.state(1) == JobState.INACTIVE
    assert "alloc" not in m.names(1)


def test_job_canceled_in_the_turn_of_the_answer_is_freed() -> None:
    m = waiting()
    cancel = asked(topics.JOB_RAISE, {"id": 1, "severity": 0, "type": "cancel"})
    did = m.put(cancel, *m.kvs.take(m.lookups.popleft(), NAME))
    assert "sched.free 1" in did
    assert "alloc" not in m.names(1)


def test_scheduler_that_goes_during_the_lookup_is_forgotten_and_the_next_is_asked() -> None:
    m = waiting()
    m.gone("sched")
    assert m.looked_up() == []
    assert "alloc" not in m.names(1)
    assert allocs(m.attach_sched()) == [1]


def test_r_that_was_looked_up_for_an_earlier_grant_is_not_that_of_the_next_one() -> None:
    """The kvs answers late; the job has another scheduler's grant meanwhile."""
    m = waiting()
    late = m.kvs.take(m.lookups.popleft(), NAME)
    m.gone("sched")
    m.attach_sched()
    m.store_r(1, {1: [3]})
    assert m.alloc(1) == []
    assert m.put(*late) == []
    assert "alloc" not in m.names(1)
    assert m.looked_up() == ["job-exec.start 1"]


@pytest.mark.parametrize("kind", [ANNOTATE, DENY, CANCEL])
def test_answers_that_cross_the_lookup_of_a_request_that_was_canceled_are_ignored(
    kind: AllocType,
) -> None:
    """readings: Late and stray answers. The queue has stopped: the request was canceled."""
    m = ManagerScript(peers=True, lookups_wait=True, inventory=SMALL)
    m.submit(1)
    m.queue(start=False)
    m.alloc(1)
    assert m.alloc(1, kind, annotations={}) == []
    assert m.looked_up() == ["job-exec.start 1"]
    assert m.alloc(1, kind, annotations={}) == []


@pytest.mark.parametrize("kind", [ANNOTATE, DENY, CANCEL])
def test_answer_after_success_breaks_the_protocol(kind: AllocType) -> None:
    """readings: Late and stray answers."""
    m = waiting()
    (line,) = m.alloc(1, kind, annotations={})
    assert "in state ALLOCATED" in line
    assert m.looked_up() == []
    assert m.state(1) == JobState.SCHED


def test_queue_that_stops_during_the_lookup_does_not_stop_the_job() -> None:
    """readings: A SUCCESS that crosses a cancel. Still in SCHED, the grant came first."""
    m = waiting()
    m.queue(start=False)
    assert m.looked_up() == ["job-exec.start 1"]


def test_job_whose_priority_is_asked_for_runs_after_the_answer() -> None:
    m = ManagerScript(peers=True, lookups_wait=True, hooks=[PRIORITIZE])
    m.submit(1)
    m.answer(PRIORITIZE, priority=5)
    m.alloc(1)
    m.urgency(1, 20)
    assert m.looked_up() == []
    assert m.answer(PRIORITIZE, priority=6) == ["job-exec.start 1"]
