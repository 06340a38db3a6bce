"""RFC 27: what the job manager takes from a scheduler: annotations, and limits."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.messages import Response, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.manager_script import ManagerScript

JOBID = 1552593348  # of the RFC's examples
ESTIMATE = {"t_estimate": 593016000.0, "reason_pending": "requested GPUs are unavailable"}


@pytest.fixture
def m() -> ManagerScript:
    """A job manager with both peers, and the job of the examples pending; its journal is read."""
    m = ManagerScript(peers=True)
    m.put(asked(topics.JOB_JOURNAL, {"allow": {"annotations": 1}}, by="list", streaming=True))
    m.submit(JOBID)
    return m


def answered(m: ManagerScript, **payload: Any) -> list[str]:
    return m.put(Response(topics.SCHED_ALLOC, {"id": JOBID, **payload}))


def annotations(m: ManagerScript) -> Any:
    """What the journal told last."""
    told = [event for _, _, event in m.last(topics.JOB_JOURNAL).payload["events"]]
    assert [event["name"] for event in told] == ["annotations"]
    return told[0]["context"]["annotations"]


@pytest.mark.parametrize(
    "given",
    [
        {"sched": {"resource_summary": "rank0/core0"}},
        {"sched": {"queue": "batch"}},
        {"user": {"note": "mine", "n": [1, True]}},
        {"sched": {"mood": {"good": True}}, "site": [1.5, "x"]},
        {"sched": ESTIMATE},
    ],
    ids=[
        "27.annotate.13",
        "27.annotate.14",
        "27.annotate.15",
        "27.annotate.16-17",
        "27.annotate.18",
    ],
)
def test_annotations_are_kept_as_they_come_named_in_the_rfc_or_not(
    m: ManagerScript, given: Any
) -> None:
    answered(m, type=1, annotations=given)
    assert annotations(m) == given
    answered(m, type=0)
    assert m.context(JOBID, "alloc") == {"annotations": given}


def test_annotate_needs_annotations(m: ManagerScript) -> None:
    """27.annotate.2: it suspends scheduling, as other wrong answers do."""
    answered(m, type=1)
    assert m.stats()["sched"]["link"] == "detached"


def test_annotations_in_success_may_be_absent_but_no_text(m: ManagerScript) -> None:
    """27.success.2"""
    m.submit(2)
    assert answered(m, type=0) == [f"job-exec.start {JOBID}"]
    m.put(Response(topics.SCHED_ALLOC, {"id": 2, "type": 0, "annotations": "none"}))
    assert m.state(2) == JobState.SCHED
    assert m.stats()["sched"]["link"] == "detached"


@pytest.mark.parametrize("limit", [0, -1, 2147483648, "42", 1.5, True, [1]])
def test_a_limit_is_an_integer_from_1_to_2147483647(limit: Any) -> None:
    """27.ready.10: anything else is refused, and nothing is sent."""
    m = ManagerScript()
    m.hello()
    m.submit(1)
    for value, reply in ((limit, "EPROTO"), (2147483647, "{'count': 1}")):
        ready = {"mode": "limited", "limit": value}
        (first, *rest) = m.ask(topics.SCHED_READY, ready, by="sched")
        assert first.startswith(f"{topics.SCHED_READY} -> {reply}")
        assert rest == ([] if reply == "EPROTO" else ["sched.alloc 1"])
