"""What Flux's own programs find of a job that runs: its exec eventlog, and standard input."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from flux_trio.cores.exec.calls import POLL
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.input_options import with_input
from flux_trio.cores.exec.inputs import INPUT_BYTES_MAX, WAITING_BYTES_MAX
from flux_trio.cores.exec.vocabulary import ShellLost
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.editions import CLASSIC, CURRENT
from flux_trio.editions.exec_requests import job_of_shell
from flux_trio.formats import format_fluid, job_key, parse_eventlog
from flux_trio.messages import Errno, Request, Response
from flux_trio.shell.protocol import (
    Attach,
    Done,
    Fed,
    Feed,
    Identify,
    Processes,
    Signal,
    Start,
    Started,
    TaskSize,
)
from tests.support.asking import OWNER_USERID, asked, asked_by_guest, gone
from tests.support.exec_script import (
    START_AT,
    ExecScript,
    files_read,
    jobspec,
    resources,
    start_request,
    to_shell,
)

LOG = job_key(7, "guest.exec.eventlog")
EXEC_START = "job-exec.start"
SHELL = f"{OWNER_USERID}-shell-{format_fluid(7, 'f58plain')}"
STDIN = f"{SHELL}.stdin"


def events(script: ExecScript) -> list[str]:
    return [event.name for event in parse_eventlog(script.kvs.get(LOG, ""))]


def names(actions: list[Any]) -> list[tuple[str, Any]]:
    """The requests about service names among `actions`."""
    asked_for = [each for each in actions if isinstance(each, Request)]
    return [(each.topic, each.payload) for each in asked_for if "register" in each.topic]


def running(command: str = "cat") -> ExecScript:
    """Job 7 runs, on two ranks."""
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    script.start(7, jobspec(command, ntasks=2), resources({1: 1, 3: 1}))
    script(Started(7))
    return script


def done(script: ExecScript, status: int = 0) -> list[Any]:
    """All tasks of job 7 have ended, without a word."""
    return files_read(script, script.end(7, status), {})


def data(text: str = "", **more: Any) -> dict[str, Any]:
    return {"stream": "stdin", "rank": "all", **({"data": text} if text else {}), **more}


def test_the_first_events_are_there_before_the_start_is_told() -> None:
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    script.start(7, jobspec("cat", ntasks=2), resources({1: 1, 3: 1}))
    assert events(script) == ["init", "starting"]
    told = script(Started(7))
    assert events(script) == ["init", "starting", "shell.init", "shell.start"]
    init, start = parse_eventlog(script.kvs[LOG])[2:]
    assert init.context == {"service": SHELL, "leader-rank": 1, "size": 2}
    assert start.context == {"taskmap": {"version": 1, "map": [[0, 2, 1, 1]]}}
    assert names(told) == [("broker.register", {"service": SHELL})]


def slow(command: str = "cat") -> ExecScript:
    """Job 7 is launched, and the kvs has not made its namespace yet."""
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    script.held = {"store.commit"}
    (launch,) = to_shell(script.start(7, jobspec(command)))
    assert isinstance(launch, Start)
    return script


def reports(actions: list[Any]) -> list[str]:
    """The types of what the job manager is told."""
    return [each.payload["type"] for each in actions if getattr(each, "topic", "") == EXEC_START]


def test_a_job_is_launched_beside_its_namespace_and_its_start_waits_for_it() -> None:
    script = slow()
    assert reports(script(Started(7))) == []
    assert events(script) == []
    assert reports(script.let_go()) == ["start"]
    assert events(script) == ["init", "starting", "shell.init", "shell.start"]


def test_a_job_that_ends_before_its_namespace_is_there_has_all_of_it_later() -> None:
    script = slow()
    script(Started(7))
    reads = script(Done(7, 0, 1, sizes=[TaskSize(0, 6, 0)]))
    assert events(script) == []
    files = {(7, 0, "stdout"): b"hello\n"}
    told = files_read(script, [*reads, *script.let_go()], files)
    assert reports(told) == ["start", "finish", "release"]
    assert outputs(script) == "hello\n"
    assert events(script)[2:] == ["shell.init", "shell.start", "shell-exit", "complete", "done"]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_job_whose_namespace_cannot_be_made_is_ended(is_started: bool) -> None:
    script = slow()
    if is_started:
        script(Started(7))
    script.errors["store.commit"] = (Errno.ENOSPC, "there are too many")
    actions = script.let_go()
    if not is_started:
        actions += script(Started(7))
    assert to_shell(actions) == [Signal(7, 15)]
    assert sorted(reports(actions)) == ["exception", "start"]
    assert reports(script(Done(7, 15, 1, sizes=[TaskSize(0, 6, 0)]))) == ["finish", "release"]
    assert outputs(script) == ""


def test_the_last_events_come_with_the_end_and_the_name_is_given_back() -> None:
    script = running()
    actions = done(script, 256)
    assert events(script)[4:] == ["shell-exit", "complete", "done"]
    shell_exit, complete, _ = parse_eventlog(script.kvs[LOG])[4:]
    assert shell_exit.context == {"rank": 1, "wait_status": 256}
    assert complete.context == {"status": 256}
    assert names(actions) == [("broker.unregister", {"service": SHELL})]


def test_in_a_kvs_where_the_namespace_is_a_view_nothing_is_linked_and_moved() -> None:
    script = running()
    script.errors["kvs.getroot"] = (Errno.EIO, "not now")
    assert "kvs-namespace.job-7" in script.kvs
    done(script)
    assert "kvs-namespace.job-7" not in script.kvs
    place = job_key(7, "guest")
    assert place not in {op[1] for ops in script.commits for op in ops}


def test_the_events_of_jobs_of_one_turn_are_one_commit_and_nothing_is_read_for_new_jobs() -> None:
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    spec, r = jobspec(test={"run_duration": 1.0}), resources()
    started = script(*(start_request(jobid, spec, r=r) for jobid in (7, 8, 9)))
    assert reports(started) == ["start"] * 3
    ends = [each for each in started if isinstance(each, SetTimer)]
    ended = script(*(TimerFired(each.key) for each in ends), now=ends[0].at)
    assert sorted(reports(ended)) == ["finish"] * 3 + ["release"] * 3
    assert script.lookups == []
    assert [len(ops) for ops in script.commits] == [3, 3]
    assert events(script) == ["init", "starting", "complete", "done"]
    assert not any(key.startswith("kvs-namespace") for key in script.kvs)


def test_a_service_that_finds_the_job_again_adds_to_its_log() -> None:
    before = running()
    script = ExecScript(edition=CURRENT, guests=GuestSettings(), kvs=before.kvs)
    r = resources({1: 1, 3: 1})
    script.put_resources(7, r)
    actions = script(start_request(7, jobspec("cat", ntasks=2), reattach=True, r=r))
    assert to_shell(actions) == [Attach(7)]
    files_read(script, script(Started(7)), {})
    assert events(script)[3:] == ["shell.start", "reattach"]
    done(script)
    assert events(script)[4:] == ["reattach", "shell-exit", "complete", "done"]


def test_a_job_that_is_started_once_more_has_each_event_once() -> None:
    """The shell host takes a start once, and so does the log."""
    before = running()
    script = ExecScript(edition=CURRENT, guests=GuestSettings(), kvs=before.kvs)
    script.start(7, jobspec("cat", ntasks=2), resources({1: 1, 3: 1}, starttime=95.0))
    script(Started(7))
    assert events(script) == ["init", "starting", "shell.init", "shell.start", "reattach"]


def test_a_job_that_is_over_and_is_asked_for_once_more_has_no_namespace_again() -> None:
    """The next job manager has not stored the end of the job when it begins."""
    script = running()
    script.held = {"kvs.lookup"}
    assert reports(done(script)) == ["finish", "release"]
    script.next_manager()
    again = start_request(7, jobspec("cat", ntasks=2), reattach=True, r=resources({1: 1, 3: 1}))
    assert reports(script(again)) == []
    assert reports(script.let_go()) == ["reattached", "finish", "release"]
    assert "kvs-namespace.job-7" not in script.kvs


def test_answers_about_a_namespace_of_before_the_job_manager_left_do_not_count() -> None:
    """The job was not launched then, so that it is asked for as if it were new."""
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    spec, r = jobspec("cat", ntasks=2), resources({1: 1, 3: 1})
    script.put_resources(7, r)
    script.held = {"kvs.lookup"}
    start = start_request(7, spec, r=r)
    script(start)
    script.next_manager()
    script(start)
    script.let_go()
    assert reports(script(Started(7))) == ["start"]
    assert events(script) == ["init", "starting", "shell.init", "shell.start"]


def test_without_a_native_door_the_log_comes_at_the_end() -> None:
    script = ExecScript()
    script.started(7, jobspec("true"))
    assert events(script) == []
    assert names(done(script)) == []
    assert events(script) == ["init", "starting", "shell.start", "complete", "done"]


def test_tasks_read_what_commands_send_unless_the_jobspec_says_otherwise() -> None:
    (start,) = to_shell(
        ExecScript(edition=CURRENT, guests=GuestSettings()).start(7, jobspec("cat"))
    )
    assert isinstance(start, Start)
    assert start.input
    spec = with_input(jobspec("cat"))
    assert with_input(spec) == spec
    assert with_input({"attributes": 1}) == {"attributes": 1}


# --- output


def outputs(script: ExecScript) -> str:
    """What the kvs has of the output of job 7."""
    log = parse_eventlog(script.kvs.get(job_key(7, "guest.output"), ""))
    return "".join((event.context or {}).get("data", "") for event in log)


def test_output_is_copied_while_the_job_runs_once_somebody_reads_it() -> None:
    files = {(7, 0, "stdout"): b"hello\n"}
    script = running()
    assert outputs(script) == ""
    files_read(script, script(asked("job-exec.copy", {"id": 7})), files)
    assert outputs(script) == "hello\n"


def test_a_reader_is_answered_when_what_was_there_is_stored() -> None:
    files = {(7, 0, "stdout"): b"hello\n"}
    script = running()
    copy = asked("job-exec.copy", {"id": 7}, tag=5)
    actions = script(copy)
    assert COPIED not in answers_in(actions)
    script.held = {"store.commit"}
    assert COPIED not in answers_in(files_read(script, actions, files))
    assert COPIED in answers_in(files_read(script, script.let_go(), files))
    assert outputs(script) == "hello\n"
    again = script(msgspec.structs.replace(copy, matchtag=6))  # it waits for the next round
    assert answers_in(again) == []
    files[7, 0, "stdout"] += b"world\n"
    polled = script(TimerFired(POLL))
    assert answers_in(files_read(script, polled, files)) == [("job-exec.copy", 6)]
    assert outputs(script) == "hello\nworld\n"


def test_a_reader_who_comes_before_the_start_or_after_the_end_is_answered_at_once() -> None:
    copy = asked("job-exec.copy", {"id": 7}, tag=5)
    script = slow()
    assert answers_in(script(copy)) == [COPIED]
    script = running()
    script(Done(7, 0, 1))
    assert answers_in(script(copy)) == [COPIED]
    assert answers_in(ExecScript()(copy)) == [COPIED]


def test_a_reader_is_answered_when_the_job_ends_and_not_when_he_is_gone() -> None:
    for is_gone in (False, True):
        script = running()
        actions = script(asked("job-exec.copy", {"id": 7}, tag=5, by="alice"))
        if is_gone:
            script(gone("job-exec", "alice"))
        actions += script(Done(7, 0, 1, sizes=[TaskSize(0, 6, 0)]))
        told = answers_in(files_read(script, actions, {(7, 0, "stdout"): b"hello\n"}))
        assert (COPIED in told) is not is_gone


COPIED = ("job-exec.copy", 5)


def answers_in(actions: list[Any]) -> list[tuple[str, int]]:
    """Topic and matchtag of the answers to requests about output."""
    answers = [each for each in actions if isinstance(each, Response)]
    return [(each.topic, each.matchtag) for each in answers if each.topic == "job-exec.copy"]


def test_output_that_nobody_reads_is_copied_at_the_end() -> None:
    files = {(7, 0, "stdout"): b"hello\n"}
    script = running()
    assert outputs(script) == ""
    sizes = [TaskSize(0, 6, 0)]
    files_read(script, script(Done(7, 0, 1, sizes=sizes)), files)
    assert outputs(script) == "hello\n"
    assert events(script)[-1] == "done"


HERE: dict[str, Any] = {"edition": CLASSIC, "guests": None}
THERE: dict[str, Any] = {"edition": CURRENT, "guests": GuestSettings()}


class Dead(Exception):
    """The service was killed."""


class Mortal(ExecScript):
    """Dies at its request number `after` to the kvs, done before or not."""

    after = -1
    is_done = False

    def _kvs(self, request: Request) -> Any:
        self.after -= 1
        if self.after == 0 and not self.is_done:
            raise Dead
        answer = super()._kvs(request)
        if self.after == 0:
            raise Dead
        return answer


@pytest.mark.parametrize("how", [HERE, THERE], ids=["classic", "current"])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("after", range(1, 20))
def test_a_kill_at_any_request_loses_no_byte_and_writes_none_twice(
    after: int, is_done: bool, how: dict[str, Any]
) -> None:
    files = {(7, 0, "stdout"): b"hello\n"}
    end = Done(7, 0, 1, sizes=[TaskSize(0, 6, 0)])
    script = Mortal(**how)
    script.after, script.is_done = after, is_done
    was_told = False
    with suppress(Dead):
        script.start(7, jobspec("cat"))
        was_told = any(hasattr(each, "errnum") for each in script(Started(7)))
        files_read(script, script(asked("job-exec.copy", {"id": 7})), files)
        told = files_read(script, script(end), files)
        assert any(hasattr(each, "errnum") for each in told)
        return  # it needs fewer requests
    following = ExecScript(**how, kvs=script.kvs)
    r = resources(starttime=50.0)  # before the hello
    actions = following.start(7, jobspec("cat"), r, reattach=was_told)
    if to_shell(actions):
        files_read(following, following(Started(7)), files)
        files_read(following, following(end), files)
    assert outputs(following) == "hello\n"
    names = Counter(events(following))
    assert names.pop("reattach", 0) <= 1
    assert set(names.values()) == {1}
    assert events(following)[-1] == "done"
    assert "kvs-namespace.job-7" not in following.kvs


# --- standard input


def test_input_goes_to_the_tasks_and_the_answer_is_empty() -> None:
    script = running()
    assert to_shell(script(asked(STDIN, data("a\n")))) == [Feed(7, b"a\n", False)]
    (answer,) = script(Fed(7, open=True))
    assert (answer.errnum, answer.payload) == (0, None)
    binary = data(base64.b64encode(b"\xff").decode(), encoding="base64", eof=True)
    assert to_shell(script(asked(STDIN, binary))) == [Feed(7, b"\xff", True)]


def test_writes_follow_each_other_though_nobody_waits_for_the_answers() -> None:
    script = running()
    for text in ("a", "b"):
        script(asked(STDIN, data(text)))
    script(asked(STDIN, data(eof=True)))
    assert to_shell(script(Fed(7, open=True))) == [Feed(7, b"b", False)]
    assert to_shell(script(Fed(7, open=True))) == [Feed(7, b"", True)]


def test_a_long_write_goes_in_pieces_and_is_answered_after_the_last() -> None:
    script = running()
    text = "x" * (2 * INPUT_BYTES_MAX + 1)
    (first,) = to_shell(script(asked(STDIN, data(text, eof=True))))
    (second,) = script(Fed(7, open=True))
    (third,) = script(Fed(7, open=True))
    sizes = [
        (len(first.data), first.eof),
        *[(len(e.request.data), e.request.eof) for e in (second, third)],
    ]
    assert sizes == [(INPUT_BYTES_MAX, False), (INPUT_BYTES_MAX, False), (1, True)]
    (answer,) = script(Fed(7, open=False))
    assert answer.errnum == 0


def test_writes_that_wait_are_bounded() -> None:
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    limit = {"system.shell.options.input.limit": "32M"}
    script.started(7, jobspec("cat", attributes=limit))
    for _ in range(4):
        piece = data("x" * (WAITING_BYTES_MAX // 4))
        assert all(not hasattr(each, "errnum") for each in script(asked(STDIN, piece)))
    (refused,) = script(asked(STDIN, data("a" * INPUT_BYTES_MAX)))
    assert refused.errnum == Errno.EAGAIN


def test_input_of_tasks_that_have_ended_is_taken_until_the_job_is_over() -> None:
    """A program that is refused fails, though it has only come late."""
    script = running()
    script(asked(STDIN, data("a")))
    script(asked(STDIN, data("b")))
    script.held = {"store.commit"}
    done(script)
    (late,) = script(asked(STDIN, data("c")))
    assert late.errnum == 0
    answers = script(Fed(7, open=False))
    assert [each.errnum for each in answers] == [0, 0]
    script.let_go()
    (later,) = script(asked(STDIN, data("d")))
    assert later.errnum == Errno.ENOSYS


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "payload: expected an object"),
        (data("a", rank="x"), "rank: expected an idset"),
        (data("%", encoding="base64"), "data: expected base64"),
        ({"stream": "stdin", "data": 7}, "Expected `str`, got `int` - at `$.data`"),
    ],
)
def test_what_is_no_input_is_refused(payload: Any, text: str) -> None:
    (refused,) = running()(asked(STDIN, payload))
    assert refused.errnum == Errno.EPROTO
    assert text in refused.payload


def test_input_of_another_user_and_other_methods_are_refused() -> None:
    script = running()
    (refused,) = script(asked_by_guest(STDIN, data("a")))
    assert refused.errnum == Errno.EPERM
    (unknown,) = script(asked(f"{SHELL}.kill", {}))
    assert unknown.errnum == Errno.ENOSYS


def test_who_is_gone_gets_no_answer_and_a_lost_shell_host_refuses_the_others() -> None:
    script = running()
    script(asked(STDIN, data("a"), by="alice"))
    script(asked(STDIN, data("b"), by="alice"))
    script(asked(STDIN, data("c"), by="bob"))
    script(gone("job-exec", "alice"))
    answers = [each for each in script(ShellLost("it died")) if hasattr(each, "errnum")]
    assert [(each.routes[0], each.errnum) for each in answers] == [("bob", Errno.EIO)]


@pytest.mark.parametrize(
    ("topic", "jobid"),
    [(STDIN, 7), (f"{SHELL}.kill", None), ("job-exec.stdin", None), ("1-shell-.stdin", None)],
)
def test_the_job_is_named_by_the_service(topic: str, jobid: int | None) -> None:
    assert job_of_shell(topic) == jobid


# --- which processes the tasks are

PROCTABLE = f"{SHELL}.proctable"


def test_a_debugger_is_told_which_processes_the_tasks_are() -> None:
    script = running("solve")
    assert to_shell(script(asked(PROCTABLE, {}))) == [Identify(7)]
    (answer,) = script(Processes(7, "moon", {0: 510, 1: 507}))
    assert (answer.errnum, answer.payload) == (
        0,
        {
            "hosts": ["moon", "moon"],
            "executables": ["solve", "solve"],
            "ids": [0, 1],
            "pids": [510, -3],
            "ranks": [1, 2],
        },
    )
    assert script(Processes(7, "moon", {0: 510})) == []


def test_processes_are_told_to_the_owners_while_there_are_some() -> None:
    script = running()
    (refused,) = script(asked_by_guest(PROCTABLE, {}))
    assert refused.errnum == Errno.EPERM
    script(asked(PROCTABLE, {}))
    (none,) = script(Processes(7, "moon", {}))
    assert (none.errnum, none.payload) == (Errno.ENOSYS, "job ƒ8 has no processes")
    done(script)
    (late,) = script(asked(PROCTABLE, {}))
    assert late.errnum == Errno.ENOSYS


def test_who_waits_for_processes_hears_that_the_shell_host_is_lost() -> None:
    script = running()
    script(asked(PROCTABLE, {}, by="alice"))
    script(asked(PROCTABLE, {}, by="bob"))
    script(gone("job-exec", "alice"))
    answers = [each for each in script(ShellLost("it died")) if hasattr(each, "errnum")]
    assert [(each.routes[0], each.errnum) for each in answers] == [("bob", Errno.EIO)]
    (again,) = script(asked(PROCTABLE, {}))
    assert again.errnum == Errno.EIO


# --- guest.input

INPUT_LOG = job_key(7, "guest.input")


def taking(**options: Any) -> ExecScript:
    """Job 7 runs on two ranks, with these options of its input, or `verbose`."""
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    attributes = {f"system.shell.options.{key}": value for key, value in options.items()}
    script.start(7, jobspec("cat", ntasks=2, attributes=attributes), resources({1: 1, 3: 1}))
    script(Started(7))
    return script


def logged(script: ExecScript) -> list[tuple[str, Any]]:
    """The events of guest.input after its header."""
    header, *events = parse_eventlog(script.kvs[INPUT_LOG])
    assert header.context is not None
    assert (header.name, header.context["count"]) == ("header", {"stdin": 1})
    return [(event.name, event.context) for event in events]


def test_what_is_sent_is_logged_some_time_later_and_the_end_at_once() -> None:
    script = taking()
    actions = script(asked(STDIN, data("a\n")))
    actions += script(asked(STDIN, data("b\n")))
    assert logged(script) == []
    (timer,) = [each for each in actions if isinstance(each, SetTimer)]
    assert timer.at == START_AT + 0.5
    script.fire(actions)
    assert logged(script) == [("data", data("a\n")), ("data", data("b\n"))]
    script(asked(STDIN, data(eof=True)))
    assert logged(script)[2:] == [("data", data(eof=True))]


def test_without_a_batch_each_write_is_logged_at_once_and_with_a_long_one_at_the_end() -> None:
    script = taking(**{"input.batch-timeout": 0})
    script(asked(STDIN, data("a")))
    assert logged(script) == [("data", data("a"))]
    script = taking(**{"input.batch-timeout": 9.5})
    script(asked(STDIN, data("a")))
    assert logged(script) == []
    done(script)
    assert logged(script) == [("data", data("a"))]


def test_a_file_is_told_as_a_redirect() -> None:
    script = taking(**{"input.stdin": {"type": "file", "path": "in"}})
    assert logged(script) == [("redirect", {"stream": "stdin", "rank": "all", "path": "in"})]
    (refused,) = script(asked(STDIN, data("a")))
    assert refused.errnum == Errno.ENOSYS


def test_input_goes_to_the_tasks_that_it_names_and_not_after_their_end() -> None:
    script = taking()
    (feed,) = to_shell(script(asked(STDIN, data("a", rank="1", eof=True))))
    assert feed == Feed(7, b"a", True, [1])
    script(Fed(7, open=True))
    (closed,) = script(asked(STDIN, data("b", rank="0-1")))
    assert (closed.errnum, closed.error_text) == (
        Errno.EPIPE,
        "job ƒ8: task 0-1: Broken pipe: its input is closed",
    )
    (feed,) = to_shell(script(asked(STDIN, data("b"))))
    assert feed == Feed(7, b"b", False)
    script(Fed(7, open=True))
    script(asked(STDIN, data(eof=True)))
    (closed,) = script(asked(STDIN, data(eof=True)))
    assert closed.errnum == Errno.EPIPE


def test_a_job_that_gets_too_much_fails_and_the_sender_sees_that_only() -> None:
    script = taking(**{"input.limit": "1K"})
    assert to_shell(script(asked(STDIN, data("x" * 1024)))) == [Feed(7, b"x" * 1024, False)]
    actions = script(asked(STDIN, data("y")))
    assert to_shell(actions) == [Signal(7, 15)]
    raised = next(
        each.payload for each in actions if getattr(each, "topic", "") == "job-exec.start"
    )
    assert raised["data"]["note"].startswith("stdin exceeds 1K limit. Try file input")
    assert to_shell(script(asked(STDIN, data("z")))) == []
    done(script, 143 << 8)
    (complete,) = [e for e in parse_eventlog(script.kvs[LOG]) if e.name == "complete"]
    assert complete.context == {"status": 256}
    assert b"y" not in script.kvs[INPUT_LOG].encode()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"input.limit": "0"}, "input.limit: expected 1 to 32M bytes"),
        ({"input.limit": "33M"}, "input.limit: expected 1 to 32M bytes"),
        ({"input.limit": "foo"}, "input.limit: expected a number of bytes"),
        ({"input.batch-timeout": "foo"}, "invalid input.batch-timeout option: expected seconds"),
        ({"input.batch-timeout": -1}, "invalid input.batch-timeout option: expected seconds"),
    ],
)
def test_options_of_input_that_cannot_be_fail_the_job(options: dict[str, Any], text: str) -> None:
    script = ExecScript(edition=CURRENT, guests=GuestSettings())
    attributes = {f"system.shell.options.{key}": value for key, value in options.items()}
    raised, _ = script.start(7, jobspec("cat", attributes=attributes))
    assert text in raised.payload["data"]["note"]


def test_a_job_that_asks_for_more_words_is_told_of_its_batches() -> None:
    script = taking(**{"input.batch-timeout": 1, "verbose": 2})
    done(script)
    (log,) = [e for e in parse_eventlog(script.kvs[job_key(7, "guest.output")]) if e.name == "log"]
    assert log.context == {"level": 6, "message": "input batch timeout = 1.000s"}
