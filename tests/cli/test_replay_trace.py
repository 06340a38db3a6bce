"""`flux-trio replay` of the trace of an instance, and the prompt of `--step`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.cores.sched.core import SchedCore
from flux_trio.messages import FluxError
from flux_trio.testing import InstanceHarness
from flux_trio.testing.fakes import FakeScheduler
from tests.support.feeding import piped
from tests.support.instance import DEADLINE_S, FLUX_TRIO, RunningInstance, environment, flux_trio
from tests.support.replayed import Kept, recording
from tests.support.terminal import on_terminal

NO_HELLO = "32.hello.4"
RUN = shlex.join(FLUX_TRIO)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        env=environment(),
        capture_output=True,
        encoding="latin-1",
        timeout=DEADLINE_S,
        check=False,
    )


def replay(*args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["replay", *map(str, args)], prog_name="flux-trio")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an instance that has run a job; then a client broke a clause."""
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(breaking=None) as instance:
        instance.wait(instance.submit(run_s=5.0))
        with pytest.raises(FluxError):
            instance.request("job-manager.exec-hello", {"service": 7})
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("".join(kept[0].lines()))
    return path


def test_scheduler_with_a_policy_of_a_file_is_replayed(tmp_path: Path) -> None:
    shutil.copy("docs/howto/policies/shortest.py", tmp_path / "mine.py")
    trace, state = tmp_path / "trace.jsonl", tmp_path / "state"
    policy = f"{tmp_path / 'mine.py'}:Shortest"
    options = shlex.join(["--policy", policy, "--statedir", str(state), "--trace", str(trace)])
    recorded = shell(f"{RUN} start {options} {RUN} run true")
    assert recorded.returncode == 0, recorded.stderr
    # Another process, in which nothing has loaded the policy.
    told = shell(f"{RUN} replay {trace}")
    assert "every core did what is recorded" in told.stdout, told.stderr
    (tmp_path / "mine.py").unlink()
    told = shell(f"{RUN} replay {trace}")
    assert f"no policy {tmp_path / 'mine.py'}: No such file or directory" in told.stderr


def nturns(trace: Path) -> int:
    return sum('"kind":"turn"' in line for line in trace.read_text().splitlines())


def test_trace_is_replayed_and_nothing_differs(trace: Path) -> None:
    result = replay(trace)
    assert result.stdout == f"every core did what is recorded, in {nturns(trace)} turns\n"
    assert result.exit_code == 0


def test_last_line_that_was_cut_is_named(trace: Path, tmp_path: Path) -> None:
    text = trace.read_text()
    (tmp_path / "cut.jsonl").write_text(text[:-20])
    result = replay(tmp_path / "cut.jsonl")
    left_out, all_did = result.stdout.splitlines()
    nlines = text.count("\n")
    assert left_out == f"line {nlines}, the last one, is not complete, and was left out"
    assert all_did.startswith("every core did what is recorded")
    assert result.exit_code == 0


def test_last_line_may_be_cut_in_a_character(trace: Path, tmp_path: Path) -> None:
    whole = trace.read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole + "\u00e9".encode()[:1])
    result = replay(tmp_path / "cut.jsonl")
    left_out, all_did = result.stdout.splitlines()
    nlines = len(whole.splitlines())
    assert left_out.startswith(f"line {nlines + 1}, the last one, is not complete")
    assert all_did.startswith("every core did what is recorded")
    assert result.exit_code == 0


@pytest.mark.parametrize("options", [(), ("--step",)])
def test_pipe_is_read_once(trace: Path, options: tuple[str, ...]) -> None:
    with piped(trace.read_bytes()) as pipe:
        result = replay(pipe, *options)
    assert result.stdout.splitlines()[-1].startswith("every core did what is recorded")
    assert result.exit_code == 0


def test_fifo_is_opened_once(trace: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cp", trace, fifo]) as feeder:
        result = replay(fifo)
        feeder.kill()
    assert result.stdout.startswith("every core did what is recorded")
    assert result.exit_code == 0


def test_trace_from_standard_input_is_no_commands(trace: Path) -> None:
    result = shell(f"cat {trace} | {RUN} replay --step /dev/stdin")
    assert result.stdout.splitlines()[-1].startswith("every core did what is recorded")
    assert result.returncode == 0


def test_plan_in_a_pipe_and_a_device_are_refused() -> None:
    said = "expected a trace as JSON lines, or a plan in a file that can be read twice, got a pipe"
    with piped(b"seed = 1\n") as pipe:
        result = replay(pipe)
    assert f"flux-trio replay: ERROR: {pipe}: {said}" in result.stderr
    assert result.exit_code == 2
    assert f"/dev/zero: {said}" in replay("/dev/zero").stderr


def test_full_output_is_no_error_of_the_trace(trace: Path) -> None:
    result = shell(f"{RUN} replay --step {trace} </dev/null >/dev/full")
    assert result.stderr == "flux-trio: ERROR: standard output: No space left on device\n"


def test_character_that_the_output_cannot_show_is_shown_by_its_number(trace: Path) -> None:
    result = shell(f"PYTHONIOENCODING=latin-1 {RUN} replay --step {trace} </dev/null")
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\u0192" in result.stdout


def test_trace_without_one_of_its_lines_may_miss_records(trace: Path, tmp_path: Path) -> None:
    lines = trace.read_text().splitlines(keepends=True)
    sent = next(n for n, line in enumerate(lines) if '"kind":"send"' in line)
    (tmp_path / "gap.jsonl").write_text("".join(lines[:sent] + lines[sent + 1 :]))
    result = replay(tmp_path / "gap.jsonl")
    assert result.exit_code == 2
    assert re.search(r"at most 4096 before, got \d+: records may be missing", result.stderr)


def test_first_difference_is_told(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = SchedCore.turn

    def without_free(self: SchedCore, *args: Any) -> list[Any]:
        return [each for each in turn(self, *args) if getattr(each, "topic", "") != "sched.free"]

    monkeypatch.setattr(SchedCore, "turn", without_free)
    result = replay(trace)
    (line,) = result.stdout.splitlines()
    assert line.startswith("sched differs, record ")
    assert ": expected response sched.free {" in line
    assert ", got state {" in line
    assert result.exit_code == 1


def test_error_of_a_core_is_told_with_its_place_if_it_is_raised_as_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_trio.cores.sched.core.AllocAnswer", None)
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(breaking=None) as instance:
        instance.submit(run_s=5.0)
        instance.advance(1.0)
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(kept[0].lines()))
    error = r"TypeError: 'NoneType' object is not callable \(flux_trio/cores/sched/core\.py:\d+\)"
    result = replay(path)
    raised, all_did = result.stdout.splitlines()
    assert re.fullmatch(rf"sched raised as recorded, record \d+: {error}", raised)
    assert all_did == f"every core did what is recorded, in {nturns(path)} turns"
    assert result.exit_code == 0
    lines = replay(path, "--step").stdout.splitlines()
    shown = next(
        at for at, line in enumerate(lines) if re.fullmatch(rf" +sched raises {error}", line)
    )
    head = max(at for at in range(shown) if lines[at].startswith("turn "))
    assert any("sched takes response kvs.commit" in line for line in lines[head:shown])
    monkeypatch.undo()
    difference = replay(path)
    assert "sched differs at what it raises, record " in difference.stdout
    assert "raised as recorded" not in difference.stdout
    assert difference.exit_code == 1


def test_each_turn_is_shown_with_what_it_changed(trace: Path) -> None:
    lines = replay(trace, "--step").stdout.splitlines()
    heads = [line for line in lines if line.startswith("turn ")]
    assert heads == [f"turn {number}" for number in range(1, nturns(trace) + 1)]
    alloc = next(at for at, line in enumerate(lines) if "sched takes request sched.alloc" in line)
    end = next(at for at in range(alloc, len(lines)) if lines[at].startswith("turn "))
    shown = lines[alloc:end]
    assert any(line.strip().startswith("sched: context.schedule") for line in shown)
    assert any("sched asks kvs.commit" in line or "kvs.commit" in line for line in shown)
    assert any("takes the timer " in line for line in lines)


def test_replay_stops_when_the_clause_is_broken(trace: Path) -> None:
    result = replay(trace, "--until", NO_HELLO)
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{NO_HELLO} is broken in turn ")
    assert {line.strip().partition(": ")[0] for line in lines[1:]} == set(MODULES)
    assert result.exit_code == 1


MODULES = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")


def test_name_of_no_clause_is_wrong_usage(trace: Path) -> None:
    result = replay(trace, "--until", "answered")  # a property of worlds
    assert result.exit_code == 2
    assert "--until: expected a clause, such as 27.alloc.1; got answered (see" in result.stderr


def test_clause_that_is_not_broken_stops_nothing(trace: Path) -> None:
    result = replay(trace, "--until", "27.alloc.2")
    assert "every core did what is recorded" in result.stdout
    assert result.exit_code == 0


def test_module_without_turns_is_named(tmp_path: Path) -> None:
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(breaking=None) as instance:
        instance.play("sched", FakeScheduler())
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(kept[0].lines()))
    result = replay(path)
    assert result.stdout.startswith("sched is not replayed: its turns are not recorded, from ")
    assert result.exit_code == 0


@pytest.mark.parametrize("form", ["without turns", "recording"])
def test_trace_without_turns_is_refused_with_the_reason(
    trace: Path, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "trace.jsonl"
    lines = trace.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"kind":"turn"' not in line]
    path.write_text("".join(kept) if form == "without turns" else '{"messages": []}')
    result = replay(path)
    assert result.exit_code == 2
    assert f"{path}: a replay needs the turns of the cores, and the trace has none" in result.stderr


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ('{"kind": "send"}\n', "line 1: expected the key n, got nothing"),
        ('{"n":1,"t":1.0,"kind":"turn","party":"sched","data":{"now":1}}\n', "the start of sched"),
        (
            '{"n":1,"t":1.0,"kind":"turn","party":"sched","data":{"core":7}}\n',
            "turn of sched after record",
        ),
    ],
)
def test_bad_trace_says_why(tmp_path: Path, edit: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(edit)
    result = replay(path)
    assert result.exit_code == 2
    assert f"{path}: the trace cannot be replayed: " in result.stderr
    assert said in result.stderr


def test_error_of_a_mended_constructor_is_told_with_its_place(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(self: SchedCore, *_args: Any, **_kwargs: Any) -> None:
        self.config.typo  # type: ignore[attr-defined]  # noqa: B018

    monkeypatch.setattr(SchedCore, "__init__", make)
    result = replay(trace)
    assert result.exit_code == 2
    assert re.search(
        r"trace\.jsonl: the core of sched cannot be made in this version, .*: AttributeError: .*"
        r"'config' \(.*test_replay_trace\.py:\d+\)\n",
        result.stderr,
    )


@pytest.mark.parametrize("option", [("--story",), ("--depth", "stack"), ("--store", "memory")])
def test_options_of_plans_are_refused(trace: Path, option: tuple[str, ...]) -> None:
    result = replay(trace, *option)
    assert result.exit_code == 2
    assert "a trace is replayed without --story, --property, --depth and" in result.stderr


def test_trace_may_have_a_byte_order_mark(trace: Path, tmp_path: Path) -> None:
    marked = tmp_path / "trace.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + trace.read_bytes())
    whole, result = replay(trace), replay(marked)
    assert (result.exit_code, result.stderr) == (whole.exit_code, whole.stderr)
    assert result.stdout.replace(str(marked), str(trace)) == whole.stdout


def test_file_that_is_no_trace_is_told_what_a_trace_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.touch()
    result = replay(path)
    assert result.exit_code == 2
    assert "expected a trace: JSON lines, a JSON object with messages, or" in result.stderr
    empty_plan = tmp_path / "plan.toml"
    empty_plan.write_text("")
    assert "the plan cannot be played: expected the key seed" in replay(empty_plan).stderr


def test_story_has_no_steps(trace: Path) -> None:
    for source in (trace, 3):
        result = replay(source, "--story", "--step")
        assert result.exit_code == 2
        assert "--story tells no single turns: expected it without --step" in result.stderr


# --- the prompt


@pytest.mark.real
@pytest.mark.parametrize(
    ("what", "key", "code"), [("seed", "\x04", 0), ("trace", "\x03", -signal.SIGINT)]
)
def test_ctrl_d_ends_the_replay_and_ctrl_c_the_process(
    trace: Path, what: str, key: str, code: int
) -> None:
    source = "3" if what == "seed" else str(trace)
    with on_terminal("replay", source, "--step") as terminal:
        terminal.until("> ")
        terminal.press(key)
        rest, ended = terminal.until_end()
    assert "turn 2" not in rest
    assert "Aborted" not in rest
    assert ended == code


@pytest.mark.real
@pytest.mark.parametrize("what", ["seed", "trace"])
def test_prompt_of_step_shows_states_goes_on_and_ends(trace: Path, what: str) -> None:
    source = "3" if what == "seed" else str(trace)
    with on_terminal("replay", source, "--step") as terminal:
        if what == "seed":
            assert "at the start\n" in terminal.until("> ")
            terminal.type("")
        assert "turn 1\n" in terminal.until("> ")
        terminal.type("")
        assert "turn 2\n" in terminal.until("> ")
        terminal.type("nobody")
        assert "expected one of kvs" in terminal.until("or a command, see help: got nobody")
        terminal.until("> ")
        terminal.type("kvs")
        assert " kvs: " in terminal.until("> ")
        terminal.type("q")
        rest, code = terminal.until_end()
        assert "turn 3" not in rest
        assert code == 0


def test_trace_takes_commands_that_look_and_refuses_to_be_interfered_with(trace: Path) -> None:
    def after(*commands: str) -> click.testing.Result:
        text = "".join(f"{each}\n" for each in commands)
        return click.testing.CliRunner().invoke(main, ["replay", str(trace), "--step"], text)

    looks = after("", "states", "kvs", "end")
    assert looks.exit_code == 0
    assert "> states\n               kvs: " in looks.stdout
    assert looks.stdout.splitlines()[-1].startswith("every core did what is recorded, in ")
    helped = after("", "help", "q").stdout.splitlines()
    begin = helped.index("> help") + 1
    listed = [line.split()[0] for line in helped[begin : helped.index("> q")]]
    assert listed == ["step", "states", "end", "help", "q"]
    refused = after("", "crash sched")
    assert refused.exit_code == 2
    expected = "line 2: expected a world, got a recorded trace: what has happened is not changed"
    assert expected in refused.stderr


# --- a real instance


@pytest.mark.real
def test_real_instance_is_replayed_while_it_runs_and_judged(own_instance: RunningInstance) -> None:
    jobs = [own_instance.submitted("true") for _ in range(3)]
    sleeper = own_instance.submitted("sleep", "300")
    for job in jobs:
        own_instance.ok("job", "wait-event", job, "clean")
    own_instance.ok("module", "reload", "sched")
    own_instance.ok("cancel", sleeper)
    own_instance.ok("job", "wait-event", sleeper, "clean")
    trace = own_instance.statedir / "trace.jsonl"  # not complete: the instance goes on
    result = flux_trio("replay", trace)
    assert result.stdout.startswith("every core did what is recorded, in "), result.stderr
    assert result.returncode == 0
    assert flux_trio("check", trace).returncode in (0, 1)
