"""Stories of a healthy flux-core of which false things were said: what is right of each."""

from __future__ import annotations

import base64
import functools
import gzip
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from flux_trio.formats import job_key
from flux_trio.judge import Judgement, Verdict, load_clauses
from flux_trio.trace import Source, read_trace
from tests.support import recorded

STORIES: Final = Path(__file__).parents[1] / "data" / "live-stories"


@functools.cache
def lines_of(name: str) -> tuple[str, ...]:
    data = (STORIES / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    return tuple(text.splitlines(keepends=True))


def story(name: str) -> Source:
    return read_trace(lines_of(name), cut=lambda _: None)


@functools.cache
def judged(name: str) -> Judgement:
    """The judgement, without what is known of flux-core 0.88."""
    return recorded.judged_source(story(name))


def known_in(judgement: Judgement) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in judgement.known:
        if each.violations:
            found[each.clause] = found.get(each.clause, 0) + len(each.violations)
    return found


# --- a trace that begins late


LATE: Final = ("begun-late.trace.gz", "begun-late.monitor.trace.gz")


@pytest.mark.parametrize("name", LATE)
def test_who_is_started_is_the_execution_service_though_its_hello_was_before(name: str) -> None:
    """RFC 32: `check` says what the monitor said of the same messages."""
    judgement = judged(name)
    assert judgement.violations == ()
    assert known_in(judgement) == {"32.start.20": 5}
    kept = [id_ for id_, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT]
    assert sum(id_.startswith("32.") for id_ in kept) >= 31


@pytest.mark.parametrize("name", LATE)
def test_the_trace_is_not_said_to_lack_what_it_has(name: str) -> None:
    """There are five releases in it."""
    verdicts = judged(name).verdicts
    released = [id_ for id_, each in load_clauses().items() if each.trigger == "release response"]
    assert {id_: verdicts[id_] for id_ in released} == {
        "32.start.20": Verdict.KNOWN,
        "32.start.21": Verdict.KEPT,
        "32.start.23": Verdict.KEPT,
    }


# --- two statuses of one job


def test_a_second_finish_is_of_the_execution_service() -> None:
    """32.start.37, and not 32.start.30: the job manager logs what it was told."""
    judgement = judged("backfill.trace.gz")
    assert judgement.violations == ()
    assert known_in(judgement) == {"32.start.20": 7, "32.start.37": 4}


# --- a job manager that is loaded again


def test_what_a_new_job_manager_stores_before_anybody_follows_it_has_happened() -> None:
    """21.criteria.7: flux-restart and priority of a held job are in its first commit."""
    name = "job-manager-reloaded.trace.gz"
    assert judged(name).violations == ()
    restarts = [
        (record.n, message.topic)
        for record in story(name).records
        if (message := record.message) is not None and message.topic == "job-manager.sched-hello"
    ]
    assert restarts, "the scheduler has said hello to the new one"


# --- a journal that lags


def printed(t: float, head: str, payload: object) -> str:
    """A message as `flux module trace --full` prints it, `t` seconds after noon."""
    text = msgspec.json.format(msgspec.json.encode(payload), indent=1).decode()
    return f"2026-08-18T12:00:{t:06.3f} {head}\n{text}\n"


NOON: Final = 1787054400.0  # of the day in `printed`
JOB: Final = 7


def told(t: float, name: str, posted: float, **context: Any) -> str:
    event = {"timestamp": NOON + posted, "name": name, "context": context}
    head = "job-manager tx < job-manager.events-journal [9] success"
    return printed(t, head, {"id": JOB, "events": [event]})


def judged_text(text: str) -> Judgement:
    return recorded.judged_source(read_trace(text.splitlines(keepends=True)), at_rest=True)


def lagging(name: str, lag: float) -> str:
    """A trace in which the followers of the journal are told so many seconds later."""
    messages: list[list[str]] = []
    for line in recorded.module_trace(name).splitlines(keepends=True):
        if line.startswith("2026-"):
            messages.append([])
        messages[-1].append(line)

    def told_at(message: list[str]) -> datetime:
        date, _, rest = message[0].partition(" ")
        is_journal = "job-manager tx < job-manager.events-journal" in rest
        return datetime.fromisoformat(date) + timedelta(seconds=lag * is_journal)

    late = sorted(((told_at(each), each) for each in messages), key=lambda each: each[0])
    return "".join(
        f"{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond // 1000:03} {head.partition(' ')[2]}{''.join(rest)}"
        for t, (head, *rest) in late
    )


@pytest.mark.parametrize("lag", [0.015, 0.1, 0.8])
def test_an_event_is_before_what_it_caused_however_late_it_is_told(lag: float) -> None:
    """27.free.1, 27.success.6 and others: of a busy machine, free is told long after sched.free."""
    judgement = judged_text(lagging("live.sched-simple.trace", lag))
    assert judgement.violations == ()
    assert judgement.debts == ()
    assert judgement.verdicts["27.free.1"] is Verdict.KEPT


def answers_after_it_ended(count: int) -> set[str]:
    """The broken clauses when job-exec ends with one commit open, and gets so many answers."""
    text = printed(1.0, "job-exec tx > module.status [9]", {"status": 1})
    text += printed(1.2, "job-exec tx > job-manager.exec-hello [9]", {"service": "job-exec"})
    text += printed(2.0, "job-exec tx > kvs.commit [9]", {"namespace": "primary"})
    text += printed(3.0, "job-exec tx > module.status [9]", {"status": 3})
    for number in range(count):
        text += printed(3.0, "job-exec rx < kvs.commit [9] success", {"rootseq": number})
    return {each.clause for each in judged_text(text).violations}


def test_an_answer_may_come_when_a_module_has_just_ended() -> None:
    """6.request.1: the broker gives it what was on its way, but not more than it had asked."""
    assert "6.request.1" not in answers_after_it_ended(1)
    assert "6.request.1" in answers_after_it_ended(2)


@pytest.mark.parametrize("is_open", [True, False])
def test_an_answer_to_a_module_that_has_gone_is_received_by_nobody(is_open: bool) -> None:
    """6.request.1: the service had begun with it; the trace does not show to whom it is."""
    text = printed(0.7, "resource tx > module.status [9]", {"status": 1})
    text += printed(0.8, "kvs tx > module.status [9]", {"status": 1})
    text += printed(0.9, "resource rx > resource.acquire [9]", {})  # by a client, as the next
    text += printed(1.0, "kvs rx > kvs.commit [9]", {"namespace": "primary"})
    text += printed(1.1, "kvs tx < kvs.commit [9] success", {"rootseq": 1})
    text += printed(1.2, "job-exec tx > module.status [9]", {"status": 1})
    text += printed(1.3, "job-exec tx > kvs.commit [9]", {"namespace": "primary"})
    text += printed(1.3, "kvs rx > kvs.commit [9]", {"namespace": "primary"})
    if not is_open:
        text += printed(1.4, "kvs tx < kvs.commit [9] success", {"rootseq": 2})
        text += printed(1.4, "job-exec rx < kvs.commit [9] success", {"rootseq": 2})
    text += printed(5.0, "job-exec tx > module.status [9]", {"status": 3})
    text += printed(5.0, "kvs rx > kvs.disconnect [0]", {})
    text += printed(8.0, "kvs tx < kvs.commit [9] success", {"rootseq": 3})
    found = {each.clause for each in judged_text(text).violations}
    assert ("6.request.1" in found) != is_open


# --- streams, and configurations


def test_a_list_is_a_stream_also_of_a_client_whose_beginning_the_trace_has() -> None:
    """6.request.1: each job that is listed is a response."""
    text = printed(0.0, "sched-trio tx > resource.acquire [0]", {})
    text += printed(0.0, "sched-trio tx > job-manager.sched-hello [0]", {})
    text += printed(0.1, "job-list rx > job-list.list [9]", {"max_entries": 0})
    for jobid in range(3):
        answer = {"jobs": [{"id": jobid}]}
        text += printed(0.2, "job-list tx < job-list.list [9] success", answer)
    broken = [each for each in judged_text(text).violations if "job-list" in each.text]
    assert broken == []


def test_what_flux_core_reloads_is_the_whole_configuration() -> None:
    """33.validation.1: the queue is in the configuration that the job manager has taken."""
    config = {"queues": {"a": {}, "b": {}}, "access": {}}
    text = printed(0.0, "job-manager rx > job-manager.config-reload [9]", config)
    text += "2026-08-18T12:00:00.000 job-manager tx < job-manager.config-reload [0] success\n"
    jobspec = {"attributes": {"system": {"queue": "a", "duration": 0}}, "resources": []}
    data = base64.b64encode(msgspec.json.encode(jobspec)).decode()
    key = f"{job_key(JOB, 'jobspec')}"
    ops = [{"key": key, "flags": 0, "dirent": {"ver": 1, "type": "val", "data": data}}]
    commit = {"namespace": "primary", "flags": 0, "ops": ops}
    text += printed(0.1, "job-ingest tx > kvs.commit [9]", commit)
    submit = {"jobs": [{"id": JOB, "userid": 0, "urgency": 16, "t_submit": NOON}]}
    text += printed(0.2, "job-ingest tx > job-manager.submit [9]", submit)
    text += printed(0.2, "job-manager rx > job-manager.submit [9]", submit)
    text += told(0.3, "submit", 0.2, userid=0, urgency=16, flags=0) + told(0.3, "validate", 0.3)
    judgement = judged_text(text)
    assert "33.validation.1" not in {each.clause for each in judgement.violations}


# --- what is asked when one joins


JOINED: Final = "begun-late.monitor.trace.gz"


def test_the_inventory_that_a_monitor_asks_for_is_what_the_scheduler_has() -> None:
    """RFC 28: it had acquired it before the trace."""
    verdicts = judged(JOINED).verdicts.items()
    kept = [id_ for id_, verdict in verdicts if verdict is Verdict.KEPT and id_.startswith("28.")]
    assert len(kept) >= 12


def test_a_grant_on_a_node_that_was_down_then_is_named() -> None:
    """28.offline.3: rank 3 was not up when the monitor joined."""
    text = "".join(lines_of(JOINED))
    assert '"online": "0-3"' in text
    down = text.replace('"online": "0-3"', '"online": "0-2"', 1)
    assert "28.offline.3" in {each.clause for each in judged_text(down).violations}
