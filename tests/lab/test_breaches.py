"""A party breaks a chosen clause: each row of the table does, and nothing else goes wrong.

breaches.txt has the clauses that are broken with each; rewritten by `pytest --update-snapshots`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from flux_trio.formats import FormatError
from flux_trio.judge import load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import (
    BREACHES,
    UNBREAKABLE,
    BrokenClause,
    JobPlan,
    Outcome,
    OwnerRequest,
    Plan,
    Reload,
    When,
    run_plan,
)
from flux_trio.lab.plans.files import plan_from_toml

BROKEN = Path(__file__).with_name("breaches.txt")
TOGETHER = dict(line.split(" -> ") for line in BROKEN.read_text(encoding="utf-8").splitlines())
BINDING = ("scheduler", "exec", "resource", "R-producer")

EVERYTHING = Plan(
    seed=1,
    nnodes=2,
    cores=1,
    jobs=(
        JobPlan(run=20.0, limit=60.0, nnodes=1),
        JobPlan(at=1.0, nnodes=2),  # it waits
        JobPlan(at=2.0, nnodes=2),  # its request is canceled
        JobPlan(at=2.5, nnodes=5),  # it is denied
        JobPlan(at=30.0, nnodes=2, run=50.0, limit=4.0),  # its time is over before it ends
        JobPlan(at=65.0),
    ),
    actions=(
        OwnerRequest(3.0, "cancel", job=2),
        OwnerRequest(4.0, "duration", job=0, seconds=100.0),
        OwnerRequest(45.0, "drain", rank=1),
        OwnerRequest(50.0, "undrain", rank=1),
        OwnerRequest(55.0, "exclude", rank=1),
        OwnerRequest(60.0, "include"),
    ),
)
"""A world in which all messages of the table are sent."""

ONE_JOB = replace(EVERYTHING, jobs=(JobPlan(at=2.0),), actions=())
DRAINED = replace(ONE_JOB, actions=(OwnerRequest(1.0, "drain", rank=0),))
EXCLUDED = replace(ONE_JOB, actions=(OwnerRequest(1.0, "exclude", rank=0),))
RUNS_WHERE_EXCLUDED = replace(
    ONE_JOB, jobs=(JobPlan(nnodes=2, run=10.0),), actions=(OwnerRequest(2.0, "exclude", rank=1),)
)
TWO_CORES = replace(ONE_JOB, cores=2)
HELD_AND_RELEASED = replace(
    ONE_JOB,
    jobs=(JobPlan(run=10.0, nnodes=2), JobPlan(at=1.0)),
    actions=(
        OwnerRequest(2.0, "urgency", job=1, value=0),
        OwnerRequest(3.0, "urgency", job=1, value=16),
    ),
)
RUNS = When("job-exec.start", type="response")
RELOADED = replace(
    ONE_JOB, jobs=(JobPlan(run=20.0), JobPlan(at=5.0)), faults=(Reload("sched", RUNS),)
)

WORLDS: dict[str, tuple[Plan, int]] = {
    "14.vertex.1": (replace(ONE_JOB, jobs=(JobPlan(nnodes=2),)), 1),
    "20.nslots.3": (EVERYTHING, 2),
    "25.resources.7": (TWO_CORES, 1),
    "27.alloccancel.4": (HELD_AND_RELEASED, 1),
    "27.cancel.8": (HELD_AND_RELEASED, 2),
    "27.hello.12": (RELOADED, 2),
    "27.ready.10": (replace(EVERYTHING, limit=4), 1),
    "28.background.7": (DRAINED, 1),
    "28.criteria.1": (ONE_JOB, 1),
    "28.criteria.2": (
        replace(
            ONE_JOB,
            actions=(OwnerRequest(1.0, "drain", rank=1), OwnerRequest(1.5, "undrain", rank=1)),
        ),
        1,
    ),
    "28.criteria.3": (DRAINED, 1),
    "28.criteria.4": (DRAINED, 1),
    "28.criteria.5": (EXCLUDED, 1),
    "28.offline.3": (DRAINED, 1),
    "28.shrink.3": (EXCLUDED, 1),
    "28.shrink.4": (RUNS_WHERE_EXCLUDED, 1),
    "28.shrink.5": (RUNS_WHERE_EXCLUDED, 1),
    "28.shrink.7": (
        replace(RUNS_WHERE_EXCLUDED, jobs=(JobPlan(run=10.0), JobPlan(at=1.0, nnodes=2))),
        1,
    ),
    "32.start.10": (
        replace(RELOADED, jobs=(JobPlan(run=20.0),), faults=(Reload("job-exec", RUNS),)),
        1,
    ),
}
"""The world of a clause that needs more than a message, and the number of the message."""


def broken(clause: str) -> Outcome:
    """What becomes of a world in which a party breaks a clause."""
    plan, nth = WORLDS.get(clause, (EVERYTHING, 1))
    return run_plan(replace(plan, faults=(*plan.faults, BrokenClause(clause, nth))))


def excused(outcome: Outcome) -> list[str]:
    return sorted({each.partition(":")[0] for each in outcome.excused})


@pytest.mark.in_part(3)
@pytest.mark.parametrize("clause", BREACHES)
def test_party_breaks_the_chosen_clause_and_nothing_else_goes_wrong(clause: str) -> None:
    outcome = broken(clause)
    assert outcome.never_struck == ()
    assert outcome.problems == ()
    assert clause in excused(outcome)
    if clause in TOGETHER:
        assert TOGETHER[clause] == " ".join(excused(outcome))


def test_clauses_that_are_broken_together_are_listed(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-snapshots", default=False):
        lines = [f"{each} -> {' '.join(excused(broken(each)))}\n" for each in BREACHES]
        BROKEN.write_text("".join(lines), encoding="utf-8")
    else:
        assert list(TOGETHER) == list(BREACHES)


def test_nothing_is_broken_without_a_lie() -> None:
    for plan in {EVERYTHING, *(plan for plan, _ in WORLDS.values())}:
        outcome = run_plan(plan)
        assert (outcome.problems, outcome.excused) == ((), ())


def test_each_judged_clause_of_a_peer_has_a_row_or_a_reason() -> None:
    judged = {rule.clause for rule in ALL_RULES}
    of_peers = {
        clause.id
        for clause in load_clauses().values()
        if (clause.violator or clause.actor) in BINDING and clause.id in judged
    }
    assert sorted(of_peers - BREACHES.keys() - UNBREAKABLE.keys()) == []
    assert sorted(UNBREAKABLE.keys() - of_peers) == []
    assert sorted(UNBREAKABLE.keys() & BREACHES.keys()) == []


def test_row_is_of_a_judged_clause() -> None:
    assert BREACHES.keys() <= {rule.clause for rule in ALL_RULES} & load_clauses().keys()


def test_nth_counts_the_messages_about_which_the_clause_can_be_broken() -> None:
    """27.deny.6: the first DENY is the fifth answer or so."""
    outcome = run_plan(replace(EVERYTHING, faults=(BrokenClause("27.deny.6"),)))
    assert outcome.never_struck == ()
    outcome = run_plan(replace(EVERYTHING, faults=(BrokenClause("27.deny.6", 2),)))
    assert outcome.never_struck == (BrokenClause("27.deny.6", 2),)


@pytest.mark.parametrize(
    ("clause", "text"),
    [
        ("27.cancel.6", "such as 27.cancel.4, 27.cancel.5, 27.cancel.8"),
        ("27.cancel.6", "27.cancel.6 is not there: The scheduler says nothing to such a cancel"),
        ("27.deny.5", "such as 27.deny.1, 27.deny.2, 27.deny.6"),
        ("deny", "section Break a chosen clause of docs/reference/faults.md"),
    ],
)
def test_clause_without_a_lie_is_refused_when_the_plan_is_read(clause: str, text: str) -> None:
    toml = f'seed = 1\n[[faults]]\ntype = "broken-clause"\nclause = "{clause}"\n'
    with pytest.raises(FormatError, match=r"faults\[0\]\.clause: .*") as caught:
        plan_from_toml(toml)
    assert text in str(caught.value)


def test_plan_names_a_clause() -> None:
    toml = 'seed = 1\n[[faults]]\ntype = "broken-clause"\nclause = "27.alloc.9"\nnth = 2\n'
    assert plan_from_toml(toml).faults == (BrokenClause("27.alloc.9", 2),)
