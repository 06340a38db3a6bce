"""What `flux module trace` of flux-core prints, as records."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from flux_trio.formats import FormatError
from flux_trio.messages import Event, Request, Response
from flux_trio.trace import Record, Shown, read_trace

DATA = Path(__file__).parents[1] / "data" / "module-traces"
DAY = "2026-08-18T12:00:"
T = 1787054400.0  # 2026-08-18T12:00 UTC


def read(text: str) -> list[Record]:
    return list(read_trace(text.splitlines(keepends=True)).records)


def failure(text: str) -> str:
    with pytest.raises(FormatError) as caught:
        read(text)
    return str(caught.value)


def passed(records: list[Record]) -> list[tuple[str, str, str]]:
    """Sender, receiver and topic of each message, and the name of each event."""
    return [
        (each.party, each.peer, getattr(each.message, "topic", ""))
        if each.data is None
        else (each.party, "", str(each.data["name"]))
        for each in records
        if each.kind != "recv"
    ]


PRINTED = """\
2026-08-18T12:00:00.100 sched-simple tx > resource.acquire [0]
2026-08-18T12:00:00.100     resource rx > resource.acquire [0]
2026-08-18T12:00:00.250     resource tx < resource.acquire [1.2001953K] success
{
 "up": "0-1"
}
2026-08-18T12:00:00.250 sched-simple rx < resource.acquire [1.2001953K] success
{
 "up": "0-1"
}
2026-08-18T12:00:01.000 sched-simple rx > sched.alloc [8]
{
 "id": 1
}
2026-08-18T12:00:02.000 sched-simple tx < sched.alloc [0] EPROTO
cannot read
2026-08-18T12:00:02.000 sched-simple tx c  [0]
2026-08-18T12:00:03.000 sched-simple rx e heartbeat.pulse [0]
2026-08-18T12:00:03.000     resource rx e heartbeat.pulse [0]
"""


def test_each_message_comes_once() -> None:
    source = read_trace(PRINTED.splitlines(keepends=True))
    assert (source.form, source.begins) == ("flux module trace", False)
    assert source.shown == Shown(crossings=False, headers=False, events=False)
    acquire = Request("resource.acquire", routes=("sched-simple",))
    up = Response("resource.acquire", {"up": "0-1"}, routes=("sched-simple",))
    alloc = Request("sched.alloc", {"id": 1}, routes=("job-manager",))
    wrong = Response("sched.alloc", "cannot read", 71, routes=("job-manager",))
    pulse = Event("heartbeat.pulse")
    assert list(source.records) == [
        Record(1, T + 0.1, "send", "sched-simple", "resource", 0, acquire),
        Record(2, T + 0.1, "recv", "resource", "sched-simple", 1, acquire),
        Record(3, T + 0.25, "send", "resource", "sched-simple", 0, up),
        Record(4, T + 0.25, "recv", "sched-simple", "resource", 3, up),
        Record(5, T + 1.0, "send", "job-manager", "sched-simple", 0, alloc),
        Record(6, T + 1.0, "recv", "sched-simple", "job-manager", 5, alloc),
        Record(7, T + 2.0, "send", "sched-simple", "job-manager", 0, wrong),
        Record(8, T + 2.0, "recv", "job-manager", "sched-simple", 7, wrong),
        Record(9, T + 3.0, "send", "broker", "", 0, pulse),
        Record(10, T + 3.0, "recv", "sched-simple", "broker", 9, pulse),
        Record(11, T + 3.0, "recv", "resource", "broker", 9, pulse),
    ]


def test_message_is_one_also_if_others_pass_before_it_is_taken_up() -> None:
    """As in a trace of flux-trio, whose modules take messages up when they begin a turn."""
    lines = (
        "job-manager tx > a.b [0]",
        "sched-simple tx > resource.acquire [0]",
        "job-manager tx > sched.free [0]",
        "job-manager tx > sched.free [0]",
        "sched-simple tx > c.d [0]",
        "sched-simple rx > sched.free [0]",
        "sched-simple rx > sched.free [0]",
        "sched-simple rx > sched.free [0]",
    )
    learned = ("job-manager tx > sched.alloc [0]", "sched-simple rx > sched.alloc [0]")
    text = "".join(f"{DAY}00.100 {line}\n" for line in (*learned, *lines))
    topics = [topic for *_, topic in passed(read(text))]
    assert topics.count("sched.free") == 3, "two that were sent, and one of a sender unknown"


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        ("", "broker"),
        ("No service matching sched.alloc is registered\n", "broker"),
        ("no method nosuch in service sched\n", "client"),
    ],
)
def test_broker_answers_for_a_program_that_has_gone(text: str, sender: str) -> None:
    lines = (
        "job-manager rx > job-manager.sched-hello [0]",
        "job-manager tx > sched.alloc [0]",
        "job-manager rx < sched.alloc [0] ENOSYS",
    )
    first = f"{DAY}00.100 job-manager tx > a.b [0]\n"
    trace = first + "".join(f"{DAY}00.200 {line}\n" for line in lines) + text
    answer = next(
        each for each in read(trace) if each.kind == "send" and isinstance(each.message, Response)
    )
    assert answer.party == sender


def event(name: str, *more: str) -> str:
    events = ",".join(f'{{"timestamp": 1787054401.0, "name": "{each}"}}' for each in (name, *more))
    head = f"{DAY}01.000 job-manager tx < job-manager.events-journal [80] success\n"
    return f'{head}{{\n"id": 5,\n"events": [{events}]\n}}\n'


def test_events_of_jobs_are_found_in_the_journal_once() -> None:
    source = read_trace((event("submit") * 2 + event("annotations")).splitlines(keepends=True))
    assert source.shown.events
    assert [r.data for r in source.records if r.kind == "event"] == [
        {"id": 5, "name": "submit", "context": {}}
    ]


def test_past_that_a_new_follower_of_the_journal_is_told_has_no_events() -> None:
    text = event("submit", "validate") + event("alloc")
    assert [r.data["name"] for r in read(text) if r.data] == ["alloc"]


def told(second: int, *events: tuple[str, float], jobid: int = 5) -> str:
    """What the journal tells of a job, with events by name and second."""
    found = ",".join(f'{{"timestamp": {T + t}, "name": "{name}"}}' for name, t in events)
    head = f"{DAY}{second:02}.000 job-manager tx < job-manager.events-journal [80] success\n"
    return f'{head}{{\n"id": {jobid},\n"events": [{found}]\n}}\n'


def test_events_while_nobody_followed_are_those_that_the_next_follower_is_told() -> None:
    """A follower, such as job-list, goes, and the journal tells the next one of all that was."""
    gone = f"{DAY}05.000 job-manager rx > job-manager.disconnect [0]\n"
    past = (("submit", 2.0), ("alloc", 4.0), ("start", 6.0))
    text = told(2, past[0]) + told(4, past[1]) + gone + told(7, *past) + told(7, jobid=-1)
    text += told(8, ("finish", 8.0)) + told(9, *past, ("never told", 7.5), ("finish", 8.0))
    names = [r.data["name"] for r in read(text) if r.data]
    assert names == ["submit", "alloc", "start", "finish"]


def stored(second: int, name: str, t: float) -> str:
    """The job manager stores an event of the job 5 in its eventlog."""
    line = f'{{"timestamp":{T + t},"name":"{name}"}}\n'
    dirent = {"ver": 1, "type": "val", "data": base64.b64encode(line.encode()).decode()}
    op = {"key": "job.0000.0000.0000.0005.eventlog", "flags": 32, "dirent": dirent}
    commit = {"namespace": "primary", "flags": 0, "ops": [op]}
    head = f"{DAY}{second:02}.000 job-manager tx > kvs.commit [80]\n"
    return f"{head}{json.dumps(commit, indent=1)}\n"


def test_events_that_are_stored_while_nobody_follows_have_their_place() -> None:
    """A job finishes while nobody follows; the next job manager, in its own life, frees it."""
    gone = f"{DAY}03.000 job-manager rx > job-manager.disconnect [0]\n"
    ended = f"{DAY}05.000 job-manager tx > module.status [24]\n{{\n" + ' "status": 3\n}\n'
    past = (("submit", 2.0), ("finish", 4.0), ("free", 6.0), ("clean", 6.0))
    text = told(2, past[0]) + stored(2, *past[0]) + gone + stored(4, *past[1]) + ended
    text += stored(6, *past[2]) + stored(6, *past[3]) + told(7, *past) + told(7, jobid=-1)
    names = [r.data["name"] for r in read(text) if r.data]
    assert names == ["submit", "finish", "free", "clean"]


def test_event_stands_before_what_the_job_manager_sent_because_of_it() -> None:
    """flux-core acts on an event first, then it tells the followers of the journal."""
    released = f'{DAY}01.000 job-manager rx < job-exec.start [9] success\n{{\n "id": 5\n}}\n'
    freed = f'{DAY}01.000 job-manager tx > sched.free [9]\n{{\n "id": 5\n}}\n'
    of_another = f'{DAY}01.000 job-manager tx > sched.free [9]\n{{\n "id": 6\n}}\n'
    stored = f"{DAY}01.000 job-manager rx < kvs.commit [0] success\n"
    text = event("start") + freed + released + of_another + freed + stored + event("free")
    journal = "job-manager.events-journal"
    assert [topic for *_, topic in passed(read(text))] == [
        *("start", journal, "sched.free", "job-exec.start", "sched.free"),
        *("free", "sched.free", "kvs.commit", journal),
    ]


def test_disconnect_is_of_the_module_that_said_that_it_ends() -> None:
    gone = f"{DAY}01.000 sched-simple tx > module.status [24]\n{{\n" + ' "status": 3\n}\n'
    client = f"{DAY}00.900 job-manager rx > job-manager.disconnect [0]\n"
    rest = f"{DAY}01.100 resource rx > resource.disconnect [0]\n" + client
    asked = f"{DAY}00.500 job-manager tx > sched.alloc [0]\n"
    senders = [
        (r.message.topic, r.message.sender)
        for r in read(asked + client + gone + rest + client)
        if isinstance(r.message, Request) and r.kind == "recv" and r.peer == "broker"
    ]
    assert senders == [
        ("job-manager.disconnect", "broker"),
        ("resource.disconnect", "sched-simple"),
        ("job-manager.disconnect", "sched-simple"),
        ("job-manager.disconnect", "broker"),
    ]


def test_disconnect_that_the_connector_sends_is_not_of_a_module_that_has_ended() -> None:
    """6.request.1: what this module asks, when it is loaded again, is answered."""
    asked = f"{DAY}00.500 job-exec tx > kvs.commit [0]\n"
    gone = f"{DAY}01.000 job-exec tx > module.status [24]\n{{\n" + ' "status": 3\n}\n'
    client = f"{DAY}02.000 connector-local tx > kvs.disconnect [0]\n"
    taken = f"{DAY}02.000 kvs rx > kvs.disconnect [0]\n"
    senders = [
        r.message.sender
        for r in read(asked + gone + client + taken + taken)
        if isinstance(r.message, Request) and r.kind == "send" and r.peer == "kvs"
    ]
    assert senders == ["job-exec", "broker", "job-exec"]


def test_disconnect_after_a_module_is_loaded_again_is_not_of_its_last_life() -> None:
    """27.background.2, 32.start.30: a service that was not there has got no disconnect."""
    asked = f"{DAY}00.500 job-manager tx > job-exec.start [0]\n"
    gone = f"{DAY}01.000 job-manager tx > module.status [24]\n{{\n" + ' "status": 3\n}\n'
    back = f"{DAY}02.000 job-manager tx > module.status [24]\n{{\n" + ' "status": 1\n}\n'
    client = f"{DAY}03.000 job-exec rx > job-exec.disconnect [0]\n"
    senders = [
        r.message.sender
        for r in read(asked + gone + back + client)
        if isinstance(r.message, Request) and r.kind == "send" and r.peer == "job-exec"
    ]
    assert senders == ["job-manager", "broker"]


def test_answers_of_the_kvs_are_those_of_the_requests_in_order() -> None:
    asked = "sched-simple tx > kvs.commit [0]\n"
    told = "sched-simple rx < kvs.commit [0] success\n"
    text = "".join(f"{DAY}00.100 {line}" for line in (asked, asked, told, asked, told))
    tags = [r.message.matchtag for r in read(text) if r.message and r.kind == "send"]  # type: ignore[union-attr] # requests and responses
    assert tags == [1, 2, 1, 3, 2]


def test_what_the_connector_passes_on_is_of_clients() -> None:
    """It leaves open whose disconnect it is: the connector itself has not gone."""
    text = "".join(
        f"{DAY}00.100 {line} [0]\n"
        for line in (
            "connector-local tx > kvs.commit",
            "kvs rx > kvs.commit",
            "connector-local tx > kvs.disconnect",
            "kvs rx > kvs.disconnect",
        )
    )
    assert passed(read(text)) == [
        ("client", "kvs", "kvs.commit"),
        ("broker", "kvs", "kvs.disconnect"),
    ]


def test_request_whose_sending_is_before_the_trace_is_left_out() -> None:
    """Nobody can tell who has sent it."""
    _, half, rest = PRINTED.split("\n", 2)
    assert passed(read(f"{half}\n{rest}"))[0] == ("resource", "sched-simple", "resource.acquire")


def test_line_that_is_not_understood_is_named() -> None:
    broken = PRINTED.replace('"up": "0-1"', '"up": "0-1')
    assert failure(broken).startswith("line 4: expected a JSON object, or the next message, got")
    assert failure(PRINTED.replace("EPROTO", "EODD")) == (
        'line 15: expected success or the name of an error, got "EODD"'
    )


@pytest.mark.parametrize("changed", ["[Aug18 12:00]  ", "\x1b[1m\x1b[32m[Aug18 12:00]\x1b[0m  "])
def test_what_human_and_color_print_is_refused_by_name(changed: str) -> None:
    text = f"{changed}sched-simple tx > resource.acquire [0]\n"
    assert failure(text).startswith(
        "line 1: expected `flux module trace --full` without --human and --color, got "
    )


def test_gap_is_an_error() -> None:
    """What is missing there would make false accusations."""
    gap = "(5 messages are missing here: they came too fast)\n"
    assert failure(PRINTED + gap + PRINTED) == (
        f'line 20: expected a trace without gaps, got "{gap.rstrip()}"'
    )


def test_last_message_that_was_cut_is_left_out() -> None:
    whole, last = read(PRINTED), f'{DAY}04.000 sched-simple rx > sched.free [8]\n{{\n "id": 1\n}}\n'
    for end in range(1, len(last)):
        cut: list[int] = []
        lines = (PRINTED + last[:-end]).splitlines(keepends=True)
        assert list(read_trace(lines, cut=cut.append).records) == whole
        assert cut == [19 + len(last[:-end].splitlines())]
    assert len(read(PRINTED + last)) == len(whole) + 2


def test_trace_without_payloads_says_so() -> None:
    lines = [line for line in PRINTED.splitlines(keepends=True) if line[0] in "2"]
    source = read_trace(lines)
    assert not source.shown.payloads
    assert {each.kind for each in source.records} == {"send", "recv"}


@pytest.mark.parametrize("name", ["live.sched-simple.trace", "live.sched-fifo.trace"])
def test_trace_of_flux_core_has_each_message_of_its_modules(name: str) -> None:
    text = (DATA / name).read_text()
    heads = [line.split() for line in text.splitlines() if line.startswith("2026-")]
    records = read(text)
    for module in ("job-manager", "job-exec", "resource"):
        sent = sum(head[1:3] == [module, "tx"] for head in heads)
        assert sent == sum(each.kind == "send" and each.party == module for each in records)
    assert {each.party for each in records if each.kind == "event"} == {"job-manager"}


def test_answer_that_no_traced_module_takes_is_of_another_client() -> None:
    """job-info asks itself; what it answers then is for the program that had asked before."""
    steps = ["rx > 1", "tx > 2", "rx > 2", "tx < 1", "tx < 2", "rx < 2"]
    text = ""
    for t, (end, way, jobid) in enumerate(map(str.split, steps)):
        success = " success" if way == "<" else ""
        text += (
            f"2026-08-18T12:00:{t // 2:02}.000 job-info {end} {way} job-info.lookup [9]{success}\n"
        )
        text += f'{{\n "id": {jobid}\n}}\n'
    first = "2026-08-18T12:00:00.000 resource tx e heartbeat.pulse [0]\n"
    answers = [each for each in read(first + text) if isinstance(each.message, Response)]
    assert [each.peer for each in answers if each.kind == "send"] == ["client", "job-info"]


@pytest.mark.parametrize(
    ("steps", "known"),
    [
        ([">1", "<1", ">2", "<2"], [True, True]),
        ([">1", ">2", "<2", "<1", ">3", "<3"], [False, False, True]),
    ],
)
def test_answer_has_its_request_if_it_can_be_no_other(steps: list[str], known: list[bool]) -> None:
    """An update that asks the scheduler is answered after one that does not."""
    lines = []
    for t, (way, jobid) in enumerate(steps):
        line = f"2026-08-18T12:00:{t:02}.000 job-manager {'rx' if way == '>' else 'tx'} {way}"
        body = f'{{\n "id": {jobid}\n}}\n' if way == ">" else ""
        lines.append(
            f"{line} job-manager.update [{len(body)}]{' success' if way == '<' else ''}\n{body}"
        )
    records = read("2026-08-18T12:00:00.000 resource tx e heartbeat.pulse [0]\n" + "".join(lines))
    sent = [each.message for each in records if each.kind == "send"]
    answers = [each.matchtag for each in sent if isinstance(each, Response)]
    assert [matchtag != 0 for matchtag in answers] == known
    asked = {each.matchtag for each in sent if isinstance(each, Request)}
    assert {matchtag for matchtag in answers if matchtag} <= asked
