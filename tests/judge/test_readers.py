"""Which rules and views read a record follows from what they declare."""

from __future__ import annotations

import ast
import inspect

from flux_trio.judge import Monitor
from flux_trio.judge.engine import monitor, readers
from flux_trio.judge.engine.readers import AllReaders, Folded, views_read_by
from flux_trio.judge.engine.view import View
from flux_trio.judge.rules import ALL_RULES
from tests.support.judged import CLAUSES
from tests.support.scenarios import scenario_names, trace_of


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
    own_readers = AllReaders(ALL_RULES)
    allowed: dict[object, frozenset[View]] = {}
    for view in own_readers.views:
        for function in (view.fold, view.parts):
            allowed[function] = allowed.get(function, frozenset()) | views_read_by(view) | {view}

    def watched(function, change=lambda found: found):
        def call(*arguments):
            seen = arguments[-1]
            seen.allowed = allowed[function]
            try:
                return change(function(*arguments))
            finally:
                seen.allowed = None

        return call

    def folded(live, slot, fold, parts, key):
        return Folded(live, slot, watched(fold), parts and watched(parts, list), key)

    monkeypatch.setattr(readers, "Folded", folded)
    monkeypatch.setattr(monitor, "all_readers", lambda _rules: own_readers)
    monkeypatch.setattr(Reading, "undeclared", set(), raising=False)
    for scenario in scenario_names():
        reading = Reading(ALL_RULES, CLAUSES)
        for record in trace_of(scenario):
            reading.observe(record)
    assert Reading.undeclared == set()


def test_the_engine_names_no_clause_topic_or_payload_key():
    """What it does with a record follows from what rules and views declare."""
    for module in (readers, monitor):
        for statement in ast.parse(inspect.getsource(module)).body:
            if isinstance(statement, ast.ImportFrom):
                continue
            names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
            assert not names & {"topics", "payload", "NORESPONSE", "STREAMING"}, ast.unparse(
                statement
            )
