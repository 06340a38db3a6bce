"""Keeping the output of jobs that have ended, as a script that plays the files and the kvs."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.cores.exec.keeping import READ_BYTES_MAX, READ_PARTS_MAX
from flux_trio.cores.exec.storing import LANE_BYTES_MAX
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput
from flux_trio.cores.turns import Log
from flux_trio.formats import format_fluid, job_key, parse_eventlog
from flux_trio.messages import Errno, Level, Request, Response
from flux_trio.shell.protocol import Done, Started, TaskSize
from tests.support.exec_script import (
    START_AT,
    ExecScript,
    files_read,
    jobspec,
    resources,
    stored_output,
    stored_release,
    to_shell,
    told,
)

Files = dict[tuple[int, int, str], bytes]
FINISHED = [("finish", 0), ("release", "0", True)]
LIMIT = "system.shell.options.output.limit"
LONG = 3 * READ_BYTES_MAX + 5


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
    assert len(script.commits) == len(stored_output(script, 7)) >= len(data) // READ_BYTES_MAX
    sizes = [len(text.encode()) for ops in script.commits for _, _, text in ops]
    assert max(sizes) < 2 * READ_BYTES_MAX + 4096
    header, *pieces = [context for piece in stored_output(script, 7) for context in piece]
    assert header["version"] == 1
    assert all("version" not in context for context in pieces)
    assert [context["stream"] for context in pieces if "eof" in context] == ["stdout", "stderr"]


@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(3, 9),
    st.integers(1, 3),
)
@settings(max_examples=200)
def test_whatever_the_tasks_write_is_kept_up_to_the_limit(
    outputs: list[bytes], limit: int, read_bytes: int, read_parts: int
) -> None:
    files = {(7, n // 2, ("stdout", "stderr")[n % 2]): data for n, data in enumerate(outputs)}
    total = sum(len(data) for data in outputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flux_trio.cores.exec.keeping.READ_BYTES_MAX", read_bytes)
        patch.setattr("flux_trio.cores.exec.keeping.READ_PARTS_MAX", read_parts)
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
    assert len(stored_output(script, 7)) == 3


def test_one_part_of_a_job_is_on_its_way_at_a_time() -> None:
    files = {(7, 0, "stdout"): b"x" * LONG}
    script = started(7)
    (read,) = script.core.turn(START_AT, [done(7, files)])
    assert isinstance(read, ReadOutput)
    chunk = Chunk(0, "stdout", 0, files[7, 0, "stdout"][:READ_BYTES_MAX])
    (commit,) = script.core.turn(START_AT, [OutputRead(None, 7, (chunk,))])
    assert isinstance(commit, Request)
    (read,) = script.core.turn(START_AT, [script._kvs(commit)])
    assert isinstance(read, ReadOutput)
    assert read.parts[0].offset == READ_BYTES_MAX


def test_quiet_job_is_not_kept_waiting_by_huge_ones() -> None:
    huge = range(10, 10 + 2 * LANE_BYTES_MAX // READ_BYTES_MAX)
    files = {(jobid, 0, "stdout"): b"x" * LONG for jobid in huge} | {(7, 0, "stdout"): b"hi"}
    script = ExecScript()
    for jobid in (7, *huge):
        script.started(jobid, jobspec())
    reads = script(*(done(jobid, files) for jobid in huge))
    assert len(reads) == LANE_BYTES_MAX // READ_BYTES_MAX  # the others wait for their turn
    actions = script(done(7, files))
    assert [read.id for read in actions] == [7]
    assert told(files_read(script, actions, files)) == FINISHED
    assert len(told(files_read(script, reads, files))) == 2 * len(huge)
    assert all(data_of(script, jobid) == files[jobid, 0, "stdout"] for jobid in huge)


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
    assert len(data_of(script, 7)) == READ_BYTES_MAX
    refusal = f"{job_key(7, 'guest.output.1')}: too long"
    assert notes_of(script, 7) == [f"output is cut off, the rest is refused: {refusal}"]


def test_service_that_begins_anew_leaves_nothing_of_the_one_before() -> None:
    """16.schema.11: exec ended while it stored; the next one stores all of it."""
    files = {(7, 0, "stdout"): b"y" * LONG}
    old = {job_key(7, f"guest.output.{n}"): "old\n" for n in (1, 2)}
    script = ExecScript(kvs=old, output_limit=str(READ_BYTES_MAX + 1))
    script.start(7, jobspec(), resources(starttime=50.0), reattach=True)
    script(Started(7))
    assert told(files_read(script, script(done(7, files)), files)) == FINISHED
    assert len(data_of(script, 7)) == READ_BYTES_MAX + 1
    assert len(stored_output(script, 7)) == 2


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
    assert [key in [op[1] for op in ops] for ops in script.commits] == [False] * 3 + [True]
    names = [event.name for event in parse_eventlog(script.kvs[key])]
    assert names[-2:] == ["complete", "done"]


def test_late_answers_of_the_kvs_are_nothing_to_us() -> None:
    script = started(7)
    assert script(OutputRead(None, 9, ()), Response("kvs.commit", {}, 0, 999)) == []


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
