"""A monitor's snapshot: what is live, whatever the numbers of the records."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec
import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.engine.rule import Rules
from flux_trio.judge.engine.selector import received, sent
from flux_trio.judge.engine.view import Place
from flux_trio.judge.rules import CLAUSE_RULES
from flux_trio.judge.views.calls import OPEN
from flux_trio.messages import Request
from flux_trio.trace import Record
from tests.explore.search.places import mover, renumbered, snapshot
from tests.support.judged import CLAUSES, Trace, hand_made, made
from tests.support.planted import all_planted
from tests.support.scenarios import scenario_names, trace_of


def numbered(trace: Trace, number: Callable[[int], int]) -> Trace:
    """The same records with other numbers; 0, which is no place, stays."""
    new = {0: 0} | {record.n: number(record.n) for record in trace}
    return [
        msgspec.structs.replace(
            record, n=new[record.n], ref=new.get(record.ref, number(record.ref))
        )
        for record in trace
    ]


def spread(n: int) -> int:
    """Numbers in the same order, with gaps of any size between them."""
    return 1000 + 7 * n + n * n


def snapshots_differ_at(trace: Trace, every: int) -> list[int]:
    one, other = Monitor(CLAUSE_RULES, CLAUSES), Monitor(CLAUSE_RULES, CLAUSES)
    found = []
    for place, first, second in zip(count(1), trace, numbered(trace, spread), strict=False):
        one.observe(first)
        other.observe(second)
        is_compared = place % every == 0 or place == len(trace)
        if is_compared and snapshot(one) != snapshot(other):
            found.append(place)
    return found


@pytest.mark.parametrize("name", scenario_names())
def test_a_snapshot_does_not_depend_on_how_records_are_numbered(name: str) -> None:
    assert snapshots_differ_at(trace_of(name), every=51) == []


def test_nor_does_it_in_a_trace_that_breaks_clauses() -> None:
    """Planted violations leave states that no clean trace has."""
    for name, planted in [*all_planted().items()][::20]:
        trace = planted.change(trace_of(planted.scenario))
        assert snapshots_differ_at(trace, every=len(trace)) == [], name


def test_records_that_leave_nothing_live_leave_no_trace_in_the_snapshot() -> None:
    rules = Rules()
    selectors = (sent("request", "*"), received("request", "*"))
    rules.judge("invariant.x", *selectors, views=[OPEN])(lambda _record, _seen: None)
    ask = Request("a.b", {}, 1, routes=("x",))
    silent = Request("a.b", {}, 0, routes=("x",))

    def after(*records: list[Record]) -> object:
        monitor = Monitor(rules.all, CLAUSES)
        for record in hand_made(*records):
            monitor.observe(record)
        return snapshot(monitor)

    asked, more = [made("x", "y", ask)[0]], [made("x", "y", silent)[0]]
    assert after(asked) == after(more, more, asked)
    assert after(asked) != after(more)


def test_what_came_first_makes_a_difference() -> None:
    pairs = [((Place, 3), (Place, 5)), ((Place, 30), (Place, 500)), ((Place, 5), (Place, 3))]
    assert [renumbered(pair) for pair in pairs] == [[1, 2], [1, 2], [2, 1]]
    assert renumbered([(Place, 0), (Place, 9)]) == [0, 1]


def test_every_type_of_state_says_where_its_places_are() -> None:
    """A bare integer is a place or it is not: only what is annotated is renumbered."""
    assert renumbered([(tuple[int, Place], (7, 7)), (Place | str, "7")]) == [(7, 1), "7"]
    assert renumbered([(tuple[tuple[str, Place], ...], (("a", 4), ("b", 2)))]) == [
        (("a", 2), ("b", 1))
    ]
    assert mover(tuple[int, str]) is None
