"""A scheduler made of two modules: one acquires resources, the other one says hello and grants."""

from __future__ import annotations

import re
from typing import Final

import pytest

from flux_trio.judge import Judgement, Verdict
from flux_trio.judge.known import sort_known
from flux_trio.trace import read_trace
from tests.support import recorded

NAME: Final = "live.fluxion.trace"
OF_BOTH: Final = (
    *("27.background.1", "27.background.2", "27.hello.1", "27.hello.4", "27.hello.14"),
    *("27.ready.2", "20.overview.3", "28.offline.3", "28.offline.5"),
    *("28.disconnect.5", "invariant.freed-once"),
)
"""Clauses that need to know what the one has acquired, and that the other one was there since."""


def judged(old: str = "", new: str = "") -> Judgement:
    """The judgement of the trace, in which every `old` is replaced."""
    text = recorded.module_trace(NAME)
    assert old in text
    text = text.replace(old, new) if old else text
    return recorded.judged_source(read_trace(text.splitlines(keepends=True)))


def test_a_scheduler_of_two_modules_is_judged_and_breaks_nothing() -> None:
    judgement = judged()
    kept = {clause for clause in OF_BOTH if judgement.verdicts[clause] is Verdict.KEPT}
    assert kept == set(OF_BOTH)
    assert judgement.unexplained == ()
    known = sort_known(judgement, recorded.FLUXION)
    assert known.violations == ()
    assert [len(each.violations) for each in known.known] == [3, 2, 2, 0]


def test_a_job_that_only_waits_for_drained_nodes_is_not_to_be_denied() -> None:
    """Two jobs, of 3 and of 4 nodes: the user's job is killed, though the nodes come back."""
    denied = [each for each in judged().violations if each.clause == "28.criteria.3"]
    assert [each.text.partition("targets ")[2] for each in denied] == [
        "1-2 are back",
        "0,2-3 are back",
    ]


def test_a_job_that_all_nodes_together_cannot_serve_is_rightly_denied() -> None:
    old = '"type": "node",\n        "count": 4,'  # as it stands in sched.alloc
    denied = [
        each
        for each in judged(old, old.replace("4", "5")).violations
        if each.clause == "28.criteria.3"
    ]
    assert [each.text.partition("targets ")[2] for each in denied] == ["1-2 are back"]


def test_what_one_module_was_told_binds_the_other() -> None:
    """Rank 1 is drained when this job gets its nodes."""
    judgement = sort_known(judged('"rank": "0,3"', '"rank": "0-1"'), recorded.FLUXION)
    found = {(each.clause, each.party) for each in judgement.violations}
    assert found == {("28.offline.3", "sched-fluxion-qmanager")}


def new_in(text: str) -> set[str]:
    """The clauses that are broken otherwise than is known of fluxion."""
    judgement = recorded.judged_source(read_trace(text.splitlines(keepends=True)))
    return {each.clause for each in sort_known(judgement, recorded.FLUXION).violations}


def answers(text: str, errnum: str, words: str) -> str:
    """The trace in which the first answer to sched.alloc is an error."""
    printed = re.compile(r"(sched\.alloc \[\d+\]) success\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
    return printed.sub(rf"\1 {errnum}\n{words}\n", text, count=2)  # as it is sent and received


@pytest.mark.parametrize("value", ['"2"', "2.5"])
def test_a_wrong_nslots_is_not_the_missing_one_that_is_known(value: str) -> None:
    text = recorded.module_trace(NAME)
    assert "20.nslots.1" not in new_in(text)
    of_success = re.compile(r'("id": 49358569472,\n  "type": 0,.*?)("R_lite": \[)', re.DOTALL)
    changed, count = of_success.subn(rf'\1"nslots": {value}, \2', text)
    assert count == 2  # as it is sent and received
    assert "20.nslots.1" in new_in(changed)


@pytest.mark.parametrize(
    ("errnum", "words"), [("ENOSYS", "unloading"), ("EINVAL", "unloading"), ("ENOSYS", "no")]
)
def test_an_error_of_a_scheduler_that_stays_is_not_that_of_one_that_leaves(
    errnum: str, words: str
) -> None:
    assert "27.impl.10" in new_in(answers(recorded.module_trace(NAME), errnum, words))


def test_a_method_whose_name_ends_in_cancel_need_not_be_a_cancel() -> None:
    """RFC 6 lets a service have a cancel; this method frees a part of what a job has."""
    printed = (recorded.TRACES / "partial-cancel.trace").read_text()
    source = read_trace(printed.splitlines(keepends=True))
    assert recorded.judged_source(source).violations == ()
    other = printed.replace("partial-cancel", "acquire-cancel").replace("sched-fluxion-r", "r")
    named = recorded.judged_source(read_trace(other.splitlines(keepends=True))).violations
    assert [each.clause for each in named] == ["6.cancel.1"]
