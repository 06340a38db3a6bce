"""`flux-trio check`: what it reads, writes, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import click.testing
import msgspec
import pytest

from flux_trio.cli import main
from flux_trio.trace import record_to_json
from tests.support.feeding import piped
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of

RECORDING = Path(__file__).parents[1] / "data" / "messages" / "45-rpc-errors.json"


def check(*args: str | Path) -> click.testing.Result:
    arguments = ["check", *map(str, args)]
    return click.testing.CliRunner().invoke(main, arguments, prog_name="flux-trio")


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    path = tmp_path / "clean.jsonl"
    path.write_bytes(b"".join(record_to_json(each) + b"\n" for each in trace_of("everyday")))
    return path


def test_clean_trace_of_ours_breaks_nothing(clean: Path) -> None:
    result = check(clean)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "(JSON lines, " in result.stdout


def test_trace_is_judged_by_the_edition_that_its_instance_spoke(tmp_path: Path) -> None:
    log, path = tmp_path / "jobs.swf", tmp_path / "current.jsonl"
    log.write_text("".join(f"{n} {n} 0 9 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n" for n in (1, 2)))
    machine = ["--nodes", "1", "--cores", "4", "--edition", "current"]
    words = ["simulate", str(log), *machine, "--trace", str(path)]
    made = click.testing.CliRunner().invoke(main, words, prog_name="flux-trio")
    assert (made.exit_code, made.stderr) == (0, "")
    assert check(path).exit_code == 0
    assert check("--edition", "current", path).stdout == check(path).stdout
    wrong = check("--edition", "classic", path)
    assert wrong.exit_code == 1
    assert "28.acquire.1 broken by sched" in wrong.stdout
    page = tmp_path / "page.html"
    words = ["view", str(path), "-o", str(page)]
    assert click.testing.CliRunner().invoke(main, words, prog_name="flux-trio").exit_code == 0
    assert "28.acquire.1 broken" not in page.read_text()


def test_broken_clause_is_told_with_exit_code_1(tmp_path: Path) -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[0]
    path = tmp_path / "broken.jsonl"
    broken = edit_payload(trace, alloc, id="seven")
    path.write_bytes(b"".join(record_to_json(each) + b"\n" for each in broken))
    result = check(path)
    assert result.exit_code == 1
    assert "27.alloc.2 broken by job-manager" in result.stdout
    assert f"{alloc.n} " in result.stdout


def test_known_departures_of_flux_core_do_not_count() -> None:
    told = ["--edition", "current", RECORDING.with_name("01-single-job-lifecycle.json")]
    assert check(*told).exit_code == 1
    result = check("--known", "flux-core-0.88", *told)
    assert result.exit_code == 0
    assert "  32.start.20      1 time         job-exec releases all ranks" in result.stdout
    assert "  27.expiration.3  did not occur  " in result.stdout


def test_another_violation_counts_beside_the_known_ones() -> None:
    result = check("--edition", "current", "--known", "flux-core-0.88", RECORDING)
    assert result.exit_code == 1
    assert "known departures" in result.stdout


def test_departures_are_read_from_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[[known]]\nclause = "32.start.20"\nwhy = "I know."\n')
    recording = RECORDING.with_name("01-single-job-lifecycle.json")
    assert check("--edition", "current", "--known", mine, recording).exit_code == 0
    mine.write_text("[[known]]\n")
    result = check("--known", mine, recording)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "mine.toml: " in result.stderr
    result = check("--known", "flux-core-9", recording)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "flux-core-9: No such file or directory, and it is not one of flux-core-0.88" in (
        result.stderr
    )


def test_forms_are_written_to_a_file(tmp_path: Path) -> None:
    starts = {"text": "", "json": "{", "junit": "<?xml", "html": "<!DOCTYPE html>"}
    for form, start in starts.items():
        output = tmp_path / form
        result = check(RECORDING, "--edition", "current", "--format", form, "-o", output)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")
        assert output.read_text().startswith(start)
    found = msgspec.json.decode((tmp_path / "json").read_bytes())
    assert (found["trace"], found["form"]) == (RECORDING.name, "recording of messages")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected a trace: JSON lines, a JSON object with messages, or"),
        (b'{"n": 1}\n', "line 1: expected the key t, got nothing"),
        (b"\xff\xfe", "no UTF-8 text"),
        (b'{"version": 1}', "line 1: expected only the keys of the format, got the key version"),
        (b'{"version": 1, "na', "line 1: expected"),
        (b'{"n": 1}', "line 1: expected the key t, got nothing"),
    ],
)
def test_what_is_no_trace_is_told_with_exit_code_2(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    result = check(path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"flux-trio check: ERROR: {path}: ")
    assert said in result.stderr


def test_first_line_that_was_cut_is_passed_over_and_said(tmp_path: Path) -> None:
    """Of a trace whose disk was full at once."""
    path = tmp_path / "trace"
    path.write_bytes(b'{"n":1,"t":1000.0,"kind":"sta')
    result = check(path)
    assert result.exit_code == 0
    assert "the trace is not whole: line 1 is cut off" in result.stderr


def test_trace_may_have_a_byte_order_mark(clean: Path) -> None:
    whole = check(clean)
    clean.write_bytes(b"\xef\xbb\xbf" + clean.read_bytes())
    assert (check(clean).exit_code, check(clean).stdout) == (0, whole.stdout)


def test_last_line_that_was_cut_in_a_character_is_passed_over(clean: Path) -> None:
    whole = check(clean)
    clean.write_bytes(clean.read_bytes() + "\u00e9".encode()[:1])
    assert (check(clean).exit_code, check(clean).stdout) == (0, whole.stdout)


def test_pipe_is_read_once(tmp_path: Path) -> None:
    trace = trace_of("everyday")
    broken = edit_payload(trace, find_all(trace, "sched.alloc", "request")[0], id="seven")
    data = b"".join(record_to_json(each) + b"\n" for each in broken)
    path = tmp_path / "broken.jsonl"
    path.write_bytes(data)
    with piped(data) as pipe:
        result = check(pipe)
    assert result.stdout == check(path).stdout
    assert result.exit_code == 1


def test_file_that_is_not_there_is_told_with_exit_code_2(tmp_path: Path) -> None:
    result = check(tmp_path / "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("/none: No such file or directory\n")


def test_trace_is_not_replaced_by_its_report(clean: Path) -> None:
    before = clean.read_bytes()
    result = check(clean, "-o", clean)
    assert result.exit_code == 2
    assert "expected another file than the trace" in result.stderr
    assert clean.read_bytes() == before
