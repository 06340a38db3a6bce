"""A story tells what says most about a violation, as text, as drawings and as a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from flux_trio.formats import format_fluid
from flux_trio.lab import Crash, JobPlan, OwnerRequest, Plan, Reload, When, run_plan
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record
from flux_trio.views import Change, Story, story_page, story_text
from flux_trio.views.story import LINES_MAX, PUT_RIGHT, sentence, shown_beats
from flux_trio.views.story_page import CHANGES_MAX, SHOWN_MAX

CRASH = Crash("sched", When(topics.SCHED_ALLOC), back=3.0)


def traced(*faults: Any, jobs: int = 1) -> list[Record]:
    trace: list[Record] = []
    plan = Plan(1, jobs=(JobPlan(),) * jobs, faults=faults)
    assert run_plan(plan, [trace.append]).problems == ()
    return trace


def event(trace: list[Record], name: str) -> Record:
    return next(r for r in trace if r.kind == Kind.EVENT and (r.data or {})["name"] == name)


@pytest.fixture
def story() -> Story:
    """A story about the alloc event of a job whose scheduler has crashed."""
    trace = traced(CRASH)
    at = event(trace, "alloc")
    jobid = (at.data or {})["id"]
    return Story(
        "27.alloc.1",
        f"job {jobid} <waits>",
        trace,
        sentence="The job manager asks.",
        party="job-manager",
        at=at.n,
        because=frozenset({event(trace, "submit").n}),
        jobid=jobid,
        played=("seed 1: 4 nodes",),
    )


def test_text_begins_with_the_violation(story: Story) -> None:
    lines = story_text(story).splitlines()
    assert lines[:3] == [
        "27.alloc.1 is broken by job-manager",
        "  expected: The job manager asks.",
        f"  found:    job {lines[2].split()[2]} <waits>",
    ]
    assert "  seed 1: 4 nodes" in lines
    told = lines[lines.index("  seed 1: 4 nodes") + 2 :]
    assert len(told) <= LINES_MAX
    assert told[-1].startswith(">     3.000 s  job-manager: event alloc of job")
    assert any("sched has crashed: killed on request" in line for line in told)
    assert any("3.000 s  sched is loaded" in line for line in told)
    assert any("sends request sched.alloc" in line for line in told)


def test_nothing_after_the_violation_is_told(story: Story) -> None:
    assert max(r.n for beat in shown_beats(story, 100) for r in beat) == story.at


def test_few_lines_keep_the_violation_and_its_reasons(story: Story) -> None:
    told = {r.n for beat in shown_beats(story, 2) for r in beat}
    assert {story.at, *story.because} <= told


def test_request_that_acts_on_all_jobs_is_told_in_few_lines() -> None:
    """A queue that was stopped, and a module that has restarted: both may be the cause."""
    stopped = OwnerRequest(1.0, "queue-stop")
    reload = Reload("job-manager", When("job-exec.start", type="response"))
    trace: list[Record] = []
    run_plan(Plan(1, jobs=(JobPlan(),) * 4, faults=(reload,), actions=(stopped,)), [trace.append])
    lines = story_text(Story("promised", "the queue is started", trace)).splitlines()
    assert any("sends request job-manager.queue-start" in line for line in lines)


def test_events_of_a_job_at_one_moment_are_one_line() -> None:
    trace = traced()
    lines = story_text(Story("rest", "nothing", trace)).splitlines()
    assert any(
        re.search(r"event validate of job \S+, then depend, priority", s) for s in lines
    ) or (
        any(
            re.search(r"event submit of job \S+, then validate, depend, priority", s) for s in lines
        )
    )


def test_events_after_everything_is_put_right_are_told_below_that_line() -> None:
    trace = traced()
    validated = event(trace, "validate")
    assert event(trace, "depend").t == validated.t
    lines = story_text(Story("rest", "nothing", trace, right_after=validated.n)).splitlines()
    at = lines.index(PUT_RIGHT)
    assert any(re.search(r"event .*validate", line) for line in lines[:at])
    assert not any("depend" in line for line in lines[:at])
    assert any(re.search(r"event depend of job \S+, then priority", line) for line in lines[at:])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            Record(1, 0.0, Kind.MODULE, "broker", data={"module": "sched", "what": "removed"}),
            "sched is unloaded",
        ),
        (
            Record(1, 0.0, Kind.CLOCK, "broker", data={"by": -60.0}),
            "the wall clock is set 60 s back",
        ),
        (
            Record(
                1,
                0.0,
                Kind.FAULT,
                "faults",
                data={
                    "type": "crash-together",
                    "modules": ("sched", "kvs"),
                    "when": 1,
                    "back": 2.0,
                },
            ),
            "fault crash-together (modules sched,kvs, back 2.0)",
        ),
        (
            Record(1, 0.0, Kind.EVENT, "job-manager", data={"id": 1, "name": "x", "context": {}}),
            "job-manager: event x of job \u01922",
        ),
    ],
)
def test_sentence_of_a_record(record: Record, said: str) -> None:
    assert sentence(record) == said


class _Page(HTMLParser):
    """Checks that elements nest, and keeps what the page would load."""

    VOID = ("meta", "br", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def test_page_loads_nothing_and_has_the_violation_first(story: Story) -> None:
    change = Change(story.at - 1, story.at, "sched", ("core.x: 1 != 2",), "core.x = 2 <now>")
    text = story_page(replace(story, changes=[change]))
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.loaded == []
    assert page.headings == ["27.alloc.1 is broken by job-manager", "What happened"]
    assert "&lt;waits&gt;" in text
    assert "<now>" not in text


def data_of(story: Story) -> Any:
    """Return what the page of a story gives to the viewer."""
    data = re.search(r'<script id="page" type="application/json">(.*?)</script>', story_page(story))
    assert data is not None
    return json.loads(data[1])


def test_page_has_the_state_of_each_core_also_if_the_last_turns_did_not_change_it(
    story: Story,
) -> None:
    first = [Change(0, 0, name, (), f"first of {name}") for name in ("kvs", "sched")]
    early = Change(0, 1, "sched", ("x: 1 -> 2",), "early")
    many = [Change(1, 2, "job-exec", ("y",), f"{n}") for n in range(CHANGES_MAX)]
    after = Change(story.at, story.at + 1, "kvs", ("z",), "after the violation")
    page = data_of(replace(story, changes=[*first, early, *many, after]))
    states = [(each["after"], each["state"]) for each in page["changes"]]
    assert states[:3] == [(0, "first of kvs"), (1, "early"), (2, "0")]
    assert states[-1] == (2, f"{CHANGES_MAX - 1}")
    assert page["left_out"] == 1
    assert data_of(replace(story, changes=first))["left_out"] == 0


def test_page_of_a_long_trace_has_the_records_around_the_violation(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = data_of(story)
    assert "are left out" not in story_page(story)
    monkeypatch.setitem(story_page.__globals__, "ROWS_MAX", 40)
    page, nrecords = data_of(story), len(story.trace)
    places = [row["n"] for row in page["rows"]]
    assert len(places) == 40
    assert places[20] == story.at
    assert page["story"]
    assert set(page["story"]) == {n for n in whole["story"] if n >= places[0]}
    assert page["begun"] == {format_fluid(story.jobid or 0, "f58"): "SCHED"}
    assert "kvs" in page["modules"]
    before = story.trace.index(event(list(story.trace), "alloc")) - 20
    said = f"The page has 40 of the {nrecords} records. {before} earlier and "
    assert f"{said}{nrecords - 40 - before} later ones are left out" in story_page(story)


def test_page_of_a_world_without_rest_has_its_last_records(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(story_page.__globals__, "ROWS_MAX", 40)
    page = data_of(replace(story, at=0, because=frozenset()))
    assert [row["n"] for row in page["rows"]] == [record.n for record in story.trace[-40:]]


def test_page_shows_first_what_tells_the_story(story: Story) -> None:
    page = data_of(story)
    kinds = {record.n: record for record in story.trace}
    beats = {r.n for beat in shown_beats(story, SHOWN_MAX) for r in beat}
    assert beats <= set(page["story"])
    assert {kinds[n].ref or n for n in page["story"]} == beats
    assert [row["n"] for row in page["rows"]] == list(kinds)
    assert page["violations"][0]["n"] == story.at
