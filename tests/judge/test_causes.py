"""One broken thing is one cause; what follows from it is a consequence."""

from __future__ import annotations

import pytest

from flux_trio.judge.engine.monitor import Monitor
from flux_trio.judge.engine.rule import Broken, Rules
from flux_trio.judge.engine.selector import logged, sent
from flux_trio.messages import Request
from tests.support.judged import hand_made, judge, made, made_event


def breaking(*broken: tuple[str, str, Broken]) -> Rules:
    """Rules that break their clause at each event of a name: (clause, event, violation)."""
    rules = Rules()
    for clause, event, violation in broken:
        rules.judge(clause, logged(event))(lambda _record, _facts, said=violation: said)
    return rules


def links(monitor: Monitor) -> list[tuple[str, str | None]]:
    return [(v.clause, None if v.cause is None else v.cause.clause) for v in monitor.violations]


START = made_event(1, "start")
OTHER = made_event(2, "start")
CLEAN = made_event(1, "clean")


def test_of_violations_in_one_record_the_cause_is_about_the_event_and_not_an_invariant() -> None:
    rules = breaking(
        ("invariant.x", "start", Broken("order")),
        ("27.criteria.2", "start", Broken("goal")),
        ("32.start.17", "start", Broken("event")),
    )
    assert links(judge(hand_made(START), rules.all)) == [
        ("32.start.17", None),
        ("27.criteria.2", "32.start.17"),
        ("invariant.x", "32.start.17"),
    ]


def test_what_is_missing_comes_before_what_seems_wrong_without_it_and_causes_all_that_follows():
    rules = breaking(
        ("32.start.17", "start", Broken("order")),
        ("invariant.x", "start", Broken("no alloc", is_missing=True)),
        ("21.states.6", "clean", Broken("held")),
    )
    assert links(judge(hand_made(START, CLEAN), rules.all)) == [
        ("invariant.x", None),
        ("32.start.17", "invariant.x"),
        ("21.states.6", "invariant.x"),
    ]


@pytest.mark.parametrize(("because", "cause"), [((1,), "32.start.17"), ((), None)])
def test_a_later_violation_follows_if_it_points_to_the_same_record(because, cause):
    rules = breaking(
        ("32.start.17", "start", Broken("order")), ("21.states.6", "clean", Broken("held", because))
    )
    assert links(judge(hand_made(START, CLEAN), rules.all))[1] == ("21.states.6", cause)


def test_jobs_do_not_cause_each_other_and_a_clause_that_is_broken_again_is_broken_twice():
    rules = breaking(("32.start.17", "start", Broken("order", (1,))))
    trace = hand_made(START, OTHER, START)
    assert links(judge(trace, rules.all)) == [("32.start.17", None)] * 3


def test_debts_of_one_job_are_of_one_thing_and_what_may_wait_is_no_violation():
    rules = Rules()
    due = [Broken("a", (1,), job=1), Broken("b", (2,), job=1), Broken("c", (1,), job=2)]
    waiting = [Broken("d", (1,), job=3, may_wait=True)]
    asked = sent("request", "a.b")
    rules.judge("invariant.x", asked, debts=lambda _seen: due[:1])(lambda _r, _s: None)
    rules.judge("27.alloc.12", asked, debts=lambda _seen: [*due[1:], *waiting])(lambda _r, _s: None)
    monitor = judge(hand_made(made("x", "y", Request("a.b"))), rules.all)
    assert links(monitor) == [
        ("27.alloc.12", None),
        ("invariant.x", "27.alloc.12"),
        ("27.alloc.12", None),
    ]
    assert len(monitor.debts()) == 4
