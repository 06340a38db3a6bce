"""Seven principles, shown by a table act x principle that is made from a run of right programs.

principles.txt has the tables; it is rewritten by `pytest --update-snapshots`, and shown in
docs/how-we-know/principles-exercised.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.lab.exercise import MANAGER_ACTS, OF_MANAGER, OF_SCHEDULER
from tests.lab.principles import Principle, Principles, Shown, in_all, read, table
from tests.lab.test_exercise_mistakes import ABLE, played_right

TABLES = Path(__file__).with_name("principles.txt")
RUNS = 3  # of which the table has what all have shown


def shown_of(name: str) -> Principles:
    """What a right program is shown: of `sched`, `abilities`, `exec` or `manager`."""
    return played_right(name)[1]


def of_all(name: str, principle: Principle) -> set[str]:
    """The words for what all acts have shown of a principle."""
    shown = shown_of(name).shown.values()
    return {word for act in shown for word in act.get(principle, ())}


def all_shown() -> list[Shown]:
    """What the acts of a scheduler, an execution service and a job manager have shown."""
    of_sched = shown_of("sched").shown | shown_of("abilities").shown
    return [of_sched, shown_of("exec").shown, shown_of("manager").shown]


@pytest.mark.gate
def test_table_of_acts_and_principles(request: pytest.FixtureRequest) -> None:
    """Each act shows what the table says; in another order of tasks it may show more."""
    if request.config.getoption("--update-snapshots", default=False):
        runs = []
        for _ in range(RUNS):
            played_right.cache_clear()
            runs.append(all_shown())
        always = [in_all(each) for each in zip(*runs, strict=True)]
        TABLES.write_text("\n\n".join(map(table, always)) + "\n", encoding="utf-8")
    text = TABLES.read_text(encoding="utf-8")
    for shown, told in zip(all_shown(), text.split("\n\n"), strict=True):
        assert table(in_all([shown, read(told)])) == told.strip()


HARMFUL = {
    "sched": (
        "a waiting job is canceled",
        "priorities of waiting jobs change",
        "jobs that can never run",
        "nodes are taken away and given back",
        "all nodes are drained",
        "a running job gets a new expiration",
    ),
    "exec": (
        "jobs that fail",
        "a command that cannot be started",
        "three of five jobs are canceled",
        "exceptions come that are not fatal",
        "a job exceeds its time limit",
        "a job that is canceled does not heed SIGTERM",
    ),
    "manager": (
        "jobs that can never run",
        "waiting jobs are canceled",
        "running jobs are canceled",
        "exceptions come that are not fatal",
        "a waiting job is held and released",
        "the time limit of a waiting job changes",
        "jobs that run get other time limits",
        "the execution service raises exceptions",
    ),
}


@pytest.mark.parametrize(("name", "title"), [(k, t) for k in HARMFUL for t in HARMFUL[k]])
def test_what_is_done_to_one_job_has_bystanders(name: str, title: str) -> None:
    assert shown_of(name).shown[title][Principle.BYSTANDERS]


@pytest.mark.parametrize(
    ("name", "principle", "expected"),
    [
        ("sched", Principle.LIMITS, {"what there is"}),
        ("exec", Principle.LIMITS, {"time limit"}),
        (
            "manager",
            Principle.LIMITS,
            {"what there is", "raise", "urgency", "update", "sched-ready", "exec-hello"},
        ),
        ("sched", Principle.LISTS, {"jobs of prioritize", "jobs of hello", "R_lite of acquire"}),
        ("exec", Principle.LISTS, {"arguments"}),
        ("manager", Principle.LISTS, {"jobs of submit", "jobs of hello", "ranks of start"}),
        ("sched", Principle.NUMBERS, {"priority 1", "priority 4294967295", "128 KiB"}),
        ("exec", Principle.NUMBERS, {"98 KiB"}),
        (
            "manager",
            Principle.NUMBERS,
            {"priority 1", "priority 4294967295", "128 KiB", "status 65280"},
        ),
        (
            "sched",
            Principle.REFUSED,
            {"job-manager.sched-hello", "job-manager.sched-ready", "resource.acquire"}
            | {"resource.release", "kvs.commit", "kvs.lookup", "job-manager.raise"},
        ),
        ("exec", Principle.REFUSED, {"job-manager.exec-hello", "kvs.lookup"}),
        (
            "manager",
            Principle.REFUSED,
            {"sched.alloc", "sched.free", "sched.expiration", "other-exec.start"}
            | {"kvs.commit", "kvs.lookup"},
        ),
        ("sched", Principle.WAITED, {"a limit of 60 s"}),
        ("exec", Principle.WAITED, {"a limit of 1 s"}),
        ("manager", Principle.WAITED, {"a limit of 600 s", "a limit of 1200 s"}),
        (
            "sched",
            Principle.RESTARTS,
            {"running", "waiting", "canceled", "releasing"}
            | {"on a node that is down", "on a node that is taken away"},
        ),
        ("exec", Principle.RESTARTS, {"running", "canceled", "releasing"}),
        ("manager", Principle.RESTARTS, {"running", "waiting", "canceled", "releasing"}),
    ],
)
def test_principle_is_shown(name: str, principle: Principle, expected: set[str]) -> None:
    assert expected <= of_all(name, principle), of_all(name, principle)


def test_every_act_that_needs_an_ability_says_which() -> None:
    assert {need for act in ABLE for need in act.needs} == OF_SCHEDULER
    assert {need for act in MANAGER_ACTS for need in act.needs} == OF_MANAGER
