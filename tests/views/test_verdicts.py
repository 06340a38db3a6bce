"""A judgement as text, JSON, JUnit and a page: of rules made for the purpose."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest

from flux_trio.formats.spelling import spelled
from flux_trio.judge import Judgement, judge_trace, load_clauses, pick_records
from flux_trio.judge.engine.rule import Broken, Rules
from flux_trio.judge.engine.selector import received, sent
from flux_trio.judge.known import parse_known, sort_known
from flux_trio.messages import Event, Request, Response
from flux_trio.trace import Record, Shown, Source
from flux_trio.views import (
    draw_sequence,
    tell,
    verdict_json,
    verdict_junit,
    verdict_page,
    verdict_text,
)

CLAUSES = load_clauses()
RULES = Rules()
SHOWN_ONLY = 5


@RULES.judge("27.alloc.1", sent("request", "sched.alloc"))
def kept(record: Record, facts: Any) -> Any:
    return True


@RULES.judge("27.hello.1", sent("response", "sched.alloc"))
def broken(record: Record, facts: Any) -> Any:
    return Broken("expected <nothing> & got something", because=(1, 2))


@RULES.judge("32.start.1", received("request", "job-exec.start"), needs_headers=True)
def unseen(record: Record, facts: Any) -> Any:
    return True


@RULES.judge("invariant.test", received("request", "sched.alloc"))
def nameless(record: Record, facts: Any) -> Any:
    return True


def records(answers: int = 1) -> list[Record]:
    alloc = Request("sched.alloc", {"id": 7, "jobspec": {"x": "y" * 50}}, routes=("job-manager",))
    said = Response("sched.alloc", {"id": 7, "type": 0}, routes=("job-manager",))
    answered = [
        Record(3 + n, 12.5, "send", "sched", "job-manager", 0, said) for n in range(answers)
    ]
    return [
        Record(1, 10.0, "send", "job-manager", "sched", 0, alloc),
        Record(2, 11.0, "recv", "sched", "", 1, alloc),
        *answered,
    ]


def judged(answers: int = 1) -> tuple[Judgement, dict[int, Record]]:
    def source() -> Source:
        return Source("a test", Shown(headers=False), iter(records(answers)))

    judgement = judge_trace(source(), RULES.all, CLAUSES)
    return judgement, pick_records(source(), judgement.wanted())


def test_clauses_are_kept_broken_or_not_exercised_with_the_reason() -> None:
    judgement, found = judged()
    assert judgement.verdicts == {
        "27.hello.1": "broken",
        "27.alloc.1": "kept",
        "32.start.1": "not exercised",
        "invariant.test": "kept",
    }
    assert list(judgement.verdicts) == [
        *(i for i in CLAUSES if i in judgement.verdicts),
        "invariant.test",
    ]
    assert judgement.left_out == {
        "32.start.1": "the trace does not show matchtags, flags and userids"
    }
    assert [record.n for record in found.values()] == [1, 2, 3]


def test_clauses_that_the_current_edition_has_otherwise_are_left_out_of_it() -> None:
    newest = next(clause for clause in CLAUSES.values() if clause.newest == "changed")
    rules = Rules()
    rules.judge(newest.id, sent("request", "sched.alloc"))(lambda _r, _f: Broken("always"))

    def source() -> Source:
        return Source("a test", Shown(), iter(records()))

    assert judge_trace(source(), rules.all, CLAUSES).verdicts == {newest.id: "broken"}
    current = judge_trace(source(), rules.all, CLAUSES, classic=False)
    assert current.verdicts == {newest.id: "not exercised"}
    assert current.left_out == {newest.id: "changed in the current edition"}


def test_what_is_owed_at_the_end_counts_when_the_trace_came_to_rest() -> None:
    rules = Rules()
    rules.judge(
        "27.alloc.1", sent("request", "sched.alloc"), debts=lambda _seen: [Broken("not answered")]
    )(lambda _r, _s: None)

    def source() -> Source:
        return Source("a test", Shown(), iter(records()))

    assert judge_trace(source(), rules.all, CLAUSES).is_kept
    judgement = judge_trace(source(), rules.all, CLAUSES, at_rest=True)
    assert [each.text for each in judgement.violations] == ["not answered"]


def test_text_has_a_block_for_each_violation_and_counts_for_each_rfc() -> None:
    text = verdict_text(*judged())
    sentence = CLAUSES["27.hello.1"].text
    assert (
        text
        == f"""\
27.hello.1 broken by sched (scheduler)
  clause: {sentence}
  found:  expected <nothing> & got something
        1     +0.0000  job-manager -> sched: request sched.alloc id=ƒ8 jobspec={{...}}
        2     +1.0000  sched <- job-manager: request sched.alloc id=ƒ8 jobspec={{...}}
        3     +2.5000  sched -> job-manager: response sched.alloc id=ƒ8 type=0

RFC 27     kept   1  broken   1  not exercised   0
RFC 32     kept   0  broken   0  not exercised   1
invariants kept   1  broken   0  not exercised   0
all        kept   2  broken   1  not exercised   1  (a test, 3 records)
"""
    )


def test_text_tells_the_first_violations_of_a_clause_and_how_many_more_there_are() -> None:
    text = verdict_text(*judged(answers=SHOWN_ONLY + 2))
    assert text.count("27.hello.1 broken by") == SHOWN_ONLY
    assert "27.hello.1: broken 2 times more" in text


def test_json_has_everything() -> None:
    judgement, found = judged(answers=SHOWN_ONLY + 2)
    decoded = msgspec.json.decode(msgspec.json.encode(verdict_json(judgement, CLAUSES, found)))
    assert decoded["kept"] is False
    assert [clause["id"] for clause in decoded["clauses"]] == list(judgement.verdicts)
    assert len(decoded["violations"]) == SHOWN_ONLY + 2
    first = decoded["violations"][0]
    assert (first["clause"], first["n"], first["because"]) == ("27.hello.1", 3, [1, 2])
    assert [record["n"] for record in first["records"]] == [1, 2, 3]


def test_junit_has_a_case_for_each_clause() -> None:
    judgement, found = judged()
    root = ET.fromstring(verdict_junit(judgement, CLAUSES, found, "trace.jsonl"))
    suites = {suite.get("name"): suite for suite in root}
    assert {name: suite.get("tests") for name, suite in suites.items()} == {
        "RFC 27": "2",
        "RFC 32": "1",
        "invariants": "1",
    }
    assert suites["RFC 27"].get("failures") == "1"
    cases = {case.get("name", "").split()[0]: list(case) for case in root.iter("testcase")}
    assert [each.tag for each in cases["27.hello.1"]] == ["failure"]
    assert [each.tag for each in cases["32.start.1"]] == ["skipped"]
    assert cases["27.alloc.1"] == []


# --- consequences


def judged_with_consequences() -> tuple[Judgement, dict[int, Record]]:
    """27.alloc.1 is missing in the request; of the answer, 27.hello.1 and 21.sync.1 follow."""
    rules = Rules()
    rules.judge("27.alloc.1", sent("request", "sched.alloc"))(
        lambda _r, _f: Broken("no <request>", is_missing=True)
    )
    for clause in ("27.hello.1", "21.sync.1"):
        rules.judge(clause, sent("response", "sched.alloc"))(lambda _r, _f: Broken("so what"))
    rules.judge("27.impl.1", received("request", "sched.alloc"))(
        lambda _r, _f: Broken("another", job=9)
    )
    trace = records(answers=2)
    judgement = judge_trace(Source("a test", Shown(), iter(trace)), rules.all, CLAUSES)
    return judgement, {record.n: record for record in trace}


def test_text_folds_consequences_and_counts_them_apart() -> None:
    text = verdict_text(*judged_with_consequences())
    assert [line for line in text.splitlines() if "broken by" in line] == [
        "27.alloc.1 broken by job-manager",
        "27.impl.1 broken by job-manager",
    ]
    assert "  consequences (4):\n    27.hello.1       so what\n    21.sync.1        so what" in text
    assert text.splitlines()[-1] == "2 broken, and 4 violations that follow from them"


def test_page_folds_consequences_and_counts_them_apart() -> None:
    judgement, found = judged_with_consequences()
    page = verdict_page("trace.jsonl", judgement, CLAUSES, found)
    assert re.findall(r'<section id="([^"]+)"', page) == ["27.alloc.1", "27.impl.1"]
    assert page.count("<figure>") == 2
    shown, _, folded = page.partition('<details class="follow"><summary>4 consequences</summary>')
    rows = "<ul><li>27.hello.1 so what</li><li>21.sync.1 so what</li></ul></details>"
    assert folded.startswith(rows)
    assert "so what" not in shown
    assert "<p>2 broken, and 4 violations that follow from them</p>" in shown
    assert page.count('(follows from <a href="#27.alloc.1">27.alloc.1</a>)') == 2


def test_junit_folds_consequences_and_counts_them_apart() -> None:
    judgement, found = judged_with_consequences()
    root = ET.fromstring(verdict_junit(judgement, CLAUSES, found, "trace.jsonl"))
    counts = {
        suite.get("name"): (suite.get("failures"), suite.get("skipped"), len(suite))
        for suite in root
    }
    assert counts == {"RFC 21": ("0", "1", 1), "RFC 27": ("2", "1", 3)}
    cases = {case.get("name", "").split()[0]: list(case) for case in root.iter("testcase")}
    (failure,) = cases["27.alloc.1"]
    assert failure.get("type") == "1"
    assert "consequences (4):\n    27.hello.1       so what" in (failure.text or "")
    for clause in ("27.hello.1", "21.sync.1"):
        (skipped,) = cases[clause]
        assert (skipped.tag, skipped.get("message")) == (
            "skipped",
            "follows from 27.alloc.1: so what",
        )


def test_page_is_one_file_that_draws_each_violation() -> None:
    judgement, found = judged()
    page = verdict_page("trace.jsonl", judgement, CLAUSES, found)
    assert not re.findall(r"""(?:src|href)="(?!#)""", page)
    assert page.count("<figure>") == 1
    assert "expected &lt;nothing&gt; &amp; got something" in page
    assert '<section id="27.hello.1"' in page
    assert page.count("<tr data-rfc") == 4


@pytest.mark.parametrize("nothing", ["<script>", "]]>", "\x00\x1b"])
def test_what_a_peer_says_stays_text(nothing: str) -> None:
    rules = Rules()
    rules.judge("27.alloc.1", sent("request", "x.y"))(lambda _r, _f: Broken(nothing))
    record = Record(1, 0.0, "send", "a", "b", 0, Request("x.y", {"k": nothing}))
    judgement = judge_trace(Source("a test", Shown(), iter([record])), rules.all, CLAUSES)
    page = verdict_page(nothing, judgement, CLAUSES, {1: record})
    assert page.count("<script>") == 1
    ET.fromstring(verdict_junit(judgement, CLAUSES, {1: record}, "name"))


def test_a_record_is_told_in_a_line() -> None:
    def line(record: Record) -> str:
        return tell(record, 10.0).split(maxsplit=2)[2]

    refused = Response("a.b", "no such thing", 2, routes=("c",))
    assert line(Record(1, 10.0, "recv", "c", "", 0, refused)) == (
        'c <- a: response a.b ENOENT "no such thing"'
    )
    assert line(Record(1, 10.0, "drop", "c", "", 0, refused)).startswith("c -x: response a.b")
    assert (
        line(Record(1, 10.0, "send", "c", "", 0, Event("e", {"k": [1]}))) == "c -> *: event e k=[1]"
    )
    data = {"id": 5, "name": "finish", "context": {"status": 0}}
    assert line(Record(1, 10.0, "event", "jm", data=data)) == "jm: event finish of job ƒ6 status=0"


def test_message_whose_ends_are_both_shown_is_one_slanted_arrow() -> None:
    picture = ET.fromstring(draw_sequence(records(), 3, "what happened"))
    tag = "{http://www.w3.org/2000/svg}"
    arrows = [e for e in picture.iter(f"{tag}line") if e.get("class") in ("arrow", "bad-line")]
    assert [(each.get("class"), each.get("y1") == each.get("y2")) for each in arrows] == [
        ("arrow", False),
        ("bad-line", True),
    ]
    texts = [each.text for each in picture.iter(f"{tag}text")]
    assert texts.count("request sched.alloc id=ƒ8 jobspec={...}") == 1


def test_no_arrow_crosses_the_words_of_those_that_leave_at_once() -> None:
    """Three are sent before the first is received: their arrows pass each other's rows."""
    sends = [Record(n, 1.0, "send", "a", "b", 0, Request(f"x.{n}", {}, n)) for n in (1, 2, 3)]
    receipts = [Record(n + 3, 1.0, "recv", "b", "a", n, sends[n - 1].message) for n in (1, 2, 3)]
    picture = ET.fromstring(draw_sequence([*sends, *receipts], 6, "what happened"))
    drawn = [each.get("class") for each in picture.iter()]
    last_arrow = max(at for at, name in enumerate(drawn) if name in ("arrow", "bad-line"))
    assert drawn.count("said") == 3
    assert last_arrow < drawn.index("said")


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("duration", 0.000018557999283075333, "0.0000186"),
        ("t_submit", 1795897477.4643652, "1795897477.464365"),
        ("seconds", 0.0, "0.0"),
        ("jobs", [[7, "RUN", ""]], '[["\u01928","RUN",""]]'),
        ("ids", [7, 8], '["\u01928","\u01929"]'),
        ("jobs", 12, "12"),
        ("counts", [7], "[7]"),
    ],
)
def test_values_are_short_and_ids_as_people_type_them(key: str, value: Any, shown: str) -> None:
    record = Record(1, 10.0, "state", "jm", data={key: value})
    assert tell(record, 0.0).endswith(f"jm: state {key}={shown}")


def test_a_clause_that_is_not_exercised_says_why() -> None:
    """In JSON, which has all clauses."""
    rules = Rules()
    rules.judge("27.deny.1", sent("response", "sched.other"))(lambda _r, _f: True)
    rules.judge("invariant.other", sent("response", "sched.other"))(lambda _r, _f: True)
    judgement = judge_trace(
        Source("a test", Shown(headers=False), iter(records())), [*rules.all, *RULES.all], CLAUSES
    )
    whys = {each["id"]: each["why"] for each in verdict_json(judgement, CLAUSES, {})["clauses"]}
    assert CLAUSES["27.deny.1"].trigger in whys["27.deny.1"]
    assert whys["invariant.other"]
    assert whys["32.start.1"] == "the trace does not show matchtags, flags and userids"
    assert whys["27.alloc.1"] is None


def test_job_ids_are_spelled_as_people_type_them() -> None:
    assert spelled("job 7969177600 and jobs 1 of 2") == "job ƒD9D7ro and jobs ƒ2 of 2"
    assert spelled(f"job {2**64}") == f"job {2**64}"


def known(judgement: Judgement) -> Judgement:
    text = """
        [[known]]
        clause = "27.hello.1"
        why = "It <never> says hello."
        [[known]]
        clause = "27.alloc.1"
        why = "It never asks."
    """
    return sort_known(judgement, parse_known(text))


def test_known_departures_are_listed_with_their_reason_and_whether_they_occurred() -> None:
    judgement, found = judged()
    judgement = known(judgement)
    text = verdict_text(judgement, found)
    assert text.splitlines()[:3] == [
        "known departures",
        "  27.hello.1       1 time         It <never> says hello.",
        "  27.alloc.1       did not occur  It never asks.",
    ]
    assert "known   1" in text
    decoded = verdict_json(judgement, CLAUSES, found)
    assert [each["occurred"] for each in decoded["known"]] == [1, 0]
    assert "It &lt;never&gt; says hello." in verdict_page("x", judgement, CLAUSES, found)
    junit = ET.fromstring(verdict_junit(judgement, CLAUSES, found, "x"))
    assert {each.get("failures") for each in junit} == {"0"}


def test_page_shows_the_broken_clauses_first_and_folds_all_clauses() -> None:
    page = verdict_page("trace.jsonl", *judged()[:1], CLAUSES, judged()[1])
    assert page.index('<section id="27.hello.1"') < page.index("<details>") < page.index("<tr data")
