"""sched.free in parts (RFC 27, current edition): what is free, what stays, and wrong parts."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.turns import Log, Note
from flux_trio.editions import CURRENT
from flux_trio.formats import Idset, ResourceSet
from flux_trio.policies import POLICIES
from tests.support.sched_script import SchedScript, alloc, answer, answers, jobspec, sent, tell
from tests.support.scheduling import machine

NODES = 3


def whole(nnodes: int) -> dict[str, Any]:
    """Nodes that the job shares with nobody."""
    spec = jobspec(nnodes=nnodes)
    spec["resources"][0]["exclusive"] = True
    return spec


def free(jobid: int, ranks: str, *, final: bool = False) -> Any:
    """The job manager frees all cores of these ranks."""
    part = machine(NODES, 2).restrict(Idset.parse(ranks)).to_json()
    return tell("free", id=jobid, R=part, final=final)


def logged(actions: list[Any]) -> list[str]:
    return [each.text for each in actions if isinstance(each, Log)]


def granted(actions: list[Any]) -> dict[int, str]:
    """The ranks of each job in a SUCCESS."""
    return {
        each["id"]: str(ResourceSet.parse(each["R"]).ranks)
        for each in answers(actions)
        if each["type"] == 0
    }


@pytest.fixture(params=sorted(POLICIES))
def script(request: pytest.FixtureRequest) -> SchedScript:
    """Job 1 holds all nodes, of two cores each; job 2 waits for two of them."""
    script = SchedScript(request.param, edition=CURRENT)
    (hello,) = script.acquired(resources=machine(NODES, 2).to_json(), up="0-2")
    (ready,) = script.turn(*script.hello_answers(hello, {}))
    script.turn(answer(ready, {"count": 0}))
    assert granted(script.turn(alloc(1, whole(3)))) == {1: "0-2"}
    assert granted(script.turn(alloc(2, whole(2)))) == {}
    return script


def test_nodes_are_free_one_by_one(script: SchedScript) -> None:
    """27.free.5."""
    assert granted(script.turn(free(1, "1"))) == {}
    actions = script.turn(free(1, "0"))
    assert (granted(actions), logged(actions)) == ({2: "0-1"}, [])
    assert granted(script.turn(alloc(3, whole(1)))) == {}
    actions = script.turn(free(1, "2", final=True))
    assert (granted(actions), logged(actions)) == ({3: "2"}, [])
    assert script.core.holders == {2, 3}


def test_job_that_is_granted_a_part_may_free_it_in_parts(script: SchedScript) -> None:
    assert granted(script.turn(free(1, "1-2"), alloc(3, whole(1)))) == {2: "1-2"}
    assert granted(script.turn(free(2, "2"))) == {3: "2"}
    assert logged(script.turn(free(2, "1", final=True), free(1, "0", final=True))) == []
    assert script.core.holders == {3}


def test_rank_that_is_freed_twice_is_named_and_is_not_taken_from_another(
    script: SchedScript,
) -> None:
    assert granted(script.turn(free(1, "0-1"), alloc(3, whole(1)))) == {2: "0-1"}
    actions = script.turn(free(1, "1-2"))
    held = "expected resources that the job holds, on rank 2, got also others, on rank 1"
    assert logged(actions) == [f"sched.free of job 1: R: {held}"]
    assert granted(actions) == {3: "2"}
    assert granted(script.turn(alloc(4, whole(1)))) == {}


def test_rank_that_is_never_freed_is_named_and_is_free_after_the_final(script: SchedScript) -> None:
    actions = script.turn(free(1, "0", final=True))
    left = "expected all that the job holds yet; rank 1-2 was never freed"
    assert logged(actions) == [f"sched.free of job 1: R: {left}"]
    assert granted(actions) == {2: "0-1"}
    assert granted(script.turn(alloc(3, whole(1)))) == {3: "2"}


def test_free_after_the_final_changes_nothing(script: SchedScript) -> None:
    script.turn(free(1, "0-2", final=True))
    actions = script.turn(free(1, "0"))
    (text,) = logged(actions)
    assert text.startswith("job 1: sched.alloc: sched.free, not final in state IDLE")
    assert sent(actions) == []
    assert script.core.holders == {2}


def test_job_of_which_all_is_freed_before_the_final_holds_nothing(script: SchedScript) -> None:
    assert granted(script.turn(free(1, "0-2"))) == {2: "0-1"}
    held = "expected resources that the job holds, on no rank, got also others, on rank 0"
    assert logged(script.turn(free(1, "0", final=True))) == [f"sched.free of job 1: R: {held}"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"id": 1}, "sched.free: payload: expected one of edition current, which is"),
        ({"id": 1, "R": {"version": 2}}, "sched.free: payload: R.version: "),
        ({"id": 1, "R": machine(1, 1).to_json(), "final": "yes"}, "sched.free: payload: "),
    ],
)
def test_free_that_cannot_be_read_is_logged_and_not_answered(
    script: SchedScript, wrong: dict[str, Any], text: str
) -> None:
    """An error response to sched.free would suspend scheduling (RFC 27, Finalization)."""
    actions = script.turn(tell("free", **wrong))
    assert [each.startswith(text) for each in logged(actions)] == [True], logged(actions)
    assert sent(actions) == []


class TestHello:
    """A scheduler that comes when a part of what a job held is free already."""

    def attached(self, free: str) -> tuple[SchedScript, list[Any]]:
        script = SchedScript(edition=CURRENT)
        (hello,) = script.acquired(resources=machine(NODES, 2).to_json(), up="0-2")
        told, end = script.hello_answers(hello, {"j7": machine(NODES, 2)})
        told.payload["free"] = free
        *said, ready = script.turn(told, end)
        return script, said + script.turn(answer(ready, {"count": 0}))

    def test_ranks_that_are_free_already_are_granted(self) -> None:
        script, said = self.attached("0,2")
        (note,) = said
        rest = machine(1, 2, first=1).to_json()
        assert note == Note("state", {"service": "sched", "allocated": [[7, rest]], "pending": 0})
        assert granted(script.turn(alloc(1, whole(2)), alloc(2, whole(1)))) == {1: "0,2"}
        assert granted(script.turn(free(7, "1", final=True))) == {2: "1"}

    @pytest.mark.parametrize(("ranks", "left"), [("1-4", {1: "1-2"}), ("0-2", {1: "0-1"})])
    def test_ranks_that_are_not_all_of_some_of_r_are_named(
        self, ranks: str, left: dict[int, str]
    ) -> None:
        script, said = self.attached(ranks)
        expected = f"free: expected some of the ranks 0-2 of its R, got {ranks}"
        assert logged(said) == [f"job-manager.sched-hello: job 7: {expected}"]
        assert granted(script.turn(alloc(1, whole(2)))) == left

    def test_idset_that_cannot_be_read_ends_the_scheduler(self) -> None:
        script = SchedScript(edition=CURRENT)
        (hello,) = script.acquired(resources=machine(NODES, 2).to_json(), up="0-2")
        told, end = script.hello_answers(hello, {"j7": machine(NODES, 2)})
        told.payload["free"] = "0-"
        log, *_ = script.turn(told, end)
        assert log.text.startswith("job-manager.sched-hello: free: expected ")
