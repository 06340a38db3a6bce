"""A monitor that is put down and taken up at any record judges as one that was not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from flux_trio.judge.engine.clock import Clock
from flux_trio.judge.engine.monitor import PROMPT_S, Monitor
from flux_trio.judge.engine.rule import Broken, Rule, Rules
from flux_trio.judge.engine.selector import sent
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import draw_plan
from flux_trio.lab.stories.running import play
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind, Record, read_trace
from tests.explore.search.places import snapshot
from tests.judge.test_debts import silent
from tests.support.judged import CLAUSES, Trace, hand_made, insert, made, made_note
from tests.support.recorded import RULES, recording
from tests.support.scenarios import trace_of


def results(monitor: Monitor) -> tuple[object, ...]:
    """All that a monitor says at the end of a trace."""
    debts = monitor.debts()
    monitor.finish()
    return monitor.violations, monitor.unexplained, monitor.verdicts(), debts


def follow(trace: Iterable[Record], rules=ALL_RULES, **how: bool) -> Monitor:
    """Judge a trace with another monitor after each record; it is where the first one would be."""
    one = other = Monitor(rules, CLAUSES, **how)
    for record in trace:
        other.observe(record)
        standing = other.put_down()
        other = Monitor(rules, CLAUSES, **how)
        other.take_up(standing)
        assert other.put_down() == standing
        if record.n % 17 == 0:
            one = Monitor(rules, CLAUSES, **how)
            one.take_up(standing)
            assert snapshot(one) == snapshot(other)
    return other


def same(trace: Trace, rules=ALL_RULES, **how: bool) -> Monitor:
    """A monitor that was not put down, whose results are those of many."""
    one = Monitor(rules, CLAUSES, **how)
    for record in trace:
        one.observe(record)
    assert results(one) == results(follow(trace, rules, **how))
    return one


def stuck(number: str) -> Trace:
    """A recording of flux-core in which nobody frees resources."""
    found = recording(number)
    found["messages"] = [each for each in found["messages"] if each["topic"] != "sched.free"]
    lines = [msgspec.json.encode(found).decode()]
    return list(read_trace(lines).records)


@pytest.mark.parametrize("number", ["06", "14"])
def test_a_recording(number: str) -> None:
    assert same(stuck(number), RULES, is_routed=True).violations


@pytest.mark.parametrize("seed", [3, 5])
def test_a_world(seed: int) -> None:
    """One in which services fall apart, and one in which the clock is set too."""
    trace: Trace = []
    play(draw_plan(seed, njobs=2), [trace.append])
    same(trace[: len(trace) * 2 // 3], is_simulated=True)


def overdue() -> Trace:
    """A scheduler has not answered a free for ten seconds when the instance ends, and leaves."""
    trace = silent(trace_of("everyday"), topics.SCHED_FREE)
    trace = insert(trace, trace[-1], made_note(Kind.INSTANCE.value, "broker", what="ending"))
    gone = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE)
    return insert(trace, trace[-1], *made("sched", topics.JOB_MANAGER, gone))


def after(trace: Trace, rules: Iterable[Rule], nlast: int, **without: object) -> set[str]:
    """The clauses broken in a trace, of which another monitor judges the last records."""
    first, second = (Monitor(rules, CLAUSES, is_simulated=True) for _ in range(2))
    for record in trace[:-nlast]:
        first.observe(record)
    second.take_up(first.put_down()._replace(**without))
    for record in trace[-nlast:]:
        second.observe(record)
    return {each.clause for each in second.finish()} | {each.clause for each in second.violations}


def test_what_was_overdue_is_kept() -> None:
    """27.free.6: the scheduler has left, and with it what it owed."""
    same(overdue())
    assert "27.free.6" in after(overdue(), ALL_RULES, 1)
    assert "27.free.6" not in after(overdue(), ALL_RULES, 1, left=())


def test_the_clock_is_kept() -> None:
    """Two seconds ago y received record 2."""
    rules = Rules()

    @rules.judge("invariant.x", sent("response", "a.b"))
    def look(_record, seen):
        return Broken("known") if seen.knew("y", 2) else None

    request, answer = made("x", "y", Request("a.b")), made("y", "x", Response("a.b"))
    trace = hand_made(request, made("x", "z", Request("a.b")), answer)
    just_now = [msgspec.structs.replace(each, t=trace[-1].t - 0.1) for each in trace[2:4]]
    trace = [*trace[:2], *just_now, *trace[4:]]
    assert after(trace, rules.all, 2) == {"invariant.x"}
    assert after(trace, rules.all, 2, clock=Clock(PROMPT_S).state()) == set()
