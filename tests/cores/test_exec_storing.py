"""The output of jobs is copied to the kvs, as a script that plays the files and the kvs."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.cores.exec.copying import (
    COPIES_BYTES_MAX,
    COPIES_MAX,
    COPY_BYTES_MAX,
    POLL_S,
    READ_PARTS_MAX,
)
from flux_trio.cores.exec.vocabulary import Chunk, FilePart, OutputRead, ReadOutput
from flux_trio.cores.turns import Log
from flux_trio.formats import format_fluid, job_key, parse_eventlog
from flux_trio.messages import Errno, Level, Response
from flux_trio.shell.protocol import Done, Started, TaskSize, Unknown
from tests.support.asking import asked
from tests.support.exec_script import (
    START_AT,
    ExecScript,
    files_read,
    jobspec,
    resources,
    stored_output,
    stored_release,
    timers,
    to_shell,
    told,
)

Files = dict[tuple[int, int, str], bytes]
FINISHED = [("finish", 0), ("release", "0", True)]
LIMIT = "system.shell.options.output.limit"
LONG = 3 * COPY_BYTES_MAX + 5


def done(jobid: int, files: Files) -> Done:
    """What the shell host says of a job that ended well."""
    ntasks = 1 + max([taskid for job, taskid, _ in files if job == jobid], default=0)
    sizes = []
    for taskid in range(ntasks):
        out, err = (len(files.get((jobid, taskid, name), b"")) for name in ("stdout", "stderr"))
        if out or err:
            sizes.append(TaskSize(taskid, out, err))
    return Done(jobid, 0, ntasks, [], sizes)


def started(jobid: int, ntasks: int = 1, **options: Any) -> ExecScript:
    script = ExecScript(**options)
    script.started(jobid, jobspec(ntasks=ntasks), resources({0: ntasks}))
    return script


def data_of(script: ExecScript, jobid: int, taskid: int = 0, stream: str = "stdout") -> bytes:
    """What the kvs has of one stream."""
    found = b""
    for piece in stored_output(script, jobid):
        for context in piece:
            if context.get("stream") == stream and context.get("rank") == str(taskid):
                data = context.get("data", "")
                is_text = "encoding" not in context
                found += data.encode() if is_text else base64.b64decode(data)
    return found


def notes_of(script: ExecScript, jobid: int) -> list[str]:
    pieces = stored_output(script, jobid)
    return [context["message"] for piece in pieces for context in piece if "message" in context]


@pytest.mark.parametrize(
    "data", [b"x" * LONG, b"\0" * LONG, b"\xff\n" * LONG, "é€".encode() * LONG]
)
def test_output_of_any_content_is_kept_whole_in_pieces(data: bytes) -> None:
    files = {(7, 0, "stdout"): data, (7, 0, "stderr"): b"oops"}
    script = started(7)
    actions = files_read(script, script(done(7, files)), files)
    assert told(actions) == FINISHED
    assert data_of(script, 7) == data
    assert data_of(script, 7, stream="stderr") == b"oops"
    assert len(stored_output(script, 7)) > len(data) // (4 * COPY_BYTES_MAX)
    sizes = [len(text.encode()) for ops in script.commits for _, _, *texts in ops for text in texts]
    assert max(sizes) < 2 * COPY_BYTES_MAX + 4096
    header, *pieces = [context for piece in stored_output(script, 7) for context in piece]
    assert header["version"] == 1
    assert all("version" not in context for context in pieces)
    assert [context["stream"] for context in pieces if "eof" in context] == ["stdout", "stderr"]


@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=6), st.integers(0, 40), st.integers(1, 3)
)
@settings(max_examples=200)
def test_whatever_the_tasks_write_is_kept_up_to_the_limit(
    outputs: list[bytes], limit: int, read_parts: int
) -> None:
    files = {(7, n // 2, ("stdout", "stderr")[n % 2]): data for n, data in enumerate(outputs)}
    total = sum(len(data) for data in outputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flux_trio.cores.exec.copying.READ_PARTS_MAX", read_parts)
        script = started(7, ntasks=3, output_limit=str(limit))
        assert told(files_read(script, script(done(7, files)), files)) == FINISHED
    written = b"".join(outputs)
    kept = b"".join(data_of(script, 7, taskid, stream) for _, taskid, stream in files)
    if total <= limit:
        assert (kept, notes_of(script, 7)) == (written, [])
    else:
        assert limit - 3 <= len(kept) <= limit  # no character is cut
        notes = []
        for stream in ("stdout", "stderr"):
            wrote = sum(len(data) for (_, _, each), data in files.items() if each == stream)
            lacks = wrote - sum(len(data_of(script, 7, taskid, stream)) for taskid in range(3))
            if lacks:
                notes.append(f"{stream}: {lacks} of {wrote} bytes truncated")
        assert notes_of(script, 7) == notes


def test_job_says_how_much_of_its_output_is_kept() -> None:
    files = {(7, 0, "stdout"): b"x" * 3000}
    script = ExecScript(output_limit="10")
    script.started(7, jobspec(attributes={LIMIT: "2K"}))
    assert told(files_read(script, script(done(7, files)), files)) == FINISHED
    assert len(data_of(script, 7)) == 2048
    assert notes_of(script, 7) == ["stdout: 952 of 3000 bytes truncated"]


def test_limit_that_cannot_be_read_is_an_exception() -> None:
    script = ExecScript()
    (exception, _) = told(script.start(7, jobspec(attributes={LIMIT: "much"})))
    assert exception[3].startswith(f"{LIMIT}: expected a number of bytes such as")


def test_many_tasks_that_write_little_are_read_a_few_at_a_time() -> None:
    ntasks = 2 * READ_PARTS_MAX + 1
    files = {(7, taskid, "stderr"): b"%d" % taskid for taskid in range(ntasks)}
    script = started(7, ntasks)
    (read,) = script(done(7, files))
    assert len(read.parts) == READ_PARTS_MAX
    assert told(files_read(script, [read], files)) == FINISHED
    assert data_of(script, 7, ntasks - 1, "stderr") == b"%d" % (ntasks - 1)


def test_no_more_is_read_of_a_job_than_is_being_stored() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = started(7)
    script.held = {"kvs.commit"}
    actions = script(done(7, files))
    nread = 0
    while reads := [each for each in actions if isinstance(each, ReadOutput)]:
        nread += sum(part.nbytes for read in reads for part in read.parts)
        actions = [left for read in reads for left in answered(script, read, files)]
    assert COPY_BYTES_MAX // 2 < nread <= COPY_BYTES_MAX
    assert told(files_read(script, script.let_go(), files)) == FINISHED
    assert data_of(script, 7) == files[7, 0, "stdout"]


def answered(script: ExecScript, read: ReadOutput, files: Files) -> list[Any]:
    """What follows when one read is answered."""
    return script(
        OutputRead(
            read.number,
            read.id,
            tuple(
                Chunk(
                    part.taskid,
                    part.stream,
                    part.offset,
                    files[read.id, part.taskid, part.stream][part.offset :][: part.nbytes],
                )
                for part in read.parts
            ),
        )
    )


def test_quiet_job_is_not_kept_waiting_by_huge_ones() -> None:
    """All copies share what may be read and not yet stored."""
    huge = range(10, 10 + 4 * COPIES_BYTES_MAX // COPY_BYTES_MAX)
    files = {(jobid, 0, "stdout"): b"x" * LONG for jobid in huge} | {(7, 0, "stdout"): b"hi"}
    script = ExecScript()
    for jobid in (7, *huge):
        script.started(jobid, jobspec())
    reads = script(*(done(jobid, files) for jobid in huge))
    assert sum(part.nbytes for read in reads for part in read.parts) <= 2 * COPIES_BYTES_MAX
    actions = script(done(7, files))
    assert [read.id for read in actions] == [7]
    assert told(files_read(script, actions, files)) == FINISHED
    for jobid, read in zip(huge[:3], reads, strict=False):
        assert told(files_read(script, [read], files)) == FINISHED
        assert data_of(script, jobid) == files[jobid, 0, "stdout"]


def test_more_copies_than_there_may_be_wait_for_one_to_end() -> None:
    jobs = range(10, 10 + COPIES_MAX + 1)
    files = {(jobid, 0, "stdout"): b"hi" for jobid in jobs}
    script = ExecScript()
    for jobid in jobs:
        script.started(jobid, jobspec())
    first, *reads = script(*(done(jobid, files) for jobid in jobs))
    assert len(reads) == COPIES_MAX - 1
    actions = files_read(script, [first], files)
    assert told(actions) == 2 * FINISHED  # the last one comes next
    assert data_of(script, jobs[-1]) == b"hi"


# While the job runs, if somebody reads


def running(files: Files) -> tuple[ExecScript, list[Any]]:
    """Somebody reads the output of job 7, which runs; what follows when its files were read."""
    script = started(7)
    return script, files_read(script, script(asked("job-exec.copy", {"id": 7})), files)


def copied(actions: list[Any]) -> bool:
    """Whether the reader was told that what there is, is stored."""
    return any(isinstance(each, Response) and each.topic == "job-exec.copy" for each in actions)


def test_output_of_a_running_job_is_stored_to_its_end_in_any_edition() -> None:
    """Readers follow it in the kvs."""
    files = {(7, 0, "stdout"): b"one\n"}
    script, actions = running(files)
    assert copied(actions)
    assert data_of(script, 7) == b"one\n"
    assert timers(actions) == [START_AT + POLL_S]
    files[7, 0, "stdout"] += b"two\n"
    (read,) = script.fire(actions)
    assert read.parts[0].offset == 4
    files_read(script, [read], files)
    assert data_of(script, 7) == b"one\ntwo\n"
    files[7, 0, "stdout"] += b"three\n"
    assert told(files_read(script, script(done(7, files)), files)) == FINISHED
    assert data_of(script, 7) == b"one\ntwo\nthree\n"
    events = parse_eventlog(script.kvs[job_key(7, "guest.exec.eventlog")])
    assert [each.name for each in events][-3:] == ["shell.start", "complete", "done"]
    assert job_key(7, "guest.flux-trio-written") not in script.kvs


def test_nothing_is_read_or_stored_when_nobody_looks() -> None:
    script = ExecScript()
    actions = script.started(7, jobspec())
    assert [each for each in actions if isinstance(each, ReadOutput)] == []
    assert timers(actions) == []
    assert script.commits == []


def test_long_output_is_read_on_at_once() -> None:
    script = started(7)
    (read,) = script(asked("job-exec.copy", {"id": 7}))
    (more,) = answered(script, read, {(7, 0, "stdout"): b"x" * LONG, (7, 0, "stderr"): b""})
    assert more.parts[0].offset == read.parts[0].nbytes


def test_character_that_is_cut_off_waits_for_its_rest() -> None:
    files = {(7, 0, "stdout"): "aé".encode()[:-1]}
    script, actions = running(files)
    assert data_of(script, 7) == b"a"
    (read, *_) = script.fire(actions)
    assert read.parts[0].offset == 1


def test_what_was_written_after_a_read_and_before_the_end_is_not_missed() -> None:
    files = {(7, 0, "stdout"): b"one\n"}
    script = started(7)
    (early,) = script(asked("job-exec.copy", {"id": 7}))
    script(done(7, files))
    (read,) = script(OutputRead(early.number, 7, ()))  # asked for while the job ran
    assert read.parts == (FilePart(0, "stdout", 0, 4),)
    assert told(files_read(script, [read], files)) == FINISHED
    assert data_of(script, 7) == b"one\n"


def test_what_was_read_for_an_earlier_start_of_the_job_does_not_count() -> None:
    """The job manager has forgotten the job, and its number comes again."""
    script = started(7)
    (early,) = script(asked("job-exec.copy", {"id": 7}))
    script(Unknown(7))
    script.started(7, jobspec())
    assert script(asked("job-exec.copy", {"id": 7}))
    assert script(OutputRead(early.number, 7, (Chunk(0, "stdout", 0, b"early\n"),))) == []
    assert data_of(script, 7) == b""


def test_each_job_has_commits_of_its_own() -> None:
    script = ExecScript()
    for jobid in (7, 8, 9):
        script.started(jobid, jobspec())
    script.refused_keys.add(job_key(8, "guest.output"))
    actions = script(*(Done(jobid, 0, 1) for jobid in (7, 8, 9)))
    assert told(actions) == FINISHED * 3
    acks = to_shell(script(stored_release(script, 7, 8, 9)))
    assert [ack.id for ack in acks] == [7, 9]
    assert stored_output(script, 7)
    assert stored_output(script, 9)


def test_what_the_kvs_refuses_never_changes_the_result_and_stays_with_the_shell_host() -> None:
    """32.criteria.3: a problem is communicated, 32.start.36: the job does not hang."""
    script = started(7)
    script.errors["kvs.commit"] = (Errno.EIO, "no disk")
    actions = script(Done(7, 0, 1))
    assert told(actions) == FINISHED
    assert to_shell(actions) == []
    (log,) = [action for action in actions if isinstance(action, Log)]
    assert log.level == Level.ERR
    assert log.text == "job ƒ8: its output is not stored, the shell host keeps it: no disk"


def test_output_that_is_refused_in_the_middle_ends_there_with_a_note() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = started(7)
    script.refused_keys.add(job_key(7, "guest.output.1"))
    actions = files_read(script, script(done(7, files)), files)
    assert told(actions) == FINISHED
    assert to_shell(actions) == []
    assert 0 < len(data_of(script, 7)) < LONG
    assert data_of(script, 7) == b"x" * len(data_of(script, 7))
    refusal = f"{job_key(7, 'guest.output.1')}: too long"
    assert notes_of(script, 7) == [f"output is cut off, the rest is refused: {refusal}"]


def test_service_that_comes_later_goes_on_where_the_one_before_has_ended() -> None:
    """16.schema.11: exec ended while it stored; the next one stores the rest of it."""
    files = {(7, 0, "stdout"): b"y" * LONG}
    before = started(7)
    (read,) = before(done(7, files))
    answered(before, read, files)
    assert 0 < len(data_of(before, 7)) < LONG
    script = ExecScript(kvs=before.kvs)
    script.start(7, jobspec(), resources(starttime=50.0), reattach=True)
    actions = script(Started(7)) + script(done(7, files))
    assert told(files_read(script, actions, files))[-2:] == FINISHED
    assert data_of(script, 7) == files[7, 0, "stdout"]


def test_files_that_lost_their_content_do_not_hang_the_job() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG, (7, 0, "stderr"): b"err"}
    script = started(7)
    actions = script(done(7, files))
    assert told(files_read(script, actions, {(7, 0, "stderr"): b"err"})) == FINISHED
    assert data_of(script, 7, stream="stderr") == b"err"


def test_end_of_the_job_is_in_the_last_commit() -> None:
    """16.schema.10, 16.schema.11: an output that is stored in part is not taken for all of it."""
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = started(7)
    files_read(script, script(done(7, files)), files)
    key = job_key(7, "guest.exec.eventlog")
    *before, last = [[op[1] for op in ops] for ops in script.commits]
    assert key in last
    assert len(before) > 2
    names = [event.name for event in parse_eventlog(script.kvs[key])]
    assert names[-2:] == ["complete", "done"]


def test_late_answers_are_nothing_to_us() -> None:
    script = started(7)
    assert script(OutputRead(1, 9, ()), Response("kvs.commit", {}, 0, 999)) == []


@pytest.mark.parametrize("errors", [None, {"type": "kvs"}, {"type": "file", "path": "err"}])
def test_the_log_tells_which_file_has_the_output_of_a_stream(errors: Any) -> None:
    """RFC 24, Redirect Event; what differs for each task stays a tag, as in flux-core."""
    options = "system.shell.options.output"
    attributes = {f"{options}.stdout": {"type": "file", "path": "out-{{id}}-{{taskid}}"}}
    if errors is not None:
        attributes[f"{options}.stderr"] = errors
    script = ExecScript()
    script.started(7, jobspec(ntasks=2, attributes=attributes), resources({0: 2}))
    files: Files = {}
    files_read(script, script(done(7, files)), files)
    (piece,) = stored_output(script, 7)
    out = f"out-{format_fluid(7, 'f58')}-{{{{taskid}}}}"
    paths = {"stdout": out, "stderr": out}
    if errors is not None:
        paths = {"stdout": out, **({"stderr": "err"} if "path" in errors else {})}
    assert [each for each in piece if "path" in each] == [
        {"stream": stream, "rank": "[0-1]", "path": path} for stream, path in paths.items()
    ]
