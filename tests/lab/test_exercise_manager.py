"""A job manager is driven by our scheduler and our execution service, and judged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from flux_trio.cli import main
from flux_trio.editions import CLASSIC, CURRENT, Edition
from flux_trio.judge import Judgement, Violation
from flux_trio.lab.exercise import MANAGER_ACTS, MANAGER_KIT, Act, Findings
from flux_trio.lab.exercise.findings import Ended
from flux_trio.trace import Kind, Record
from tests.lab.planted import Row, rows
from tests.lab.test_exercise import PATIENCE, SCRIPTS
from tests.lab.test_exercise_mistakes import changed, exercised, played_right
from tests.support.refusals import take_refused

EDITIONS: Final = (CLASSIC, CURRENT)
ROWS: Final = rows("manager.py")
DEADLINE_S: Final = 5.0
IN_CURRENT: Final = {
    "t_submit is rounded": "27.criteria.6",
    "an update is not logged": "invariant.done-as-answered",
    "answers after the final release are taken": "21.states.5",
}
"""By mistake: what is named in the edition current, if it is another clause."""
OF_INGEST: Final = ("a job of an unknown queue is taken",)
"""Mistakes that job ingest keeps from being seen in the edition current."""


def _fits(row: Row, edition: Edition) -> bool:
    is_there = program(edition).read_text(encoding="utf-8").count(row.right) == 1
    return is_there and (edition is CLASSIC or row.name not in OF_INGEST)


ASKED = (
    *("27.alloc.1", "27.alloc.3", "27.criteria.3", "27.criteria.4", "27.criteria.5", "27.deny.5"),
    *("27.exceptions.2", "27.free.1", "27.hello.4", "27.impl.8", "27.prioritize.1"),
    *("27.success.6", "32.start.1", "32.start.9", "32.start.30", "33.admin.6", "33.admin.7"),
    *("27.ready.7", "27.ready.8", "27.success.7", "27.cancel.7", "27.impl.12", "27.expiration.1"),
    *("32.hello.6", "32.start.23", "32.start.24", "32.impl.6", "33.defaults.7"),
)


def program(edition: Edition) -> Path:
    """The job manager of the page, of an edition."""
    return SCRIPTS / "manager.py" if edition is CLASSIC else SCRIPTS / "current" / "manager.py"


PLANTED: Final = [
    *((row, each) for each in EDITIONS for row in ROWS if _fits(row, each)),
    *((row, CURRENT) for row in rows("current/manager.py")),
]


@cache
def found_of(edition: Edition) -> Findings:
    """What an exercise finds of the job manager of the page."""
    if edition is CLASSIC:
        return played_right("manager")[0]
    return exercised(MANAGER_KIT, changed(program(edition), "", ""), MANAGER_ACTS, edition=edition)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("edition", EDITIONS, ids=lambda edition: edition.name)
def test_job_manager_of_the_page_keeps_every_clause(edition: Edition) -> None:
    found = found_of(edition)
    assert found.is_clean, found.text()
    assert [each.act for each in found.ended] == [act for act in MANAGER_ACTS if act.where(edition)]
    verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
    assert {clause: verdicts[clause] for clause in ASKED} == dict.fromkeys(ASKED, "kept")


def test_clauses_that_only_one_edition_has_are_asked_in_it() -> None:
    verdicts = {clause.id: found_of(CLASSIC).verdict(clause) for clause in MANAGER_KIT.clauses()}
    alone = ("27.impl.13", "32.hello.8", "33.validation.1")
    assert {clause: verdicts[clause] for clause in alone} == dict.fromkeys(alone, "kept")


def named(row: Row, acts: Sequence[Act], edition: Edition = CLASSIC) -> set[str]:
    """The clauses that are named when acts are played by a job manager with a mistake."""
    module = changed(program(edition), row.right, row.wrong)
    found = exercised(MANAGER_KIT, module, acts, deadline_s=DEADLINE_S, edition=edition)
    take_refused()  # the judge's tables refuse what a wrong job manager does
    return {each.clause for each in found.judgement.violations}


@pytest.mark.in_part(30)
@pytest.mark.parametrize(
    ("row", "edition"),
    [pytest.param(row, each, id=f"{row.name}-{each.name}") for row, each in PLANTED],
)
def test_mistake_is_named(row: Row, edition: Edition) -> None:
    about = [act for act in MANAGER_ACTS if row.clause in act.clauses]
    clause = IN_CURRENT.get(row.name, row.clause) if edition is CURRENT else row.clause
    assert clause in named(row, about or MANAGER_ACTS, edition)


def test_most_mistakes_are_planted_in_both_editions() -> None:
    assert sum(edition is CURRENT for _, edition in PLANTED) > 0.8 * len(ROWS)


RAISES = """\
        self.post(job, "exception", type=payload["type"], severity=payload["severity"], **about)
"""


def test_cancel_that_is_answered_and_not_done_breaks_no_clause_of_the_act() -> None:
    """It is named in each act, and nobody else is said to owe an answer."""
    titles = (
        "jobs of several users",
        "running jobs are canceled",
        "a queue is stopped and started",
    )
    acts = [act for act in MANAGER_ACTS if act.title in titles]
    module = changed(program(CLASSIC), RAISES, "")
    found = exercised(MANAGER_KIT, module, acts, deadline_s=DEADLINE_S)
    broken = [{each.clause for each in ended.broken} for ended in found.ended]
    assert broken == [{"invariant.done-as-answered"}] * len(titles)
    assert "the program has not answered" not in found.text()


def test_what_is_shown_of_a_clause_names_the_act_that_it_is_from() -> None:
    """It follows from something else in an earlier act."""
    earlier, later = MANAGER_ACTS[:2]

    def broken(clause: str, n: int, cause: Violation | None = None) -> Violation:
        record = Record(n, 0.0, Kind.MODULE, "job-manager")
        return Violation(clause, "", "the program", f"found at {n}", record, (), cause=cause)

    first = broken("27.exceptions.2", 1)
    violations = (first, broken("27.criteria.7", 1, first), broken("27.criteria.7", 2))
    ended = [Ended(earlier, "a", violations[:2], ()), Ended(later, "b", violations[2:], ())]
    text = Findings(ended, (), Judgement("an exercise", 2, {}, violations, {}), {}).text()
    block = text[text.index("27.criteria.7 broken by the program") :]
    assert "found at 2" in block
    lines = [f"in the act: {later.title}", "waited for: b", f"also in: {earlier.title}"]
    assert [line.strip() for line in block.splitlines()][-3:] == lines


@pytest.mark.real
@pytest.mark.gate
def test_job_manager_of_the_page_keeps_every_clause_as_a_process() -> None:
    words = ["exercise", "manager", *PATIENCE, "--", sys.executable, str(program(CLASSIC))]
    done = CliRunner().invoke(main, words, prog_name="flux-trio")
    assert done.exit_code == 0, done.output
    assert "stuck" not in done.output
