"""An exercise names the mistakes that are planted in a program; no other process takes part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from flux_trio.lab.exercise import (
    EXEC_ACTS,
    EXEC_KIT,
    SCHED_ACTS,
    SCHED_KIT,
    Act,
    Findings,
    Kit,
    Order,
)
from tests.lab import planted_in_exec, planted_in_python
from tests.lab.planted import Row
from tests.lab.planted_in_python import STORES
from tests.support.exercised import changed, exercised
from tests.support.pretended import pretending


@dataclass(frozen=True)
class Planted:
    """A program of the page, how it is exercised, and the mistakes that are planted in it."""

    name: str
    kit: Kit
    acts: Sequence[Act]
    rows: Sequence[Row]

    def played(self, right: str, wrong: str, acts: Sequence[Act]) -> Findings:
        module = changed(SCRIPTS / self.name, right, wrong)
        return exercised(self.kit, pretending(module) if self is EXEC else module, acts)

    def about(self, clause: str) -> Sequence[Act]:
        """The acts about a clause; those that every mistake shows in, if none is."""
        return [act for act in self.acts if clause in act.clauses] or self.acts[:2]


SCRIPTS = Path(__file__).parents[2] / "docs" / "howto" / "any-language"
FIFO_ACTS = [act for act in SCHED_ACTS if Order.FIFO in act.orders]
FIFO = Planted("fifo.py", SCHED_KIT, FIFO_ACTS, planted_in_python.ROWS)
EXEC = Planted("exec.py", EXEC_KIT, EXEC_ACTS, planted_in_exec.ROWS)
ALL = [pytest.param(each, row, id=row.name) for each in (FIFO, EXEC) for row in each.rows]
ONE_OF_EACH = [
    pytest.param(each, next(rows), id=f"{each.name}-{group}")
    for each in (FIFO, EXEC)
    for group, rows in groupby(sorted(each.rows, key=lambda row: row.group), lambda row: row.group)
]


@pytest.mark.parametrize(
    ("planted", "right", "wrong"),
    [
        pytest.param(FIFO, "", "", id="prompt"),
        pytest.param(FIFO, STORES, STORES + "        await trio.sleep(1)\n", id="slow"),
        pytest.param(EXEC, "", "", id="exec"),
    ],
)
def test_right_program_keeps_every_clause_that_acts_are_about(
    planted: Planted, right: str, wrong: str
) -> None:
    found = planted.played(right, wrong, planted.acts)
    assert found.is_clean, found.text()
    verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
    about = {clause for act in planted.acts for clause in act.clauses if clause in verdicts}
    assert {clause: verdicts[clause] for clause in about} == dict.fromkeys(about, "kept")


def test_clause_whose_act_was_not_played_is_not_kept() -> None:
    found = FIFO.played("", "", FIFO.acts[:1])
    assert found.is_clean, found.text()
    offline = next(clause for clause in found.clauses if clause.id == "28.offline.3")
    assert found.verdict(offline) == "not exercised"


@pytest.mark.parametrize(("planted", "row"), ONE_OF_EACH)
def test_mistake_is_named_by_the_acts_about_it(planted: Planted, row: Row) -> None:
    found = planted.played(row.right, row.wrong, planted.about(row.clause))
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()
    assert f"{row.clause} broken by" in found.text()


@pytest.mark.gate
@pytest.mark.parametrize(("planted", "row"), ALL)
def test_mistake_is_named(planted: Planted, row: Row) -> None:
    found = planted.played(row.right, row.wrong, planted.acts)
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()


@pytest.mark.parametrize(("planted", "least"), [(FIFO, 30), (EXEC, 12)])
def test_half_of_the_mistakes_are_from_the_rfcs_alone(planted: Planted, least: int) -> None:
    assert len(planted.rows) >= least
    assert sum(row.is_blind for row in planted.rows) * 2 >= len(planted.rows)


def test_order_of_starts_is_not_looked_at_if_the_author_says_so() -> None:
    row = next(row for row in FIFO.rows if row.name == "new priorities are ignored")
    acts = [act for act in SCHED_ACTS if act.title == "priorities of waiting jobs change"]
    found = FIFO.played(row.right, row.wrong, [act for act in acts if Order.ANY in act.orders])
    assert found.is_clean, found.text()


def test_refusal_of_the_instance_is_shown_with_what_it_refuses() -> None:
    row = next(row for row in FIFO.rows if row.name == "what is given stays free")
    found = FIFO.played(row.right, row.wrong, FIFO.acts[1:2])
    text = found.text()
    assert text.index("no-double-allocation broken by") < text.index("\n  log: ")


def fifo_with(right: str, wrong: str, *titles: str) -> Findings:
    """Acts, played by fifo.py with another mistake."""
    return FIFO.played(
        right, wrong, [act for title in titles for act in FIFO.acts if act.title == title]
    )


def test_scheduler_that_answers_twice_is_named() -> None:
    once = "            self.answer(job, SUCCESS)\n"
    found = fifo_with(once, 2 * once, "one job")
    assert not found.is_clean
    assert "27.success.8 broken by " in found.text()
    assert "another response after SUCCESS" in found.text()


FREED = '                self.respond(request, {"id": payload["id"]})\n'


def test_scheduler_that_never_frees_is_named_as_the_cause() -> None:
    (what,) = fifo_with(FREED, "", "one job").stuck.values()
    assert re.fullmatch(
        r"event clean of job ƒ\w+: not within 10 s; "
        r"the program has not answered sched\.free of this job",
        what,
    )
    unfreed = '                self.free(payload["id"])\n' + FREED
    found = fifo_with(unfreed, "                pass\n", "three times as many jobs as fit")
    (what,) = found.stuck.values()
    assert "has not answered sched.free of this job" in what


def stays(of: str) -> tuple[str, str]:
    """What is to be changed so that a scheduler stays when it is refused something."""
    leaving = f'            raise Leave(f"{{{of}}}: {{error}}") from None\n'
    return leaving, "            await trio.sleep_forever()\n"


@pytest.mark.parametrize(
    ("title", "of", "topic"),
    [
        ("the program is refused the resources", "topics.RESOURCE_ACQUIRE", "resource.acquire"),
        ("the release of a node is refused", "topic", "resource.release"),
    ],
)
def test_scheduler_that_stays_when_it_is_refused_something_is_named(
    title: str, of: str, topic: str
) -> None:
    found = fifo_with(*stays(of), title)
    assert found.stuck == {title: f"{topic} was refused, and the program runs on for 10 s"}
    assert not found.is_clean


def test_service_is_back_after_a_client_has_stood_in_for_it() -> None:
    title = "the program's ready is refused"
    assert list(fifo_with(*stays("topic"), title, "one job").stuck) == [title]
