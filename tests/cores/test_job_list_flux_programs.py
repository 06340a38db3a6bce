"""job-list and job-info as Flux's own programs ask them: attrs, constraint, flags."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_list.constraint import NODES_MAX, parse_constraint
from flux_trio.cores.stored_jobs import PIECE_CHARS, output_key
from flux_trio.formats import (
    Event,
    ResourceSet,
    format_event,
    format_eventlog,
    job_key,
    parse_event,
)
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.counting import count_steps
from tests.support.eventlogs import ending, inactive, pending, running
from tests.support.listing import ListedJobs

WATCH = "job-info.eventlog-watch"
ENV = {"PATH": "/bin", "SECRET": "1"}


@pytest.fixture
def listed() -> ListedJobs:
    """Job 1 is pending, 2 runs, 3 is over."""
    listed = ListedJobs()
    listed.store_log(1, pending(userid=7))
    listed.store_log(2, running())
    listed.store_log(3, inactive())
    for jobid in (1, 2, 3):
        listed.store_jobspec(jobid, "sleep", str(jobid))
    listed.start()
    return listed


def ids(listed: ListedJobs, constraint: Any = None, **more: Any) -> list[int]:
    payload = {"max_entries": 0, "attrs": [], **more}
    if constraint is not None:
        payload["constraint"] = constraint
    *pages, end = listed.ask("job-list.list", payload, streaming=True)
    assert end == (Errno.ENODATA, None)
    return [job["id"] for _, page in pages for job in page["jobs"]]


def test_without_a_constraint_all_jobs_are_listed(listed: ListedJobs) -> None:
    assert ids(listed) == [1, 2, 3]
    assert ids(listed, max_entries=2) == [1, 2]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"and": []}, [1, 2, 3]),
        ({"or": []}, [1, 2, 3]),
        ({"not": [{"states": ["pending"]}]}, [2, 3]),
        ({"states": [62]}, [1, 2]),
        ({"states": ["inactive", 8]}, [1, 3]),
        ({"userid": [7]}, [1]),
        ({"userid": [-1]}, [1, 2, 3]),
        ({"and": [{"userid": [7]}, {"states": ["running"]}]}, []),
        ({"or": [{"userid": [7]}, {"states": ["run"]}]}, [1, 2]),
        ({"results": ["completed"]}, [3]),
        ({"results": [2]}, []),
        ({"name": ["sleep"]}, [1, 2, 3]),
        ({"name": ["other"]}, []),
        ({"queue": ["batch"]}, []),
        ({"t_run": [">0"]}, [2, 3]),
        ({"t_inactive": [">=0.0"]}, [3]),
        ({"t_submit": ["<1"]}, []),
    ],
)
def test_a_constraint_says_which_jobs(
    listed: ListedJobs, constraint: Any, expected: list[int]
) -> None:
    assert ids(listed, constraint) == expected


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        ({"states": 0, "results": 0}, [1, 2, 3]),
        ({"states": 62, "results": 0}, [1, 2]),
        ({"states": 64, "results": 0}, [3]),
        ({"states": 0, "results": 1}, [3]),
        ({"states": 64, "results": 2}, []),
        ({"states": 0, "results": 0, "userid": 7}, [1]),
        ({"states": 0, "results": 0, "name": "sleep"}, [1, 2, 3]),
        ({"states": 0, "results": 0, "name": "other"}, []),
        ({"states": 0, "results": 0, "queue": "batch"}, []),
        ({"states": 0, "results": 0, "since": 1e12}, [1, 2]),
    ],
)
def test_older_programs_say_it_in_keys(
    listed: ListedJobs, asked_for: dict[str, Any], expected: list[int]
) -> None:
    assert ids(listed, **{"userid": 4294967295, **asked_for}) == expected


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        ({"foo": [1]}, "unknown constraint operator: foo"),
        ({"userid": 7}, "operator userid values not an array"),
        ({"userid": ["me"]}, "userid value must be an integer"),
        ({"and": [{"name": [1]}]}, "name value must be a string"),
        ({"and": [], "or": []}, "constraint must only contain 1 element"),
        ({"and": ["x"]}, "constraint must be JSON object"),
        ({"states": ["lost"]}, "invalid states value 'lost' specified"),
        ({"states": [4096]}, "invalid states value '1000h' specified"),
        ({"t_run": ["5"]}, "timestamp comparison operator not specified"),
        ({"t_run": [">x"]}, "Invalid timestamp value specified"),
        ({"t_run": [">=-1"]}, "timestamp value must be >= 0.0"),
        ({"ranks": ["a"]}, "ranks value 'a': "),
        ({"hostlist": ["a["]}, "host value not in valid Hostlist format"),
    ],
)
def test_a_constraint_without_meaning_is_refused_with_fluxs_text(
    listed: ListedJobs, constraint: Any, text: str
) -> None:
    payload = {"max_entries": 0, "attrs": [], "constraint": constraint}
    ((errnum, said),) = listed.ask("job-list.list", payload, streaming=True)
    assert errnum == Errno.EPROTO
    assert said.startswith(f"invalid payload: constraint object invalid: {text}")


def test_a_constraint_has_a_bound() -> None:
    deep = msgspec.json.encode({"and": [{"and": []}] * NODES_MAX}).decode()
    wide = msgspec.json.encode({"name": ["x"] * NODES_MAX}).decode()
    for text in (deep, wide):
        with pytest.raises(FluxError, match=f"at most {NODES_MAX} operators and values"):
            parse_constraint(text)


@pytest.mark.parametrize(
    ("constraint", "states"),
    [
        ({"and": [{"states": ["run"]}, {"userid": [7]}]}, JobState.RUN),
        ({"or": [{"states": ["run"]}, {"results": ["failed"]}]}, JobState.RUN | JobState.INACTIVE),
        ({"not": [{"states": ["run"]}]}, 126),
    ],
)
def test_a_list_looks_only_at_jobs_that_can_be_wanted(constraint: Any, states: int) -> None:
    assert parse_constraint(msgspec.json.encode(constraint).decode()).states == states


def test_hosts_and_ranks_are_compared_with_those_of_the_job() -> None:
    row = {"id": 1, "nodelist": "n[1-3]", "ranks": "1-3"}
    for constraint, expected in (
        ({"hostlist": ["n[3-4]"]}, True),
        ({"hostlist": ["n4"]}, False),
        ({"ranks": ["3-9"]}, True),
        ({"ranks": ["0"]}, False),
    ):
        parsed = parse_constraint(msgspec.json.encode(constraint).decode())
        assert parsed.matches(row) is expected
        assert parsed.matches({"id": 1}) is False


def test_a_row_has_what_is_asked_for_in_that_order(listed: ListedJobs) -> None:
    payload = {"max_entries": 0, "attrs": ["name", "state", "t_run"]}
    (_, first), *_ = listed.ask("job-list.list", payload, streaming=True)
    assert first["version"] == 1
    assert list(first["jobs"][0].items()) == [("id", 1), ("name", "sleep"), ("state", 8)]
    assert list(first["jobs"][1]) == ["id", "name", "state", "t_run"]
    ((_, one),) = listed.ask("job-list.list-id", {"id": 1, "attrs": ["all"]})
    assert {"t_depend", "t_priority", "t_sched", "duration"} <= one["job"].keys()
    assert "clock_step" not in one["job"]


@pytest.mark.parametrize(
    ("topic", "payload"), [("job-list.list", {"max_entries": 0}), ("job-list.list-id", {"id": 1})]
)
def test_a_key_that_no_row_has_is_named(
    listed: ListedJobs, topic: str, payload: dict[str, Any]
) -> None:
    error = (Errno.EINVAL, "colour is not a valid attribute")
    assert listed.ask(topic, {**payload, "attrs": ["name", "colour"]}) == [error]


# --- job-info


def test_flags_ask_for_objects_and_for_updates(listed: ListedJobs) -> None:
    keys = ["jobspec", "eventlog"]
    ((_, texts),) = listed.ask("job-info.lookup", {"id": 1, "keys": keys, "flags": 0})
    assert all(isinstance(texts[key], str) for key in keys)
    ((_, objects),) = listed.ask("job-info.lookup", {"id": 1, "keys": keys, "flags": 3})
    assert objects["jobspec"]["tasks"][0]["command"] == ["sleep", "1"]
    assert isinstance(objects["eventlog"], str)
    error = (Errno.EPROTO, "job-info.lookup: flags: expected 0 to 3, got 4")
    assert listed.ask("job-info.lookup", {"id": 1, "keys": keys, "flags": 4}) == [error]


def test_the_environment_is_in_j_alone(listed: ListedJobs) -> None:
    listed.store_jobspec(1, "true", environment=ENV)
    ((_, found),) = listed.ask("job-info.lookup", {"id": 1, "keys": ["jobspec", "J"], "flags": 0})
    assert "SECRET" not in found["jobspec"]
    header, signed, mechanism = found["J"].split(".")
    assert base64.b64decode(header) == b"version\0i1\0userid\0i7\0mechanism\0snone\0"
    assert msgspec.json.decode(base64.b64decode(signed)) == msgspec.json.decode(
        listed.kvs.value(job_key(1, "jobspec")) or ""
    )
    assert mechanism == "none"


def test_a_watch_with_flags_gets_lines_with_their_newline(listed: ListedJobs) -> None:
    got = listed.ask(WATCH, {"id": 3, "path": "eventlog", "flags": 0}, streaming=True)
    lines = [(0, {"event": format_event(each)}) for each in inactive()]
    assert got == [*lines, (Errno.ENODATA, None)]


def test_a_sentinel_follows_what_is_there_already(listed: ListedJobs) -> None:
    got = listed.ask(WATCH, {"id": 2, "path": "eventlog", "flags": 2}, streaming=True)
    assert got == [*((0, {"event": format_event(each)}) for each in running()), (0, None)]
    listed.commit(["append", job_key(2, "eventlog"), format_event(ending()[0])])
    ((errnum, later),) = listed.take_sent()
    assert (errnum, later["event"]) == (0, format_event(ending()[0]))


def test_a_sentinel_follows_the_whole_log_of_a_job_that_is_over(listed: ListedJobs) -> None:
    got = listed.ask(WATCH, {"id": 3, "path": "eventlog", "flags": 2}, streaming=True)
    assert [payload for _, payload in got[-2:]] == [None, None]
    assert (got[-2][0], got[-1][0]) == (0, Errno.ENODATA)


def test_a_sentinel_comes_first_if_there_is_nothing_yet(listed: ListedJobs) -> None:
    path = "guest.foobar"
    assert listed.ask(WATCH, {"id": 2, "path": path, "flags": 3}, streaming=True) == [(0, None)]
    listed.commit(["append", job_key(2, path), format_eventlog(ending()[:2])])
    events = [{"event": format_event(each)} for each in ending()[:2]]
    assert listed.take_sent() == [(0, each) for each in events]


def test_eventlogs_of_a_job_that_runs_are_waited_for(listed: ListedJobs) -> None:
    """As flux-core waits for the guest namespace, though `flags` do not say so."""
    path = "guest.exec.eventlog"
    assert listed.ask(WATCH, {"id": 2, "path": path, "flags": 0}, streaming=True, tag=5) == []
    listed.commit(["append", job_key(2, path), format_event(ending()[0])])
    ((errnum, told),) = listed.take_sent()
    assert (errnum, told["event"]) == (0, format_event(ending()[0]))


@pytest.mark.parametrize("flags", [0, 1])
def test_an_eventlog_that_a_job_has_not_written_is_an_error_if_it_ran(
    listed: ListedJobs, flags: int
) -> None:
    """Whether the job is over already, or ends meanwhile; its output may be missing."""
    path = "guest.invalid"
    missing = (Errno.ENOENT, f"{path}: key not found")
    wanted = {"path": path, "flags": flags}
    assert listed.ask(WATCH, {"id": 3, **wanted}, streaming=True, tag=5) == [missing]
    assert listed.ask(WATCH, {"id": 2, **wanted}, streaming=True, tag=6) == []
    output = {"id": 3, "path": "guest.output", "flags": flags}
    assert listed.ask(WATCH, output, streaming=True, tag=7) == [(Errno.ENODATA, None)]
    listed.commit(["append", job_key(2, "eventlog"), format_eventlog(ending())])
    listed.tell_all(2, ending(), len(running()))
    listed.go_on()
    assert listed.take_sent() == [missing]


def test_what_somebody_has_added_after_clean_is_not_of_the_job(listed: ListedJobs) -> None:
    listed.commit(["append", job_key(3, "eventlog"), format_event(Event(9e9, "foobar"))])
    got = listed.ask(WATCH, {"id": 3, "path": "eventlog", "flags": 0}, streaming=True)
    names = [msgspec.json.decode(payload["event"])["name"] for _, payload in got[:-1]]
    assert names == [each.name for each in inactive()]
    assert got[-1] == (Errno.ENODATA, None)
    (job,) = listed.ask("job-list.list-id", {"id": 3, "attrs": ["all"]})
    assert job[1]["job"]["t_inactive"] == inactive()[-1].timestamp


def test_an_eventlog_of_a_job_that_never_ran_ends_regularly(listed: ListedJobs) -> None:
    wanted = {"id": 1, "path": "guest.exec.eventlog", "flags": 1}
    assert listed.ask(WATCH, wanted, streaming=True) == []
    end = [
        Event(2000.0, "exception", {"type": "cancel", "severity": 0, "userid": 7}),
        Event(2000.0, "clean"),
    ]
    listed.tell_all(1, end, len(pending()))
    assert listed.take_sent() == [(Errno.ENODATA, None)]


@pytest.mark.parametrize("jobid", [2, 42])
def test_a_watch_is_checked_before_its_job_is_looked_for(listed: ListedJobs, jobid: int) -> None:
    ((errnum, text),) = listed.ask(
        WATCH, {"id": jobid, "path": "eventlog", "flags": 499}, streaming=True
    )
    assert (errnum, "invalid flags" in text) == (Errno.EPROTO, True)
    ((errnum, text),) = listed.ask(WATCH, {"id": jobid, "path": "eventlog", "flags": 0})
    assert (errnum, "streaming" in text) == (Errno.EPROTO, True)


def test_a_cancel_that_wants_no_answer_ends_the_stream_regularly(listed: ListedJobs) -> None:
    listed.ask(WATCH, {"id": 2, "path": "eventlog", "flags": 0}, streaming=True, tag=5)
    cancel = asked(f"{WATCH}-cancel", {"matchtag": 5}, tag=0)
    assert listed.request(msgspec.structs.replace(cancel, flags=NORESPONSE)) == [
        (Errno.ENODATA, None)
    ]


# --- output of a job that runs


def watch_output(listed: ListedJobs, flags: int = 0) -> Request:
    """Follow the output of job 2; the request to the execution service."""
    listed.now = 2000.0
    listed.exec_waits = True
    payload = {"id": 2, "path": "guest.output", "flags": flags}
    assert listed.ask(WATCH, payload, streaming=True, tag=5) == []
    (copy,) = listed.asked_exec
    assert (copy.topic, copy.payload) == ("job-exec.copy", {"id": 2})
    return copy


def output(number: int, *events: Event) -> list[str]:
    """The op by which the execution service adds to the piece of output with that number."""
    return ["append", job_key(2, output_key(number)), format_eventlog(events)]


def piece(text: str, stream: str = "stdout") -> Event:
    return Event(5.0, "data", {"stream": stream, "rank": "0", "data": text})


def told(listed: ListedJobs) -> list[tuple[str, str]]:
    """Stream and data of the events that were sent."""
    events = [msgspec.json.decode(payload["event"]) for _, payload in listed.take_sent()]
    return [(each["context"]["stream"], each["context"]["data"]) for each in events]


def test_each_line_is_an_event_and_the_beginning_of_one_waits_for_its_rest(
    listed: ListedJobs,
) -> None:
    listed.turn(respond(watch_output(listed)))
    listed.commit(output(0, piece("a\nb\nc"), piece("?", "stderr"), piece("d\n\n")))
    assert told(listed) == [
        ("stdout", "a\n"),
        ("stdout", "b\n"),
        ("stderr", "?"),
        ("stdout", "cd\n"),
        ("stdout", "\n"),
    ]
    listed.commit(output(0, piece("no end")))
    assert listed.take_sent() == []
    listed.tell_all(2, ending(), len(running()))
    listed.go_on()
    (_, last), end = listed.take_sent()
    assert msgspec.json.decode(last["event"])["context"]["data"] == "no end"
    assert end == (Errno.ENODATA, None)


@pytest.mark.parametrize("length", [1, PIECE_CHARS])
def test_a_sentinel_of_output_follows_what_was_there(listed: ListedJobs, length: int) -> None:
    copy = watch_output(listed, flags=2)
    listed.commit(output(0, piece("a" * length)), output(1, piece("b\n")))
    if length == 1:
        listed.commit(["unlink", job_key(2, output_key(1))])
    assert listed.take_sent() == []
    listed.turn(respond(copy))
    *before, sentinel = listed.take_sent()
    assert len(before) == (2 if length > 1 else 0)
    assert sentinel == (0, None)
    listed.commit(output(int(length > 1), piece("c\n")))
    assert len(told(listed)) == 1


def test_output_goes_on_in_its_next_piece(listed: ListedJobs) -> None:
    listed.turn(respond(watch_output(listed)))
    listed.commit(output(0, piece("a\n"), piece("b" * PIECE_CHARS + "\n")))
    assert len(listed.take_sent()) == 2
    listed.commit(output(1, piece("c\n")))
    assert told(listed) == [("stdout", "c\n")]
    listed.commit(output(1, piece("d\n")))
    assert told(listed) == [("stdout", "d\n")]
    listed.tell_all(2, ending(), len(running()))
    listed.go_on()
    assert listed.take_sent() == [(Errno.ENODATA, None)]


def test_without_a_buffer_no_line_waits_for_its_rest(listed: ListedJobs) -> None:
    listed.turn(respond(watch_output(listed)))
    header = Event(5.0, "header", {"version": 1, "options": {"buffer": "none"}})
    listed.commit(output(0, header, piece("prompt:")))
    (_, prompt) = listed.take_sent()
    assert msgspec.json.decode(prompt[1]["event"])["context"]["data"] == "prompt:"


def test_a_note_comes_after_the_line_that_was_begun(listed: ListedJobs) -> None:
    listed.turn(respond(watch_output(listed)))
    listed.commit(output(0, piece("a"), Event(5.0, "log", {"level": 4, "message": "beware"})))
    names = [msgspec.json.decode(payload["event"])["name"] for _, payload in listed.take_sent()]
    assert names == ["data", "log"]


@pytest.mark.parametrize("is_answered", [False, True])
def test_output_that_nobody_can_tell_of_is_read_when_the_job_is_over(
    listed: ListedJobs, is_answered: bool
) -> None:
    copy = watch_output(listed)
    if is_answered:
        listed.turn(respond_error(copy, Errno.ENOSYS, "gone"))
    listed.tell_all(2, [Event(5.0, "memo", {"a": 1})], len(running()))
    assert listed.take_sent() == []
    line = format_event(piece("late\n"))
    listed.commit(["put", job_key(2, "guest.output"), line])
    listed.tell_all(2, ending(), len(running()) + 1)
    assert listed.take_sent() == [(0, {"event": line}), (Errno.ENODATA, None)]
    listed.turn(respond(copy))  # it comes too late
    assert listed.take_sent() == []


def test_who_has_enough_output_is_forgotten(listed: ListedJobs) -> None:
    copy = watch_output(listed)
    listed.request(asked(f"{WATCH}-cancel", {"matchtag": 5}))
    listed.turn(respond(copy))
    listed.commit(output(0, piece("a\n")))
    assert listed.take_sent() == []


def test_stored_output_comes_line_by_line_too(listed: ListedJobs) -> None:
    events = [
        Event(5.0, "header", {"version": 1}),
        Event(5.0, "data", {"stream": "stdout", "rank": "0", "data": "a\nb"}),
        Event(
            6.0, "data", {"stream": "stdout", "rank": "1", "data": "/woK/w==", "encoding": "base64"}
        ),
        Event(6.0, "data", {"stream": "stdout", "rank": "0", "data": "c\n"}),
        Event(7.0, "data", {"stream": "stdout", "rank": "0-1", "eof": True}),
    ]
    listed.commit(["put", job_key(3, "guest.output"), format_eventlog(events)])
    got = listed.ask(WATCH, {"id": 3, "path": "guest.output", "flags": 0}, streaming=True)
    told = [parse_event(each["event"]) for _, each in got[:-1]]
    assert [each.context or {} for each in told[1:]] == [
        {"stream": "stdout", "rank": "0", "data": "a\n"},
        {"stream": "stdout", "rank": "1", "data": "/wo=", "encoding": "base64"},
        {"stream": "stdout", "rank": "1", "data": "\n"},
        {"stream": "stdout", "rank": "0", "data": "bc\n"},
        {"stream": "stdout", "rank": "1", "data": "/w==", "encoding": "base64"},
        {"stream": "stdout", "rank": "0-1", "eof": True},
    ]
    assert [each.timestamp for each in told] == [5.0, 5.0, 6.0, 6.0, 6.0, 7.0, 7.0]


# --- changes of jobs

UPDATES = "job-info.update-watch"
R2 = ResourceSet.build([(0, 1, 0)], lambda rank: "node0")


def expirations(answers: list[tuple[int, Any]]) -> list[float]:
    return [payload["R"]["execution"]["expiration"] for errnum, payload in answers if not errnum]


def test_updates_of_r_are_told_until_the_job_is_over(listed: ListedJobs) -> None:
    listed.store(2, "R", R2.to_json())
    first = listed.ask(UPDATES, {"id": 2, "key": "R", "flags": 0}, streaming=True, tag=9)
    assert first == [(0, {"R": R2.to_json()})]
    place = len(running())
    listed.tell((2, place, Event(7.0, "resource-update", {"expiration": 50.0})))
    assert expirations(listed.take_sent()) == [50.0]
    listed.tell((2, place + 1, Event(7.0, "memo", {"a": 1})))
    assert listed.take_sent() == []
    listed.tell_all(2, ending(), place + 2)
    assert listed.take_sent() == [(Errno.ENODATA, None)]


def test_updates_of_a_finished_job_are_told_once(listed: ListedJobs) -> None:
    listed.store(3, "R", R2.to_json())
    answers = listed.ask(UPDATES, {"id": 3, "key": "R", "flags": 0}, streaming=True)
    assert answers == [(0, {"R": R2.to_json()}), (Errno.ENODATA, None)]


def test_updates_end_by_a_cancel(listed: ListedJobs) -> None:
    wanted = {"id": 1, "key": "jobspec", "flags": 0}
    ((errnum, found),) = listed.ask(UPDATES, wanted, streaming=True, tag=9)
    assert (errnum, found["jobspec"]["tasks"][0]["command"]) == (0, ["sleep", "1"])
    cancel = asked(f"{UPDATES}-cancel", {"matchtag": 9}, tag=0)
    answers = listed.request(msgspec.structs.replace(cancel, flags=NORESPONSE))
    assert answers == [(Errno.ENODATA, None)]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"id": 1, "key": "R", "flags": 1}, Errno.EPROTO),
        ({"id": 1, "key": "J", "flags": 0}, Errno.EINVAL),
        ({"id": 1, "key": "R", "flags": 0}, Errno.ENOENT),
        ({"id": 9, "key": "R", "flags": 0}, Errno.ENOENT),
        ({"id": 1, "flags": 0}, Errno.EPROTO),
    ],
)
def test_updates_that_cannot_be_told_are_refused(
    listed: ListedJobs, payload: Any, error: int
) -> None:
    ((errnum, _),) = listed.ask(UPDATES, payload, streaming=True)
    assert errnum == error


def test_a_job_is_told_when_it_has_been_in_a_state(listed: ListedJobs) -> None:
    wanted = {"id": 1, "attrs": ["state"], "state": int(JobState.RUN)}
    assert listed.ask("job-list.list-id", wanted) == []
    listed.tell_all(1, running()[len(pending()) :], len(pending()))
    assert listed.take_sent() == [(0, {"job": {"id": 1, "state": int(JobState.RUN)}})]
    again = {**wanted, "state": int(JobState.SCHED)}  # it has been there
    assert listed.ask("job-list.list-id", again) == [
        (0, {"job": {"id": 1, "state": int(JobState.RUN)}})
    ]


def test_a_job_that_is_over_without_that_state_is_told(listed: ListedJobs) -> None:
    wanted = {"id": 1, "attrs": ["state"], "state": int(JobState.RUN)}
    assert listed.ask("job-list.list-id", wanted) == []
    raised = Event(3.0, "exception", {"type": "cancel", "severity": 0, "note": ""})
    listed.tell_all(1, [raised, Event(3.0, "clean")], len(pending()))
    ((errnum, found),) = listed.take_sent()
    assert (errnum, found["job"]["state"]) == (0, int(JobState.INACTIVE))


def test_an_event_costs_no_more_for_those_who_wait_for_other_jobs() -> None:
    def cost(number: int) -> int:
        listed = ListedJobs()
        for jobid in (1, 2):
            listed.store_log(jobid, pending(userid=7))
            listed.store_jobspec(jobid, "true")
        listed.start()
        of_job_2 = {"id": 2, "attrs": ["state"], "state": int(JobState.RUN)}
        updates = {"id": 2, "key": "jobspec", "flags": 0}
        for tag in range(1, number + 1):
            assert listed.ask("job-list.list-id", of_job_2, tag=1000 + tag) == []
            listed.ask(UPDATES, updates, streaming=True, tag=2000 + tag)
        memo = Event(7.0, "memo", {"a": 1})
        return count_steps(lambda: listed.tell((1, len(pending()), memo)))

    assert cost(200) < 2 * cost(10)


def test_numbers_of_jobs_are_told_again_when_they_change(listed: ListedJobs) -> None:
    ((errnum, first),) = listed.ask("job-list.job-stats", {}, streaming=True)
    assert (errnum, first["job_states"]["run"]) == (0, 1)
    listed.tell_all(1, running()[len(pending()) :], len(pending()))
    assert listed.take_sent() == []
    listed.fire_timer()
    ((errnum, second),) = listed.take_sent()
    assert (errnum, second["job_states"]["run"]) == (0, 2)


def test_attributes_are_listed(listed: ListedJobs) -> None:
    ((errnum, found),) = listed.ask("job-list.list-attrs")
    assert errnum == 0
    assert {"t_priority", "state", "annotations", "all"} <= set(found["attrs"])


def test_jobs_and_what_is_open_are_counted(listed: ListedJobs) -> None:
    listed.ask(WATCH, {"id": 1, "path": "eventlog", "flags": 0}, streaming=True)
    listed.ask("job-info.update-watch", {"id": 2, "key": "jobspec", "flags": 0}, streaming=True)
    listed.ask("job-list.job-stats", streaming=True)
    ((_, stats),) = listed.ask("job-list.stats-get")
    assert stats["jobs"] == {"pending": 1, "running": 1, "inactive": 1}
    assert (stats["watches"], stats["stats_watchers"], stats["idsync"]["waits"]) == (1, 1, 0)
    ((_, opened),) = listed.ask("job-info.stats-get")
    assert opened == {
        "lookups": 0,
        "watchers": 1,
        "guest_watchers": 0,
        "update_lookups": 0,
        "update_watchers": 1,
    }


@pytest.mark.parametrize("key", ["since", "max_entries"])
def test_a_number_below_zero_is_refused_by_its_key(listed: ListedJobs, key: str) -> None:
    payload = {"attrs": [], "max_entries": 0, key: -1}
    ((errnum, text),) = listed.ask("job-list.list", payload, streaming=True)
    assert errnum == Errno.EPROTO
    assert text.startswith(f"invalid payload: {key}")


def test_who_asks_for_an_unknown_job_reads_what_the_error_number_says(listed: ListedJobs) -> None:
    (refused,) = listed.ask("job-list.list-id", {"id": 99, "attrs": ["all"]})
    assert refused == (Errno.ENOENT, "unknown job id: No such file or directory")


def test_a_job_that_goes_back_to_priority_keeps_the_times_of_its_first_way(
    listed: ListedJobs,
) -> None:
    before = listed.ask("job-list.list-id", {"id": 1, "attrs": ["all"]})[0][1]["job"]
    again = [
        Event(2000.0, "urgency", {"userid": 7, "urgency": 20}),
        Event(2000.0, "priority", {"priority": 20}),
    ]
    listed.tell_all(1, again, len(pending()))
    after = listed.ask("job-list.list-id", {"id": 1, "attrs": ["all"]})[0][1]["job"]
    assert after["priority"] == 20
    for name in ("t_depend", "t_priority", "t_sched"):
        assert after[name] == before[name] < 2000.0


def test_an_entry_of_many_lines_uses_the_credit_of_all_of_them(listed: ListedJobs) -> None:
    """The rest waits until as many responses are granted as were sent."""
    events = [
        Event(5.0, "header", {"version": 1}),
        piece("a\nb\nc\nd\n"),
        piece("e\n"),
        piece("f\n"),
    ]
    listed.commit(["put", job_key(3, "guest.output"), format_eventlog(events)])
    payload = {"id": 3, "path": "guest.output", "flags": 0, "credit": 2}

    def lines(told: list[tuple[int, Any]]) -> list[str]:
        contexts = [parse_event(each["event"]).context or {} for _, each in told if each]
        return [each["data"] for each in contexts if "data" in each]

    first = listed.ask(WATCH, payload, streaming=True, tag=5)
    grants = [{"matchtag": 5, "credit": more} for more in (3, 1, 9)]
    then = [listed.ask(f"{WATCH}-credit", each, tag=0) for each in grants]
    assert lines(first) == ["a\n", "b\n", "c\n", "d\n"]
    assert [lines(each) for each in then] == [[], ["e\n"], ["f\n"]]
