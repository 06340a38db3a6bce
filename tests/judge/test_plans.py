"""What a plan remembers says the same as asking every rule about every record."""

from __future__ import annotations

import ast
import inspect

import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.engine import compiled, monitor, plans
from flux_trio.judge.engine.compiled import Answers, read_by
from flux_trio.judge.engine.plans import ASK, Plans
from flux_trio.judge.engine.view import View
from flux_trio.judge.rules import ALL_RULES
from tests.support.judged import CLAUSES, Trace, judge
from tests.support.planted import all_planted
from tests.support.scenarios import scenario_names, trace_of


@pytest.fixture
def asking(monkeypatch):
    """Plans that ask the rules about traits, and about subjects of a form, anew each time."""

    def plans_of(_rules):
        monkeypatch.setattr(plans, "answer", lambda _rule, _value: ASK)
        monkeypatch.setattr(compiled, "answers_of", Forgetful)
        return Plans(ALL_RULES)

    def switch(*, on: bool) -> None:
        monkeypatch.undo()
        if on:
            monkeypatch.setattr(monitor, "plans_of", plans_of)

    return switch


class Forgetful(Answers):
    """Remembers no form."""

    def get(self, _form, _default=None):
        return None


def found_in(trace: Trace) -> tuple[object, ...]:
    seen = judge(trace, ALL_RULES)
    return seen.verdicts(), [(each.clause, each.record.n, each.text) for each in seen.violations]


@pytest.mark.parametrize("name", scenario_names())
def test_rules_about_traits_say_of_each_record_what_the_plan_remembers(name, asking):
    trace = trace_of(name)
    remembered = found_in(trace)
    asking(on=True)
    assert found_in(trace) == remembered


def test_nor_is_a_planted_violation_excused_by_what_is_remembered(asking):
    for name, planted in [*all_planted().items()][::40]:
        trace = planted.change(trace_of(planted.scenario))
        asking(on=False)
        remembered = found_in(trace)
        asking(on=True)
        assert found_in(trace) == remembered, name


# --- what is compiled


class Reading(Monitor):
    """Notes a view that is read by the fold of another one, which does not declare it."""

    undeclared: set[str]
    allowed: frozenset[View] | None = None

    def __init__(self, *given):
        super().__init__(*given)
        self.states = Watched(self)


class Watched(dict):
    """The states of a `Reading`."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.states)
        self._reading = reading

    def __getitem__(self, view):
        reading = self._reading
        if reading.allowed is not None and view not in reading.allowed:
            reading.undeclared.add(view.name)
        return super().__getitem__(view)


def test_views_read_only_the_views_that_they_declare(monkeypatch):
    """The order in which views are folded follows from that."""
    own_plans = Plans(ALL_RULES)
    allowed: dict[object, frozenset[View]] = {}
    for view in own_plans.views:
        for function in (view.fold, view.parts):
            allowed[function] = allowed.get(function, frozenset()) | read_by(view) | {view}

    def watched(function):
        def call(*arguments):
            seen = arguments[-1]
            seen.allowed = allowed[function]
            try:
                result = function(*arguments)
                return list(result) if function not in folds else result
            finally:
                seen.allowed = None

        return call

    folds = {view.fold for view in own_plans.views}
    watchers = {id(function): watched(function) for function in allowed if function is not None}
    name = compiled._Code.name
    monkeypatch.setattr(
        compiled._Code, "name", lambda code, each: name(code, watchers.get(id(each), each))
    )
    monkeypatch.setattr(monitor, "plans_of", lambda _rules: own_plans)
    monkeypatch.setattr(Reading, "undeclared", set(), raising=False)
    for scenario in scenario_names():
        reading = Reading(ALL_RULES, CLAUSES)
        for record in trace_of(scenario):
            reading.observe(record)
    assert Reading.undeclared == set()


def test_the_engine_names_no_clause_topic_or_payload_key():
    """What it does with a record follows from what rules and views declare."""
    for module in (plans, compiled, monitor):
        for statement in ast.parse(inspect.getsource(module)).body:
            if isinstance(statement, ast.ImportFrom):
                continue
            names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
            assert not names & {"topics", "payload", "NORESPONSE", "STREAMING"}, ast.unparse(
                statement
            )
