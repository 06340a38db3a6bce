"""What the scheduler says of its resources: feasibility.check, sched.resource-status."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from flux_trio.cores.sched.status import EARLY_MAX
from flux_trio.editions import CLASSIC, CURRENT
from flux_trio.formats import Idset
from flux_trio.messages import Errno, Request, topics
from tests.support.asking import asked, asked_by_guest
from tests.support.sched_script import SchedScript, alloc, jobspec, only
from tests.support.scheduling import machine

ALL = machine(2, 2)
NOTHING = {
    "version": 1,
    "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]},
}


def check(spec: Any, tag: int = 9) -> Request:
    """feasibility.check, with the keys that flux-core's job-ingest sends."""
    more = {"userid": 5, "rolemask": 2, "urgency": 16, "flags": 0}
    return asked(topics.FEASIBILITY_CHECK, {"jobspec": spec, **more}, tag=tag)


@pytest.fixture
def script() -> SchedScript:
    """Knows two nodes of two cores."""
    script = SchedScript(edition=CURRENT)
    script.acquired(resources=ALL.to_json(), up="0-1")
    return script


def test_what_fits_when_idle_is_feasible(script: SchedScript) -> None:
    """27.feasibility.2"""
    script.acquired(down="0-1")
    answer = only(script.turn(check(jobspec(4))))
    assert (answer.errnum, answer.payload) == (0, None)


@pytest.mark.parametrize(
    ("spec", "errnum", "text"),
    [
        (jobspec(5), Errno.EOVERFLOW, "unsatisfiable request: 5 slots with 1 core each; there are"),
        (jobspec() | {"resources": []}, Errno.EINVAL, "invalid jobspec: jobspec.resources: "),
        ("x", Errno.EPROTO, "feasibility.check: payload: Expected `object`, got `str`"),
    ],
)
def test_what_can_never_run_is_said_with_the_reason(
    script: SchedScript, spec: Any, errnum: int, text: str
) -> None:
    """27.feasibility.3"""
    answer = only(script.turn(check(spec)))
    assert (answer.errnum, answer.error_text.startswith(text)) == (errnum, True), answer.error_text


def whole_nodes_with_gpus() -> dict[str, Any]:
    """What takes most words."""
    spec = jobspec(1, nnodes=9999, constraints={"hostlist": ["node7"]})
    (node,) = spec["resources"]
    (slot,) = node["with"]
    node["exclusive"] = True
    slot["with"].append({"type": "gpu", "count": 1})
    return spec


@pytest.mark.parametrize(
    "spec",
    [
        jobspec(99),
        jobspec(64, nnodes=9999),
        jobspec(constraints={"hostlist": ["node7"]}),
        jobspec(64, nnodes=9999, constraints={"hostlist": ["node7"]}),
        whole_nodes_with_gpus(),
    ],
)
def test_the_reason_is_short(script: SchedScript, spec: Any) -> None:
    """6.response.4"""
    script.acquired()
    answer = only(script.turn(check(spec)))
    assert answer.error_text.startswith("unsatisfiable request: ")
    assert len(answer.error_text) <= 80, answer.error_text


def test_check_waits_for_the_first_resources() -> None:
    script = SchedScript(edition=CURRENT)
    assert script.turn(check(jobspec(4), 1), check(jobspec(5), 2)) == []
    fits, fits_not, _hello = script.acquired(resources=ALL.to_json(), up="")
    assert (fits.matchtag, fits.errnum) == (1, 0)
    assert (fits_not.matchtag, fits_not.errnum) == (2, Errno.EOVERFLOW)


def test_check_that_waits_goes_with_who_asked() -> None:
    """6.disconnect.2"""
    script = SchedScript(edition=CURRENT)
    theirs = replace(check(jobspec(4), 1), routes=("another",))
    gone = replace(asked(topics.disconnect_of(topics.FEASIBILITY)), routes=("another",))
    assert script.turn(check(jobspec(4), 2), theirs, gone) == []
    fits, _hello = script.acquired(resources=ALL.to_json(), up="")
    assert fits.matchtag == 2


def test_too_many_checks_that_wait_are_asked_to_come_again() -> None:
    script = SchedScript(edition=CURRENT)
    assert script.turn(*[check(jobspec(), tag) for tag in range(1, EARLY_MAX + 1)]) == []
    assert only(script.turn(check(jobspec()))).errnum == Errno.EAGAIN


def test_classic_edition_has_no_such_service() -> None:
    script = SchedScript(edition=CLASSIC)
    script.attach(ALL)
    assert only(script.turn(check(jobspec()))).errnum == Errno.ENOSYS


def status(script: SchedScript) -> Any:
    answer = only(script.turn(asked_by_guest(topics.SCHED_RESOURCES)))
    assert answer.errnum == 0
    return answer.payload


def test_what_is_down_and_allocated_is_told_as_r() -> None:
    script = SchedScript()
    assert status(script) == dict.fromkeys(("all", "down", "allocated"), NOTHING)
    script.attach(ALL)
    script.turn(alloc(1, jobspec(3)))
    script.acquired(type="offline", targets="1")
    told = status(script)
    assert told["all"] == ALL.to_json()
    assert told["down"] == ALL.restrict(Idset.parse("1")).to_json()
    children = [
        (each["rank"], each["children"]) for each in told["allocated"]["execution"]["R_lite"]
    ]
    assert children == [("0", {"core": "0-1"}), ("1", {"core": "0"})]
