"""What is unexplained, in each form of a report."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from flux_trio.judge import Judgement, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import Kind, Record, Shown, Source
from flux_trio.views import verdict_json, verdict_junit, verdict_page, verdict_text
from flux_trio.views.viewer import trace_page

CLAUSES = load_clauses()
TEXT = "kvs has crashed: <OSError>"


@pytest.fixture
def judgement() -> Judgement:
    data = {"module": "kvs", "what": "crashed", "reason": "<OSError>"}
    crash = Record(1, 5.0, Kind.MODULE.value, "broker", data=data)
    return judge_trace(Source("a test", Shown(), iter([crash])), ALL_RULES, CLAUSES)


def test_it_is_no_violation_and_no_clause(judgement: Judgement) -> None:
    assert judgement.is_kept
    assert [each for each in judgement.verdicts if each.startswith("unexplained")] == []
    assert judgement.wanted() == {1}
    assert [each for each in judgement.left_out if each.startswith("unexplained")] == []


def test_trace_without_payloads_leaves_no_clause_out_that_there_is_not() -> None:
    shown = Shown(payloads=False)
    left_out = judge_trace(Source("a test", shown, iter(())), ALL_RULES, CLAUSES).left_out
    assert left_out
    assert [each for each in left_out if each.startswith("unexplained")] == []


def test_viewer_shows_it_beside_violations(judgement: Judgement) -> None:
    page = trace_page("trace", judgement, CLAUSES, [], {})
    assert "unexplained.lost-service" in page


def test_text_has_it_before_the_counts(judgement: Judgement) -> None:
    lines = verdict_text(judgement, {}).splitlines()
    assert lines[:2] == [
        "unexplained: no clause is broken that says why",
        f"  lost service     {TEXT}",
    ]
    assert lines[2].split()[:2] == ["1", "+0.0000"]


def test_json_has_it(judgement: Judgement) -> None:
    (found,) = verdict_json(judgement, CLAUSES, {})["unexplained"]
    assert (found["clause"], found["party"], found["n"]) == ("unexplained.lost-service", "kvs", 1)


def test_junit_skips_it_in_a_suite_of_its_own(judgement: Judgement) -> None:
    root = ET.fromstring(verdict_junit(judgement, CLAUSES, {}, "trace"))
    suite = root[-1]
    assert (suite.get("name"), suite.get("failures")) == ("unexplained", "0")
    ((case,),) = suite
    assert (case.tag, case.get("message")) == ("skipped", TEXT)


def test_page_has_it_as_text(judgement: Judgement) -> None:
    page = verdict_page("trace", judgement, CLAUSES, {})
    assert "<h2>Unexplained</h2>" in page
    assert "kvs has crashed: &lt;OSError&gt;" in page
