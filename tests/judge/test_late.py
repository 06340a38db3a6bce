"""A trace that begins while the instance runs: nobody is accused for what was before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from flux_trio.judge import Judgement, Monitor, Verdict, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES, CURRENT_RULES, NEED_THE_BEGINNING
from flux_trio.trace import Record, Shown, Source, read_trace
from tests.recordings.test_judged import explained
from tests.recordings.test_unexplained import HAPPENED
from tests.support import recorded
from tests.support.scenarios import breaks_of, trace_of

SCENARIOS = ("everyday", "calls", "execution_reload", "drains", "two_groups", "answers_by_hand")
TRACES = ("live.sched-simple.trace", "live.sched-fifo.trace")
SEED = 7
NOON = 1787054400.0  # of the day in `printed`
WHOLE_MAX = 70
"""Recordings with fewer messages are judged from each of them on."""


def judged(records: Sequence[Record], *, classic: bool = True) -> Judgement:
    source = Source("JSON lines", Shown(), iter(records), begins=False)
    rules = ALL_RULES if classic else CURRENT_RULES
    return judge_trace(source, rules, load_clauses(), classic=classic)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", SCENARIOS)
def test_trace_of_ours_without_its_beginning_breaks_nothing(name: str) -> None:
    trace = trace_of(name)
    for first in random.Random(f"{SEED} {name}").sample(range(len(trace)), 8):
        judgement = judged(trace[first:])
        assert not judgement.violations, (name, first, judgement.violations)
        assert {each.clause for each in judgement.unexplained} <= breaks_of(name)


def test_rules_that_wait_would_accuse() -> None:
    """Each of them has its reason: without its beginning this trace breaks some of them."""
    monitor = Monitor(ALL_RULES, load_clauses())
    for record in trace_of("everyday")[100:]:
        monitor.observe(record)
    broken = {each.clause for each in monitor.violations}
    assert {"6.response.1", "32.hello.1"} <= broken <= NEED_THE_BEGINNING.keys()


def test_clauses_that_need_the_beginning_are_named() -> None:
    judgement = judged(trace_of("everyday")[100:])
    told = {clause for clause, why in judgement.left_out.items() if "while the instance" in why}
    assert told == {clause for clause in NEED_THE_BEGINNING if clause in judgement.verdicts}


def test_trace_that_begins_is_told_by_its_first_place() -> None:
    trace = recorded.lines_of(trace_of("everyday"))
    assert read_trace(trace).begins
    assert not read_trace(trace[1:]).begins


def test_module_that_was_loaded_since_is_judged_in_full() -> None:
    """The execution service comes back in the trace: now it is known who said exec-hello."""
    trace = trace_of("execution_reload")
    first = next(r.n for r in trace if getattr(r.message, "topic", "") == "sched.alloc")
    verdicts = judged([r for r in trace if r.n > first]).verdicts
    assert verdicts["32.hello.1"] is Verdict.KEPT
    assert verdicts["27.hello.1"] is Verdict.NOT_EXERCISED, "the scheduler was not loaded again"


# --- flux-core


def cut_recording(number: str, places: Sequence[int]) -> Iterator[tuple[int, Source]]:
    for place in places:
        told = recorded.recording(number)
        told["messages"] = told["messages"][place:]
        t = told["messages"][0]["t_rel"]
        for job in told["jobs"]:
            job["eventlog"] = [each for each in job["eventlog"] if each["t_rel"] >= t]
        yield place, read_trace([msgspec.json.encode(told).decode()])


def cut_trace(name: str, places: Sequence[int]) -> Iterator[tuple[int, Source]]:
    lines = recorded.module_trace(name).splitlines(keepends=True)
    heads = [at for at, line in enumerate(lines) if line.startswith("2026-")]
    for place in places:
        yield place, read_trace(lines[heads[place] :])


def sources(seed: int) -> Iterator[tuple[str, int, Source]]:
    """The traces and recordings without their beginnings, cut at some 65 places."""
    choose = random.Random(seed)
    for name in TRACES:
        for place, source in cut_trace(name, choose.sample(range(1, 1800), 26)[:9]):
            yield name, place, source
    for number in recorded.numbers():
        count = len(recorded.recording(number)["messages"])
        for place, source in cut_recording(number, choose.sample(range(1, count), 3)[:1]):
            yield number, place, source


ALLOWED = {*explained(), *((each, name) for name in HAPPENED for each in HAPPENED[name])}


def wrong_in(name: str, place: int, source: Source, *, at_rest: bool) -> list[str]:
    """What flux-core is accused of in a trace without its beginning, and is not known for."""
    assert not source.begins
    judgement = recorded.judged_source(source, at_rest=at_rest)
    return [
        f"{name} from {place}: {each.clause}: {each.text}"
        for each in (*judgement.violations, *judgement.unexplained)
        if (each.clause, name) not in ALLOWED
    ]


@pytest.mark.gate
def test_flux_core_is_not_accused_wherever_the_trace_begins() -> None:
    wrong, ncuts = [], 0
    for each in sources(SEED):
        ncuts += 1
        wrong += wrong_in(*each, at_rest=ncuts % 2 == 0)
    assert (wrong, ncuts >= 60) == ([], True)


@pytest.mark.parametrize(("number", "place"), [("n05", 33), ("22", 54)])
def test_eventlogs_may_be_whole_where_the_messages_begin_late(number: str, place: int) -> None:
    """27.criteria.5: a job may have been asked for before. 32.start.20: all ranks of a job."""
    told = recorded.recording(number)
    told["messages"] = told["messages"][place:]
    source = read_trace([msgspec.json.encode(told).decode()])
    assert wrong_in(number, place, source, at_rest=False) == []


@pytest.mark.gate
def test_flux_core_is_not_accused_from_any_record_of_a_recording() -> None:
    wrong, ncuts = [], 0
    for number in recorded.numbers():
        count = len(recorded.recording(number)["messages"])
        places = range(1, count if count < WHOLE_MAX else 1)
        for place, source in cut_recording(number, places):
            ncuts += 1
            wrong += wrong_in(number, place, source, at_rest=True)
    assert (wrong, ncuts >= 1000) == ([], True)


@pytest.mark.parametrize("place", [15, 20, 23])
def test_a_scheduler_whose_hello_was_before_is_blamed_for_its_error(place: int) -> None:
    """27.impl.10: it answered sched.alloc with an error, so that nothing is unexplained."""
    ((_, source),) = cut_recording("19", [place])
    judgement = recorded.judged_source(source, at_rest=True)
    assert [each.clause for each in judgement.violations] == ["27.impl.10"]
    assert judgement.unexplained == ()


def test_a_module_that_was_removed_is_not_answered_if_others_follow_the_journal() -> None:
    """6.disconnect.2: a trace of modules does not say to which of its followers an event goes."""
    text = recorded.module_trace("removed.sched-fifo.trace")
    judgement = recorded.judged_source(read_trace(text.splitlines(keepends=True)))
    assert judgement.violations == ()
    assert judgement.unexplained == ()
    assert judgement.verdicts["27.hello.1"] is Verdict.KEPT


def printed(t: float, head: str, payload: object) -> str:
    """A message as `flux module trace --full` prints it, `t` seconds after noon."""
    text = msgspec.json.format(msgspec.json.encode(payload), indent=1).decode()
    return f"2026-08-18T12:00:{t:06.3f} {head}\n{text}\n"


def told_of(t: float, jobid: int, name: str, t_posted: float) -> str:
    context = {"priority": 16} if name == "priority" else {}
    event = {"timestamp": NOON + t_posted, "name": name, "context": context}
    head = "job-manager tx < job-manager.events-journal [9] success"
    return printed(t, head, {"id": jobid, "events": [event]})


def test_jobs_of_the_message_that_was_cut_have_the_time_of_their_submission() -> None:
    """27.criteria.5: of the first job only the journal is seen, a moment later."""
    submit = "job-manager rx > job-manager.submit [9]"
    text = ""
    for jobid, t_submit, t in ((1, 0.1, 0.8), (2, 0.5, 0.9)):
        job = {"id": jobid, "userid": 0, "urgency": 16, "t_submit": NOON + t_submit}
        text += printed(t, submit, {"jobs": [job]})
        text += told_of(t, jobid, "submit", t_submit)
        text += "".join(told_of(t, jobid, name, t) for name in ("validate", "depend", "priority"))
    for jobid, t_submit in ((1, 0.1), (2, 0.5)):
        asked = {"id": jobid, "priority": 16, "userid": 0, "t_submit": NOON + t_submit}
        text += printed(3.0, "job-manager tx > sched.alloc [9]", asked)
    judgement = recorded.judged_source(read_trace(text.splitlines(keepends=True)))
    assert judgement.verdicts["27.criteria.5"] is Verdict.KEPT


@pytest.mark.parametrize("name", TRACES)
def test_live_trace_of_flux_core_breaks_nothing(name: str) -> None:
    """Also at its end, where nothing is due that was not done."""
    judgement = recorded.judged_source(read_trace(recorded.module_trace(name).splitlines(True)))
    assert judgement.violations == ()
    assert judgement.debts == ()
    kept = {clause for clause, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT}
    assert len(kept) >= 245
    for rfc, least in (("27.", 78), ("28.", 17), ("32.", 38)):
        assert sum(clause.startswith(rfc) for clause in kept) >= least
