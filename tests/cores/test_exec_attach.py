"""job-exec.attach as a script."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from flux_trio.cores.exec.attach import POLL_S
from flux_trio.cores.exec.attachments import READ_BYTES_MAX
from flux_trio.cores.exec.output import PIECE_BYTES_MAX, WHOLE_BYTES, log_begins, log_data, log_ends
from flux_trio.cores.exec.vocabulary import Chunk, FilePart, OutputRead, ReadOutput
from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import Errno, Flag, Response
from flux_trio.shell.protocol import Done, Started, TaskSize, Unknown
from tests.support.asking import OWNER_USERID, asked, asked_by_guest, gone
from tests.support.eventlogs import inactive, pending, raised
from tests.support.eventlogs import running as running_log
from tests.support.exec_script import (
    MANAGER,
    START_AT,
    ExecScript,
    files_read,
    job_exception,
    jobspec,
    resources,
    stored_release,
    timers,
    told,
)
from tests.support.exec_script import streamed as streamed_by_journal

ALICE = ("alice", 1)
LONG = 9 * PIECE_BYTES_MAX + 5


def attach(jobid: int = 7) -> Any:
    return asked("job-exec.attach", {"id": jobid}, streaming=True)


def streamed(actions: list[Any]) -> list[Any]:
    """What was streamed; the errnum that ended it last."""
    found = []
    for action in actions:
        if isinstance(action, Response) and action.topic == "job-exec.attach":
            assert action.errnum or action.flags == Flag.STREAMING
            found.append(action.errnum or action.payload)
    return found


def reads(actions: list[Any]) -> list[ReadOutput]:
    return [action for action in actions if isinstance(action, ReadOutput)]


def stdout(offset: int, data: bytes) -> OutputRead:
    return OutputRead(ALICE, 7, (Chunk(0, "stdout", offset, data),))


def output_log(now: float, ntasks: int, chunks: list[Chunk]) -> str:
    """The log of output that is short."""
    begin, end = log_begins(now, ntasks, {}), log_ends(now, ntasks, [])
    return format_eventlog([*begin, *log_data(now, chunks), *end])


def running() -> ExecScript:
    script = ExecScript()
    script.started(7, jobspec())
    return script


PENDING_LOG: Final = format_eventlog(pending(userid=OWNER_USERID))
CANCELED_LOG: Final = format_eventlog([*pending(userid=OWNER_USERID), raised("cancel")])
RUNNING_LOG: Final = format_eventlog(running_log(userid=OWNER_USERID))
OVER_LOG: Final = format_eventlog(inactive(userid=OWNER_USERID))


def test_output_of_a_running_job_is_followed_to_its_end() -> None:
    script = running()
    (read,) = reads(script(attach()))
    assert read.key == ALICE
    assert read.parts[0] == FilePart(0, "stdout", 0, READ_BYTES_MAX)
    actions = script(stdout(0, b"one\n"))
    assert streamed(actions) == [{"stream": "stdout", "rank": "0", "data": "one\n"}]
    assert timers(actions) == [START_AT + POLL_S]
    (read,) = reads(script.fire(actions))
    assert read.parts[0].offset == 4
    assert reads(script(Done(7, 0, 1, [], [TaskSize(0, 8, 0)])))[0].key is None
    actions = script(stdout(4, b"two\n"))
    assert streamed(actions) == [{"stream": "stdout", "rank": "0", "data": "two\n"}, Errno.ENODATA]


def test_nothing_is_polled_when_nobody_looks() -> None:
    script = running()
    actions = script(attach())
    script(gone("job-exec", "alice"))
    assert script(stdout(0, b"one\n")) == []
    assert timers(actions) == []


def test_stream_can_be_canceled() -> None:
    script = running()
    script(attach())
    ended, canceled = script(asked("job-exec.attach-cancel", {"matchtag": 1}, tag=2))
    assert (ended.topic, ended.errnum) == ("job-exec.attach", Errno.ECANCELED)
    assert (canceled.topic, canceled.errnum) == ("job-exec.attach-cancel", 0)
    assert script(stdout(0, b"one\n")) == []


@pytest.mark.parametrize("is_gone", [False, True], ids=["canceled", "gone"])
def test_stream_gets_nothing_that_was_read_for_an_earlier_one_with_its_matchtag(
    *, is_gone: bool
) -> None:
    script = running()
    script.started(8, jobspec())
    assert reads(script(attach(7)))
    leave = asked("job-exec.attach-cancel", {"matchtag": 1}, tag=2)
    script(gone("job-exec", "alice") if is_gone else leave)
    (read,) = reads(script(attach(8)))
    assert read.id == 8
    assert streamed(script(stdout(0, b"of job 7\n"))) == []
    found = script(OutputRead(ALICE, 8, (Chunk(0, "stdout", 0, b"of job 8\n"),)))
    assert [each["data"] for each in streamed(found)] == ["of job 8\n"]


def test_late_read_is_not_sent_beyond_the_credit_of_the_next_stream() -> None:
    script = running()
    assert reads(script(attach()))
    script(asked("job-exec.attach-cancel", {"matchtag": 1}, tag=2))
    assert reads(script(asked("job-exec.attach", {"id": 7, "credit": 1}, streaming=True)))
    chunks = (Chunk(0, "stdout", 0, b"a\n"), Chunk(0, "stderr", 0, b"b\n"))
    assert streamed(script(OutputRead(ALICE, 7, chunks))) == []
    assert len(streamed(script(stdout(0, b"a\n")))) == 1


def test_stored_output_is_sent_once_when_a_stream_takes_the_place_of_another() -> None:
    script = running()
    script.kvs[job_key(9, "eventlog")] = OVER_LOG
    script.kvs[job_key(9, "guest.output")] = output_log(
        START_AT, 1, [Chunk(0, "stdout", 0, b"stored\n")]
    )
    core = script.core
    (early,) = core.turn(START_AT, [attach(9)])
    core.turn(START_AT, [asked("job-exec.attach-cancel", {"matchtag": 1}, tag=2)])
    (again,) = core.turn(START_AT, [attach(9)])
    eventlog = {"value": OVER_LOG}
    late, now = (Response(each.topic, eventlog, 0, each.matchtag) for each in (early, again))
    assert core.turn(START_AT, [late]) == []
    (lookup,) = core.turn(START_AT, [now])
    value = {"value": script.kvs[job_key(9, "guest.output")]}
    sent = streamed(core.turn(START_AT, [Response(lookup.topic, value, 0, lookup.matchtag)]))
    assert [each["data"] for each in sent] == ["stored\n"]


def test_shell_host_keeps_the_files_until_they_are_read() -> None:
    script = running()
    script(attach())
    script(Done(7, 0, 1, [], [TaskSize(0, 4, 0)]))
    stored = script(OutputRead(None, 7, (Chunk(0, "stdout", 0, b"one\n"),)))
    assert told(stored)[-1] == ("release", "0", True)
    assert len(stored) == 2
    assert script(stored_release(script, 7)) == []
    actions = script(stdout(0, b"one\n"))
    assert streamed(actions)[-1] == Errno.ENODATA
    assert type(actions[-1]).__name__ == "ToShell"  # the Ack


def test_long_output_is_read_on_at_once() -> None:
    script = running()
    script(attach())
    actions = script(stdout(0, b"x" * READ_BYTES_MAX))
    assert reads(actions)[0].parts[0].offset == READ_BYTES_MAX


def test_character_that_is_cut_off_waits_for_its_rest() -> None:
    script = running()
    script(attach())
    actions = script(stdout(0, "aé".encode()[:-1]))
    assert streamed(actions) == [{"stream": "stdout", "rank": "0", "data": "a"}]
    assert reads(script.fire(actions))[0].parts[0].offset == 1


def test_what_was_written_after_a_read_and_before_the_end_is_not_missed() -> None:
    script = running()
    script(attach())
    script(Done(7, 0, 1, [], [TaskSize(0, 4, 0)]))
    (read,) = reads(script(OutputRead(ALICE, 7, ())))  # asked for while the job ran
    assert read.parts == (FilePart(0, "stdout", 0, 4),)
    assert streamed(script(stdout(0, b"one\n")))[-1] == Errno.ENODATA


def test_files_that_lost_their_content_do_not_hang_the_stream() -> None:
    script = running()
    script(attach())
    script(Done(7, 0, 1, [], [TaskSize(0, 4, 0)]))
    script(OutputRead(ALICE, 7, ()))
    assert streamed(script(OutputRead(ALICE, 7, ()))) == [Errno.ENODATA]


def test_job_that_is_over_is_streamed_from_the_kvs() -> None:
    log = output_log(5.0, 1, [Chunk(0, "stderr", 0, b"oops")])
    script = ExecScript(kvs={job_key(7, "eventlog"): OVER_LOG, job_key(7, "guest.output"): log})
    data = {"stream": "stderr", "rank": "0", "data": "oops"}
    assert streamed(script(attach())) == [data, Errno.ENODATA]


def test_simulated_job_has_no_output() -> None:
    script = ExecScript(kvs={job_key(7, "eventlog"): OVER_LOG})
    assert streamed(script(attach())) == [Errno.ENODATA]


def test_end_of_a_simulated_job_ends_the_stream() -> None:
    script = ExecScript()
    actions = script.start(7, jobspec(test={"run_duration": "5s"}))
    assert streamed(script(attach())) == []
    assert streamed(script.fire(actions)) == [Errno.ENODATA]


def test_job_that_is_yet_to_start_is_waited_for() -> None:
    script = ExecScript(kvs={job_key(7, "eventlog"): PENDING_LOG})
    assert script(attach()) == []
    script.start(7, jobspec())
    assert len(reads(script(Started(7)))) == 1


@pytest.mark.parametrize("known", [True, False])
def test_job_that_is_canceled_before_it_starts_ends_the_stream(known: bool) -> None:
    log = CANCELED_LOG if known else PENDING_LOG
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    actions = script(attach())
    assert streamed(actions if known else script(job_exception(7))) == [Errno.ENODATA]


def test_job_whose_release_is_not_stored_yet_is_streamed_when_it_is() -> None:
    """The service has forgotten the job, and its eventlog still says that it runs."""
    script = running()
    script.end(7)
    script.kvs[job_key(7, "eventlog")] = RUNNING_LOG
    assert streamed(script(attach())) == []
    assert Errno.ENODATA in streamed(script(stored_release(script, 7)))


@pytest.mark.parametrize("has_journal", [True, False])
def test_job_that_a_lost_job_manager_has_canceled_ends_the_stream(has_journal: bool) -> None:
    """The job manager was lost between the commit of the exception and the event."""
    script = ExecScript(kvs={job_key(7, "eventlog"): PENDING_LOG})
    assert script(attach()) == []
    script.kvs[job_key(7, "eventlog")] = CANCELED_LOG
    (hello,) = script(gone("job-exec", MANAGER))
    script(Response(hello.topic, None, 0, hello.matchtag))
    assert script.journal is not None
    begins = streamed_by_journal(script.journal, {"events": []})
    missing = Response(script.journal.topic, "no", Errno.ENOSYS, script.journal.matchtag)
    assert streamed(script(begins if has_journal else missing)) == [Errno.ENODATA]


def test_job_that_waits_is_waited_for_after_the_job_manager_is_lost() -> None:
    script = ExecScript(kvs={job_key(7, "eventlog"): PENDING_LOG})
    script(attach())
    (hello,) = script(gone("job-exec", MANAGER))
    script(Response(hello.topic, None, 0, hello.matchtag))
    assert script.journal is not None
    assert script(streamed_by_journal(script.journal, {"events": []})) == []
    script.start(7, jobspec())
    assert len(reads(script(Started(7)))) == 1


def test_job_that_cannot_be_launched_ends_the_stream() -> None:
    script = ExecScript()
    script.start(7, jobspec(), reattach=True)
    script(attach())
    assert Errno.ENODATA in streamed(script(Unknown(7)))


def test_unknown_job_is_refused() -> None:
    script = ExecScript()
    (answer,) = script(attach())
    assert answer.errnum == Errno.ENOENT
    assert answer.payload.startswith("job 7: ")


def test_guest_sees_only_jobs_of_their_own() -> None:
    script = ExecScript(kvs={job_key(8, "eventlog"): PENDING_LOG})
    script.started(7, jobspec())
    for jobid in (7, 8):
        request = asked_by_guest("job-exec.attach", {"id": jobid}, streaming=True)
        (answer,) = script(request)
        text = "access is restricted to job/instance owner"
        assert (answer.errnum, answer.payload) == (Errno.EPERM, text)


def test_attach_is_a_stream() -> None:
    (answer,) = running()(asked("job-exec.attach", {"id": 7}))
    assert answer.errnum == Errno.EPROTO


def test_number_of_streams_of_a_user_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.cores.exec.attach.ATTACHMENTS_OF_USER_MAX", 1)
    script = running()
    script(attach())
    (answer,) = script(asked("job-exec.attach", {"id": 7}, tag=2, streaming=True))
    assert answer.errnum == Errno.EAGAIN
    assert "has 1 output streams open, the most" in answer.payload
    other = asked("job-exec.attach", {"id": 7}, tag=3, streaming=True, by="root")
    assert not streamed(script(msgspec.structs.replace(other, userid=0)))  # it is taken
    script(gone("job-exec", "alice"))
    assert not streamed(script(attach()))  # and so is another one after the first has ended


# Credit


def test_reader_is_sent_what_it_has_credit_for_and_read_on_for_when_it_grants_more() -> None:
    script = running()
    script(Done(7, 0, 1, [], [TaskSize(0, LONG, 0)]))
    (read,) = reads(script(attach_with(2)))
    assert sum(part.nbytes for part in read.parts) == 2 * WHOLE_BYTES
    actions = script(stdout(0, b"x" * read.parts[0].nbytes))
    assert [len(piece["data"]) for piece in streamed(actions)] == [PIECE_BYTES_MAX, WHOLE_BYTES - 3]
    assert reads(actions) == []
    (read,) = reads(script(granted(3)))
    assert read.parts == (FilePart(0, "stdout", 2 * WHOLE_BYTES, 3 * WHOLE_BYTES),)


def test_nothing_is_polled_for_a_reader_without_credit() -> None:
    script = running()
    script(attach_with(1))
    actions = script(stdout(0, b"one\n"))
    assert [piece["data"] for piece in streamed(actions)] == ["one\n"]
    assert (reads(actions), timers(actions)) == ([], [])
    (read,) = reads(script(granted(1)))
    assert read.parts[0].stream == "stderr"  # each file in its turn
    (timer,) = timers(script(OutputRead(ALICE, 7, ())))
    assert timer == START_AT + POLL_S


@pytest.mark.parametrize("credit", [1, 2, 3, 100, None])
def test_whole_output_comes_whatever_the_credit(credit: int | None) -> None:
    files = {(7, 0, "stdout"): b"x" * LONG, (7, 1, "stderr"): b"y" * LONG}
    script = ExecScript()
    script.started(7, jobspec(ntasks=2), resources({0: 2}))
    actions = script(attach_with(credit))
    actions += script(Done(7, 0, 2, [], [TaskSize(0, LONG, 0), TaskSize(1, 0, LONG)]))
    found = _read_to_the_end(script, actions, files, credit)
    assert {key: b"".join(data) for key, data in found.items()} == {
        ("0", "stdout"): files[7, 0, "stdout"],
        ("1", "stderr"): files[7, 1, "stderr"],
    }


@pytest.mark.parametrize("credit", [1, 3, 100, None])
def test_stored_output_comes_piece_by_piece_and_its_note_last(credit: int | None) -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = ExecScript(output_limit=str(LONG - 7), kvs={job_key(7, "eventlog"): OVER_LOG})
    script.started(7, jobspec())
    files_read(script, script(Done(7, 0, 1, [], [TaskSize(0, LONG, 0)])), files)
    assert job_key(7, "guest.output.1") in script.kvs
    found = _read_to_the_end(script, script(attach_with(credit)), files, credit)
    assert b"".join(found["0", "stdout"]) == b"x" * (LONG - 7)
    assert found["0", "stderr"] == [f"stdout: 7 of {LONG} bytes truncated"]


def test_a_reader_is_told_of_warnings_first_and_last_what_is_not_kept() -> None:
    """It has all of the output of a job that it follows; what is stored has less."""
    files = {(7, 1, "stderr"): b"x" * 12}
    script = ExecScript(output_limit="10")
    mode = {"system.shell.options.output.mode": "wrong"}
    script.started(7, jobspec(ntasks=2, attributes=mode), resources({0: 2}))
    actions = script(attach_with(None))
    (first,) = streamed(actions)
    assert (first["note"][:32], first["level"]) == ("output: ignoring invalid output.", 4)
    actions += script(Done(7, 0, 2, [], [TaskSize(1, 0, 12)]))
    found = _read_to_the_end(script, actions, files, None)
    assert b"".join(found["1", "stderr"]) == b"x" * 12
    assert found["0", "stderr"] == [first["note"], "stderr: 2 of 12 bytes truncated"]


def test_reader_of_stored_output_who_pauses_is_sent_no_more() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = ExecScript(kvs={job_key(7, "eventlog"): OVER_LOG})
    script.started(7, jobspec())
    files_read(script, script(Done(7, 0, 1, [], [TaskSize(0, LONG, 0)])), files)
    assert len(streamed(script(attach_with(3)))) == 3
    script.lookups.clear()
    assert len(streamed(script(granted(2)))) == 2
    assert script.lookups == [job_key(7, "guest.output"), job_key(7, "guest.output.1")]


def test_output_of_a_job_that_is_purged_meanwhile_is_refused_and_not_cut_off() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = ExecScript(kvs={job_key(7, "eventlog"): OVER_LOG})
    script.started(7, jobspec())
    files_read(script, script(Done(7, 0, 1, [], [TaskSize(0, LONG, 0)])), files)
    assert len(streamed(script(attach_with(3)))) == 3
    script.kvs.clear()
    (answer,) = script(granted(2))
    assert (answer.errnum, answer.error_text) == (Errno.ENOENT, "the job was purged meanwhile")


def test_end_of_the_stream_needs_no_credit() -> None:
    log = output_log(5.0, 1, [Chunk(0, "stdout", 0, b"hi")])
    script = ExecScript(kvs={job_key(7, "eventlog"): OVER_LOG, job_key(7, "guest.output"): log})
    assert streamed(script(attach_with(1)))[-1] == Errno.ENODATA


def test_grant_is_answered_if_an_answer_is_wanted_also_when_the_stream_has_ended() -> None:
    script = running()
    request = asked("job-exec.attach-credit", {"matchtag": 1, "credit": 1}, tag=5)
    (answer,) = script(request)
    assert (answer.errnum, answer.payload) == (0, None)
    (answer,) = script(asked("job-exec.attach", {"id": 7, "credit": 0}, streaming=True))
    assert answer.errnum == Errno.EPROTO


def attach_with(credit: int | None) -> Any:
    return asked("job-exec.attach", {"id": 7, "credit": credit}, streaming=True)


def granted(more: int) -> Any:
    request = asked("job-exec.attach-credit", {"matchtag": 1, "credit": more}, tag=0)
    return msgspec.structs.replace(request, flags=int(Flag.NORESPONSE))


def _read_to_the_end(
    script: ExecScript, actions: list[Any], files: Any, credit: int | None
) -> dict[tuple[str, str], list[Any]]:
    """All that a reader finds who grants again what it was sent, by task and stream."""
    found: dict[tuple[str, str], list[Any]] = {}
    while True:
        pieces = streamed(files_read(script, actions, files))
        assert pieces, "the stream hangs"
        for piece in pieces:
            if piece == Errno.ENODATA:
                return found
            data = piece.get("note") or piece["data"].encode()
            found.setdefault((piece["rank"], piece["stream"]), []).append(data)
        assert credit is None or len(pieces) <= credit
        actions = script(granted(len(pieces)))
