"""Clauses that the scheduler keeps without saying so: what it leaves alone, what it bears with."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.sched.annotations import ANNOTATE_DELAY_S
from flux_trio.cores.turns import Exit, TimerFired
from flux_trio.formats import ResourceSet, job_key
from flux_trio.messages import Event, Request, topics
from tests.support.asking import asked
from tests.support.sched_script import (
    MANAGER,
    START,
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

SUCCESS, ANNOTATE, DENY, CANCEL = range(4)

# The request that RFC 27 prints.
EXAMPLE = {
    "id": 1552593348,
    "priority": 53444,
    "userid": 5588,
    "jobspec": {
        "resources": [
            {"type": "slot", "count": 1, "with": [{"type": "core", "count": 1}], "label": "task"}
        ],
        "tasks": [{"command": ["/bin//true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "cwd": "/home/user/project"}},
        "version": 1,
    },
}


def to_manager(actions: list[Any]) -> list[tuple[str, Any]]:
    """What of it goes to the job manager."""
    return [item for item in sent(actions) if not item[0].startswith("resource.")]


def expiration(jobid: int, at: float) -> Request:
    return asked("sched.expiration", {"id": jobid, "expiration": at}, by=MANAGER)


# What it says, and what not


def test_the_four_answers_have_their_codes_and_the_integer_id(script: SchedScript) -> None:
    """27.alloc.9, 27.alloc.10, 27.alloc.11, 27.impl.5: SUCCESS 0, ANNOTATE 1, DENY 2, CANCEL 3."""
    told = answers(script.turn(alloc(1, jobspec(4)), alloc(2), alloc(3, jobspec(5))))
    script.now += ANNOTATE_DELAY_S
    told += answers(script.turn(TimerFired("annotate")))
    told += answers(script.turn(tell("cancel", id=2)))
    assert {(each["id"], each["type"]) for each in told} == {
        (1, SUCCESS),
        (2, ANNOTATE),
        (2, CANCEL),
        (3, DENY),
    }
    assert all(type(each["type"]) is int and type(each["id"]) is int for each in told)


def test_nothing_is_said_of_a_job_without_an_open_request(script: SchedScript) -> None:
    """27.background.1: not when it is allocated, and not when it never asked."""
    script.turn(alloc(1, jobspec(4)))
    quiet = [
        *script.acquired(type="offline", targets="0"),
        *script.acquired(type="online", targets="0"),
        *script.turn(tell("cancel", id=1), tell("cancel", id=9)),
        *script.turn(tell("prioritize", jobs=[[1, 5], [9, 5]])),
        *script.turn(TimerFired("annotate")),
    ]
    assert to_manager(quiet) == []


def test_an_exception_is_left_to_the_job_manager(script: SchedScript) -> None:
    """27.exceptions.4: nothing is freed or canceled before the job manager says so."""
    script.turn(alloc(1, jobspec(4)))
    script.turn(alloc(2))
    for jobid in (1, 2):
        event = Event(topics.JOB_EXCEPTION_EVENT, {"id": jobid, "type": "cancel", "severity": 0})
        assert script.turn(event) == []
    assert [told["id"] for told in answers(script.turn(tell("free", id=1)))] == [2]


def test_an_allocation_past_its_end_is_left_to_the_execution_service(script: SchedScript) -> None:
    """27.expiration.13: it is held until it is freed."""
    script.turn(alloc(1, jobspec(4, duration=60.0)))
    script.now += 1000.0
    assert answers(script.turn(alloc(2))) == []
    assert [told["id"] for told in answers(script.turn(tell("free", id=1)))] == [2]


@pytest.mark.parametrize("at", [START + 30.0, START + 600.0])
def test_an_expiration_may_come_nearer_or_go_farther(script: SchedScript, at: float) -> None:
    """27.expiration.4"""
    script.turn(alloc(1, jobspec(duration=60.0)))
    response = only(script.turn(expiration(1, at)))
    assert (response.errnum, response.payload) == (0, None)


# What it is asked


def test_the_request_that_the_rfc_prints_is_granted(script: SchedScript) -> None:
    """27.alloc.6, 27.alloc.7: a duration of 0, two slashes, and no environment."""
    told = only(answers(script.turn(asked(topics.SCHED_ALLOC, EXAMPLE, by=MANAGER, tag=0))))
    assert (told["id"], told["type"]) == (1552593348, SUCCESS)


def test_the_cancel_and_the_free_that_the_rfc_prints_are_accepted(script: SchedScript) -> None:
    """27.cancel.3, 27.free.3: the answers have the id of the example."""
    jobid = EXAMPLE["id"]
    example = asked(topics.SCHED_ALLOC, EXAMPLE, by=MANAGER, tag=0)
    script.turn(alloc(1, jobspec(4)))
    script.turn(example)
    assert answers(script.turn(tell("cancel", id=jobid))) == [{"id": jobid, "type": CANCEL}]
    script.turn(tell("free", id=1), example)
    assert sent(script.turn(tell("free", id=jobid))) == [("sched.free", {"id": jobid})]


def test_free_needs_no_more_than_the_id(script: SchedScript) -> None:
    """27.free.4: R is not in the message, and need not be in the KVS any more."""
    script.turn(alloc(1, jobspec(4)))
    script.kvs.clear()
    assert answers(script.turn(tell("free", id=1), alloc(2, jobspec(4)))) == [
        success(2, "rank[0-1]/core[0-1]")
    ]


# R


def test_r_is_in_the_kvs_before_the_answer_and_stays_when_it_is_freed(script: SchedScript) -> None:
    """27.success.1, 16.schema.6, 16.schema.7: an RFC 20 object at job.<jobid>.R, for provenance."""
    script.kvs_waits = True
    assert answers(script.turn(alloc(1))) == []
    (commit,) = script.unanswered
    ((op, key, text),) = commit.payload["ops"]
    assert (op, key) == ("put", job_key(1, "R"))
    assert ResourceSet.parse(text.encode()).ncores == 1
    script.turn(*script.take_kvs_answers())
    script.kvs_waits = False
    script.turn(tell("free", id=1))
    assert script.kvs == {job_key(1, "R"): text}


def test_every_grant_is_a_subset_of_the_inventory_and_can_be_had_again(script: SchedScript) -> None:
    """14.vertex.2, 20.overview.3: cores and ranks of the R it acquired, each with one job at a
    time.
    """
    units = {f"rank{rank}/core{core}" for rank in (0, 1) for core in (0, 1)}
    for first in (1, 5):
        jobs = range(first, first + 4)
        script.turn(*(alloc(jobid) for jobid in jobs))
        assert {script.r(jobid).summary() for jobid in jobs} == units
        script.turn(*(tell("free", id=jobid) for jobid in jobs))


def test_a_count_is_met_exactly(script: SchedScript) -> None:
    """14.vertex.1, 14.submit.3: three cores asked, three granted, and one is left for another."""
    told = answers(script.turn(alloc(1, jobspec(3)), alloc(2, jobspec(2)), alloc(3, jobspec(1))))
    assert [each["id"] for each in told] == [1]
    assert script.r(1).ncores == 3
    assert answers(script.turn(tell("cancel", id=2)))[-1]["id"] == 3


def test_a_slot_is_on_one_target() -> None:
    """14.vertex.6: two nodes with one free core each have no room for a slot of two cores."""
    script = SchedScript()
    script.attach(machine(2, 2))
    spec = jobspec(1)
    spec["resources"][0]["with"][0]["count"] = 2
    script.turn(alloc(1, jobspec(1, nnodes=2)))
    assert answers(script.turn(alloc(2, spec))) == []
    (_, told) = sent(script.turn(tell("free", id=1)))
    assert told[1]["id"] == 2
    assert script.r(2).summary() in ("rank0/core[0-1]", "rank1/core[0-1]")


def test_an_inventory_without_start_is_valid_from_any_time() -> None:
    """20.starttime.4"""
    script = SchedScript()
    script.now = 1.0
    inventory = machine(1, 1, expiration=START)
    assert inventory.starttime == 0.0
    script.attach(inventory)
    assert [told["id"] for told in answers(script.turn(alloc(1)))] == [1]


# Targets


def test_of_what_is_grown_only_what_is_online_is_granted() -> None:
    """28.grow.6: ranks 1 to 6, of which 2 and 3 are online, as in the RFC's example."""
    script = SchedScript()
    script.attach(machine(1, 1))
    script.turn(alloc(1))
    resources = machine(6, 1, first=1).to_json()
    script.acquired(type="grow", resources=resources, online="2-3", offline="1,4-6")
    told = answers(script.turn(*(alloc(jobid) for jobid in range(2, 6))))
    assert told == [success(2, "rank2/core0"), success(3, "rank3/core0")]


def test_the_responses_that_the_rfc_prints_are_accepted() -> None:
    """28.shrink.2, 28.online.2, 28.offline.2: with the targets "2-3"."""
    script = SchedScript()
    script.attach(machine(4, 1))
    for kind in ("offline", "online", "shrink"):
        told = script.acquired(type=kind, targets="2-3")
        assert not [action for action in told if isinstance(action, Exit)]
        assert sent(told) == (
            [(topics.RESOURCE_RELEASE, {"group": "default", "targets": "2-3"})]
            if kind == "shrink"
            else []
        )
