"""The viewer in headless Chromium: what is drawn is compared with the records."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from flux_trio.judge import Judgement, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import Crash, Drop, JobPlan, Plan, SentMessage, When, run_plan
from flux_trio.messages import Event, Request, Response, topics
from flux_trio.trace import Kind, Record, Shown, Source
from flux_trio.views import Change, Story, story_page
from flux_trio.views.viewer import Row, Rows, trace_page
from tests.support.browser import Browser, logged_by
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of
from tests.support.viewing import many_messages, scroll

NODES_MAX = 2_000
MESSAGES = 3_000

TEXT = "return document.querySelector(arguments[0]).innerText"
COUNT = "return document.querySelectorAll(arguments[0]).length"


@functools.cache
def traced(*faults: Any, jobs: int = 2) -> list[Record]:
    """A world's trace, which no test changes."""
    trace: list[Record] = []
    run_plan(Plan(1, jobs=(JobPlan(),) * jobs, faults=faults), [trace.append])
    return trace


def judged(trace: Iterable[Record]) -> tuple[Judgement, list[Row]]:
    make, rows = Rows(), list[Row]()

    def note(record: Record, clauses: frozenset[str]) -> None:
        row = make.add(record, clauses)
        assert row is not None
        rows.append(row)

    source = Source("JSON lines", Shown(), iter(trace))
    return judge_trace(source, ALL_RULES, load_clauses(), note=note), rows


def show(
    browser: Browser,
    path: Path,
    trace: Iterable[Record],
    width: int = 1400,
    *,
    begins_at_job: bool = False,
) -> list[Row]:
    """Open the page of a trace, by default with the start-up; its rows."""
    return show_rows(browser, path, *judged(trace), width, begins_at_job=begins_at_job)


def unjudged(trace: Iterable[Record], *clauses: str) -> tuple[Judgement, list[Row]]:
    make = Rows()
    rows = [row for each in trace if (row := make.add(each, frozenset(clauses))) is not None]
    return judged([])[0], rows


def show_rows(
    browser: Browser,
    path: Path,
    judgement: Judgement,
    rows: list[Row],
    width: int = 1400,
    *,
    begins_at_job: bool = False,
) -> list[Row]:
    page = path / "page.html"
    page.write_text(trace_page("trace", judgement, load_clauses(), rows, {}))
    browser.open(page, width)
    if not begins_at_job:
        browser.run("viewer.narrow({ start: false })")
    return rows


@pytest.fixture
def no_complaints(browser: Browser) -> Any:
    browser.complaints()
    yield
    assert browser.complaints() == []


pytestmark = pytest.mark.usefixtures("no_complaints")


def test_every_record_is_drawn_with_its_words(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced(), width=2_000)
    found = scroll(browser, 300, 1_000)
    assert sorted(found.rows) == [row.n for row in rows]
    browser.run("document.getElementById('chart').scrollTop = 0; viewer.chart.draw()")
    first = [row.text for row in rows[:10] if row.text]
    texts = "[...document.querySelectorAll('.said, .noted')].map(e => e.textContent)"
    words = browser.run(f"return {texts}")
    assert [word for word in words if word in first] == first


def test_the_page_begins_at_the_first_job(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced(), begins_at_job=True)
    first = next(at for at, row in enumerate(rows) if "job-ingest.submit" in row.text)
    assert first > 1
    assert browser.run("return viewer.chart.view[0]") == first
    assert f"start-up: {first} records" in browser.run(TEXT, "#chips")
    browser.run("document.querySelector('#chips button').click()")
    assert browser.run("return viewer.chart.view[0]") == 0


def test_a_link_leads_to_a_record(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced())
    browser.run("viewer.goTo(arguments[0])", 3)
    link = browser.run("return document.querySelector('#details a').href")
    assert link.endswith(f"#{rows[3].n}")
    browser.run("location.reload()")
    assert browser.run("return viewer.chosen") == 3  # though it is of the start-up


def test_the_legend_shows_what_the_picture_has(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, traced())
    browser.run("document.getElementById('legend').open = true")
    assert "it was lost" in browser.run(TEXT, "#legend")
    assert browser.run(COUNT, "#legend svg") == 8


def test_arrows_go_from_sender_to_receiver(browser: Browser, tmp_path: Path) -> None:
    """Each arrow's ends are at the lanes and rows of its message."""
    trace = traced()
    show(browser, tmp_path, trace)
    sent = find_all(trace, topics.SCHED_ALLOC, "request")[0]
    taken = next(r for r in trace if r.kind == Kind.RECV and r.ref == sent.n)
    drawn = browser.run(
        """
        viewer.goTo(viewer.trace.places.get(arguments[1]));
        const { chart, trace } = viewer;
        const lines = [...document.querySelectorAll(".arrow.selected")];
        const top = chart.body.getBoundingClientRect().top;
        const places = [...arguments].map(n => chart.rowOf.get(trace.places.get(n)));
        const ys = places.map(place => top + (place + 0.5) * 22);
        const xs = ["job-manager", "sched"].map(name =>
          [...document.querySelectorAll(".lanes button")].find(e => e.textContent === name)
            .getBoundingClientRect()).map(box => box.left + box.width / 2);
        const boxes = lines.map(line => line.getBoundingClientRect());
        return {
          ends: [...xs.sort((a, b) => a - b), ...ys],
          box: [Math.min(...boxes.map(b => b.left)), Math.max(...boxes.map(b => b.right)),
                Math.min(...boxes.map(b => b.top)), Math.max(...boxes.map(b => b.bottom))],
        };
        """,
        sent.n,
        taken.n,
    )
    assert drawn["box"] == pytest.approx(drawn["ends"], abs=4)


def test_states_of_a_job_are_bars_from_event_to_event(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced())
    job = next(row for row in rows if row.state).jobs[0]
    drawn = browser.run(
        """
        const jobs = [...document.querySelectorAll(".job")];
        const job = jobs.find(e => e.dataset.job === arguments[0]);
        return [...job.querySelectorAll(".bar")].map(e => [
          e.classList[1], viewer.jobs.indexAt(Number(e.getAttribute("x")))]);
        """,
        job,
    )
    entered = [[row.state, at] for at, row in enumerate(rows) if row.state and job in row.jobs]
    assert drawn == [each for each in entered if each[0] != "INACTIVE"]


def test_job_is_followed_through_every_component(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced(jobs=3))
    job = next(row for row in rows if row.state).jobs[0]
    browser.click(f"[data-job='{job}'] .name")
    shown = browser.run("return viewer.chart.view.map(at => viewer.trace.rows[at].party)")
    submits = {row.request for row in rows if row.last and job in row.jobs}
    sends = {row.n for row in rows if job in row.jobs or row.n in submits}
    own = [row for row in rows if row.n in sends or row.ref in sends]
    assert len(shown) == len(own) < len(rows)
    assert {"kvs", "sched", "job-exec", "job-ingest", "job-list"} <= set(shown)
    assert browser.run(TEXT, "#details h2") == f"Job {job}"
    assert browser.run(TEXT, "#details ol").split()[0] == "DEPEND"
    browser.click("#chips button")
    assert browser.run(TEXT, "#count") == f"{len(rows)} records"


def test_record_that_is_not_shown_is_shown_when_it_is_asked_for(
    browser: Browser, tmp_path: Path
) -> None:
    rows = show(browser, tmp_path, traced())
    browser.run("viewer.followJob([...viewer.trace.jobs.keys()][0])")
    assert browser.run("return viewer.chart.rowOf.has(2)") is False
    browser.run("viewer.goTo(2)")
    assert browser.run("return document.querySelector('.row.selected').dataset.at") == "2"
    assert browser.run(TEXT, "#count") == f"{len(rows)} records"


def test_message_shows_payload_cause_and_clauses(browser: Browser, tmp_path: Path) -> None:
    trace = traced()
    rows = {row.n: row for row in show(browser, tmp_path, trace)}
    answer = find_all(trace, topics.SCHED_ALLOC, "response")[0]
    browser.run("viewer.goTo(viewer.trace.places.get(arguments[0]))", answer.n)
    browser.click(".row.selected")
    told = browser.run(TEXT, "#details")
    assert f"answers the request at {rows[answer.n].request}: request sched.alloc" in told
    assert f"was taken up by job-manager at {answer.n + 1}" in told or "was taken up by" in told
    assert isinstance(answer.message, Response)
    shown = browser.run(TEXT, "#details pre")
    assert json.loads(shown)["payload"] == answer.message.payload
    browser.run("document.querySelector('#details details').open = true")
    clauses = browser.run(
        "return [...document.querySelectorAll('#details .clauses b')].map(e => e.textContent)"
    )
    assert clauses == list(rows[answer.n].clauses)
    assert any(each.startswith("27.alloc") for each in clauses)


def test_ids_above_2_to_53_keep_their_digits(browser: Browser, tmp_path: Path) -> None:
    jobid = 2**63 + 1
    show(browser, tmp_path, [Record(1, 0.0, Kind.SEND, "x", "y", 0, Request("a.b", {"id": jobid}))])
    browser.run("viewer.goTo(0)")
    assert f'"id": {jobid}' in browser.run(TEXT, "#details pre")


def test_broken_clause_jumps_to_its_place(browser: Browser, tmp_path: Path) -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[0]
    show(browser, tmp_path, edit_payload(trace, alloc, id="seven"))
    browser.run("viewer.leave(); viewer.chart.scroller.scrollTop = 0")
    assert "27.alloc.2 by job-manager" in browser.run(TEXT, "#broken")
    browser.click("#broken li button")
    assert browser.run("return location.hash") == f"#{alloc.n}"
    assert browser.run(COUNT, ".row.broken.selected") == 1
    box = browser.run("return document.querySelector('.row.selected').getBoundingClientRect().top")
    assert 0 < box < 900
    assert "27.alloc.2 is broken" in browser.run(TEXT, "#details")


def test_failures_and_losses_are_marked(browser: Browser, tmp_path: Path) -> None:
    lost = Drop(SentMessage(topics.SCHED_FREE))
    crash = Crash("sched", When(topics.SCHED_ALLOC), back=3.0)
    trace = traced(lost, crash)
    rows = show(browser, tmp_path, trace)
    drop = next(row for row in rows if row.kind == "drop")
    browser.run("viewer.goTo(viewer.trace.places.get(arguments[0]))", drop.n)
    assert browser.run(COUNT, ".arrow.open.bad") >= 1
    gone = next(at for at, row in enumerate(rows) if row.gone)
    back = next(
        at
        for at, row in enumerate(rows)
        if at > gone and row.kind == "module" and row.peer == rows[gone].peer
    )
    browser.run("viewer.goTo(arguments[0])", gone)
    assert browser.run(COUNT, ".note.bad") >= 1
    ends = browser.run(
        """
        const x = viewer.chart.at(arguments[0]);
        const top = viewer.chart.body.getBoundingClientRect().top;
        const boxes = [...document.querySelectorAll(".lane.gone")]
          .filter(e => Number(e.getAttribute("x1")) === x).map(e => e.getBoundingClientRect());
        const ys = boxes.flatMap(box => [box.top, box.bottom]).map(y => (y - top) / 22 - 0.5);
        return [Math.min(...ys), Math.max(...ys)];
        """,
        rows[gone].peer,
    )
    assert ends == pytest.approx([gone, back], abs=0.1)
    marks = browser.run("return viewer.trace.marks.map(at => viewer.trace.rows[at].n)")
    assert marks == [row.n for row in rows if row.bad]


EVIL = "</script><img src=x onerror='window.pwned=1'><svg onload='window.pwned=2'>\u202e\u2028'\"&"


def test_what_a_trace_says_is_text(browser: Browser, tmp_path: Path) -> None:
    """Names, topics, payloads and texts of errors are data, wherever they come."""
    held = {"id": 7, EVIL: EVIL}
    messages = [
        Request(f"{EVIL}.x", held, 1, routes=(EVIL,)),
        Response(f"{EVIL}.x", EVIL, 5, 1, routes=(EVIL,)),
        Event(EVIL, held),
    ]
    trace = [Record(n, 0.0, Kind.SEND, EVIL, f"p{EVIL}", 0, m) for n, m in enumerate(messages, 1)]
    datas = {"module": EVIL, "what": EVIL, "type": EVIL, "by": 1, "id": 7, "name": EVIL,
             "reason": EVIL, "context": {"note": EVIL}}  # fmt: skip
    trace += [Record(n, 0.0, kind, EVIL, data=datas) for n, kind in enumerate(Kind, 4)]
    judgement, rows = unjudged(trace, EVIL)
    change = Change(2, 3, EVIL, (EVIL,), EVIL)
    story = Story(EVIL, EVIL, trace, EVIL, EVIL, at=3, played=(EVIL,), changes=[change])
    pages = [trace_page(EVIL, judgement, {}, rows, {EVIL: EVIL}), story_page(story)]
    for page in pages:
        assert EVIL not in page
        path = tmp_path / "evil.html"
        path.write_text(page)
        browser.open(path)
        browser.run("for (let at = 0; at < arguments[0]; at++) viewer.goTo(at)", len(rows))
        browser.run("viewer.followJob('\u01928')")
        assert browser.run("return window.pwned") is None
        assert browser.run(COUNT, "img, svg svg, [onerror], [onload]") == 0
        assert "\u202e" not in browser.run("return document.body.innerText")


def test_thousands_of_messages_need_few_nodes(browser: Browser, tmp_path: Path) -> None:
    """Only what is on the screen is in the page; the benchmark `view_10k` measures the time."""
    show_rows(browser, tmp_path, *unjudged(many_messages(MESSAGES)))
    found = scroll(browser, 700, 300)
    shown = f"{found.nodes} nodes; a scroll step takes {median(found.took):.1f} ms in the median"
    print(shown)
    assert len(found.rows) > MESSAGES
    assert found.nodes < NODES_MAX, shown


def test_very_many_messages_on_their_way_at_once(browser: Browser, tmp_path: Path) -> None:
    """Arrows that pass through a part of the drawing are bounded, too."""
    count = MESSAGES // 2
    message = Request("a.b", {"id": 7}, routes=("x",))
    trace = [Record(n, 0.0, Kind.SEND, "x", "y", 0, message) for n in range(1, count + 1)]
    trace += [Record(n + count, 1.0, Kind.RECV, "y", "", n, message) for n in range(1, count + 1)]
    show_rows(browser, tmp_path, *unjudged(trace))
    assert scroll(browser, 700, 100).nodes < NODES_MAX


def test_empty_trace(browser: Browser, tmp_path: Path) -> None:
    show(browser, tmp_path, [])
    assert browser.run(TEXT, "#count") == "0 records"


def test_story_shows_the_violation_first(browser: Browser, tmp_path: Path) -> None:
    trace = traced(Crash("sched", When(topics.SCHED_ALLOC), back=3.0))
    at = next(r for r in trace if r.kind == Kind.EVENT and (r.data or {})["name"] == "alloc")
    change = Change(at.n - 1, at.n, "sched", ("core.x: 1 -> 2",), "core.x = 2 <now>")
    story = Story("27.alloc.1", "job waits", trace, "It asks.", "job-manager", at=at.n)
    story = replace(story, changes=[change], because=frozenset({5}))
    page = tmp_path / "story.html"
    page.write_text(story_page(story))
    browser.open(page, 400)
    assert browser.run("return scrollY") == 0
    browser.open(page)
    assert browser.run(TEXT, "h1") == "27.alloc.1 is broken by job-manager"
    assert browser.run("return location.hash") == f"#{at.n}"
    told = browser.run(TEXT, "#details")
    assert "core.x: 1 -> 2" in told
    assert "state of sched" in told
    few = browser.run("return viewer.chart.view.length")
    browser.click("#story")
    assert few < browser.run("return viewer.chart.view.length") == len(trace)


def test_page_of_a_story_logs_nothing_while_it_is_loaded(tmp_path: Path) -> None:
    """Its chart is drawn anew when it gets its size; that is no loop of a ResizeObserver."""
    trace = traced(Crash("sched", When(topics.SCHED_ALLOC), back=3.0))
    at = next(r for r in trace if r.kind == Kind.EVENT and (r.data or {})["name"] == "alloc")
    page = tmp_path / "story.html"
    story = Story("27.alloc.1", "job waits", trace, "It asks.", "job-manager", at=at.n)
    page.write_text(story_page(story))
    assert logged_by(page) == []


def test_each_row_of_a_story_shows_what_its_own_turn_changes(
    browser: Browser, tmp_path: Path
) -> None:
    """A turn of two records, one that changes nothing, and one after it."""
    trace = traced(jobs=1)
    places = range(10, 14)
    one, two, quiet, last = (trace[at].n for at in places)
    changes = [
        Change(0, 0, "sched", (), "x = 0"),
        Change(one - 1, two, "sched", ("x: 0 -> 1",), "x = 1"),
        Change(quiet, last, "sched", ("x: 1 -> 2",), "x = 2"),
    ]
    page = tmp_path / "story.html"
    page.write_text(story_page(Story("inactive", "job waits", trace, changes=changes)))
    browser.open(page)
    shown = []
    for at in places:
        browser.run("viewer.goTo(arguments[0])", at)
        told = browser.run("return document.querySelector('#details').textContent")
        shown.append(told.partition("changes in the cores")[2].partition("state of sched"))
    found = [(change, state[:5]) for change, _, state in shown]
    assert found == [
        ("sched: x: 0 -> 1", "x = 1"),
        ("sched: x: 0 -> 1", "x = 1"),
        ("nothing", "x = 1"),
        ("sched: x: 1 -> 2", "x = 2"),
    ]


def test_keys_step_through_records_and_violations(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced())
    event = "new KeyboardEvent('keydown', {key: arguments[0], bubbles: true})"
    press = f"document.body.dispatchEvent({event})"
    browser.run("viewer.goTo(5)")
    browser.run(press, "ArrowDown")
    assert browser.run("return location.hash") == f"#{rows[6].n}"
    browser.run(press, "k")
    assert browser.run("return location.hash") == f"#{rows[5].n}"
    browser.run(press, "Escape")
    assert browser.run(COUNT, ".row.selected") == 0
    for n in (rows[9].n, rows[7].n):
        violation = {"clause": "x", "party": "", "text": "", "n": n, "because": []}
        browser.run("viewer.trace.addViolation(arguments[0])", violation)
    seen = []
    for _ in range(3):
        browser.run(press, "n")
        seen.append(browser.run("return viewer.chosen"))
    assert seen == [7, 9, 7]


@pytest.mark.parametrize("width", [400, 1400])
def test_page_is_not_wider_than_the_screen(browser: Browser, tmp_path: Path, width: int) -> None:
    show(browser, tmp_path, traced(), width=width)
    browser.run("viewer.goTo(50)")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    cut = browser.run(
        "return [...document.querySelectorAll('#head, #bar, #side')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.id)"
    )
    assert cut == []


def test_first_rows_are_forgotten_and_jobs_keep_their_states(
    browser: Browser, tmp_path: Path
) -> None:
    """As a page that is live does when it has too many."""
    rows = show(browser, tmp_path, traced())
    running = next(at for at, row in enumerate(rows) if row.state == "RUN")
    browser.run("viewer.goTo(arguments[0] + 5)", running)
    browser.run("viewer.forget(arguments[0] + 1); viewer.update(); viewer.jobs.update()", running)
    left = rows[running + 1 :]
    assert browser.run("return viewer.trace.rows.map(row => row.n)") == [row.n for row in left]
    assert browser.run("return viewer.trace.rows[viewer.chosen].n") == rows[running + 5].n
    states = "viewer.trace.jobs.get(arguments[0]).bars.map(bar => bar.state)"
    job = rows[running].jobs[0]
    assert browser.run(f"return {states}", job) == ["RUN", "CLEANUP", "INACTIVE"]


def test_gap_is_a_row_over_all_lanes(browser: Browser, tmp_path: Path) -> None:
    rows = show(browser, tmp_path, traced())
    browser.run("viewer.trace.add(gap(viewer.trace.rows.at(-1), 7)); viewer.update()")
    browser.run("viewer.goTo(arguments[0])", len(rows))
    words = browser.run("return [...document.querySelectorAll('.noted')].at(-1).textContent")
    assert words == "7 records are missing here: they came too fast; the judge begins anew"
