"""`flux-trio replay --step` takes commands: a world is stopped, looked at and interfered with."""

from __future__ import annotations

import re
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.cli.lab import replay_prompt
from flux_trio.cli.lab.replay_prompt import Prompt
from flux_trio.cli.lab.replay_words import USAGES
from flux_trio.lab import CoresWorld, JobPlan, Plan, Setup, after_each_step, run_plan
from flux_trio.lab.plans.files import plan_to_toml
from flux_trio.lab.plans.plan import Depth

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "faults.md"
MODULES = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")
PLAN = Plan(1, jobs=(JobPlan(), JobPlan()))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two jobs, without faults."""
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(PLAN))
    return path


def by_hand(plan: Path | str, *commands: str, args: tuple[str, ...] = ()) -> click.testing.Result:
    runner = click.testing.CliRunner()
    text = "".join(f"{each}\n" for each in commands)
    return runner.invoke(main, ["replay", str(plan), "--step", *args], text, prog_name="flux-trio")


def after(result: click.testing.Result, command: str) -> list[str]:
    """Return what is shown after the first such command, up to the next one."""
    lines = result.stdout.splitlines()
    begin = lines.index(f"> {command}") + 1
    rest = lines[begin:]
    return rest[: next((n for n, line in enumerate(rest) if line.startswith("> ")), len(rest))]


def test_grant_is_held_until_it_is_released(plan: Path) -> None:
    result = by_hand(
        plan, "stop sched.alloc send response", "hold", "run", "release", "stop state 0 RUN", "end"
    )
    stopped = after(result, "stop sched.alloc send response")
    assert stopped[-1].startswith("stopped after ")
    assert any("sched sends response sched.alloc" in line for line in stopped)
    assert after(result, "hold") == ["response sched.alloc to job-manager"]
    rest = after(result, "run")
    at = next(n for n, line in enumerate(rest) if line.startswith("at rest after "))
    assert rest[at + 1 :] == [
        "  job 0 is in SCHED",
        "  job 1 is in SCHED",
        "  response sched.alloc to job-manager is held",
        "  no property is broken so far",
    ]
    assert after(result, "release") == ["response sched.alloc to job-manager"]
    assert after(result, "end")[0] == "--- from here on everything is put right"
    assert result.stdout.splitlines()[-1].startswith("every property held, in ")
    assert result.exit_code == 0


def test_module_is_crashed_unloaded_and_loaded(plan: Path) -> None:
    result = by_hand(
        plan,
        "stop sched.alloc 2 recv",
        "crash sched",
        "sched",
        "unload job-list",
        "run",
        "load sched",
        "run",
        "end",
    )
    assert any(
        line.endswith("sched has crashed: killed on request")
        for line in after(result, "crash sched")
    )
    assert after(result, "sched") == [f"{'':15}sched: the module is not there"]
    assert {"  sched is not there", "  job-list is not there"} <= set(after(result, "run"))
    assert any(line.endswith("sched is loaded") for line in after(result, "load sched"))
    assert "  job 1 is in INACTIVE" in result.stdout.splitlines()
    assert result.exit_code == 0


def test_what_drop_and_duplicate_break_is_told(plan: Path) -> None:
    result = by_hand(plan, "stop sched.alloc response send", "drop", "run")
    assert any("the broker drops response sched.alloc" in line for line in after(result, "run"))
    assert result.exit_code == 1
    assert any(line.startswith("inactive: ") for line in result.stdout.splitlines())
    twice = by_hand(plan, "stop sched.alloc send response", "duplicate", "run")
    assert "  broken so far: 27.success.6, 3.routing.5, held" in after(twice, "run")
    assert any(line.startswith("3.routing.5: record ") for line in twice.stdout.splitlines())


def test_message_is_delayed_and_stops_are_at_times_and_events(plan: Path) -> None:
    commands = ("stop sched.alloc send response", "delay 7", "stop at 3", "stop event alloc job 0")
    result = by_hand(plan, *commands)
    assert after(result, "delay 7") == ["response sched.alloc to job-manager"]
    assert re.fullmatch(
        r"stopped after \d+ turns, 3 s after the start", after(result, "stop at 3")[-1]
    )
    stopped = after(result, "stop event alloc job 0")
    assert any(line.endswith(" 7 s after the start") for line in stopped)


def test_states_are_shown_at_the_start_and_when_they_are_asked_for(plan: Path) -> None:
    result = by_hand(plan, "states", "", "job-manager")
    lines = result.stdout.splitlines()
    assert lines[1] == "at the start"
    first = lines[2 : lines.index("> states")]
    assert first == after(result, "states")
    assert tuple(dict.fromkeys(line.split(":")[0].strip() for line in first)) == MODULES
    assert f'{"":15}job-ingest: submissions.config.edition = "classic"' in first
    assert after(result, "")[0] == "turn 1"
    assert any(
        "job-manager: parts.scheduler.link.state = " in line
        for line in after(result, "job-manager")
    )


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_turns_are_the_same_whether_commands_come_or_not(plan: Path, depth: Depth) -> None:
    depths = ("--depth", depth)
    free = by_hand(plan, args=depths).stdout.splitlines()
    assert not any(line.startswith((">", "---")) for line in free)
    stepped = by_hand(plan, "", "", "help", "kvs", "run", "end", args=depths).stdout.splitlines()
    records = re.compile(r" {5,}[ \d]\d\.\d{3} s ")
    assert list(filter(records.match, stepped)) == list(filter(records.match, free))
    assert free[-1].startswith("every property held, in ")
    assert stepped[-1].startswith("every property held, in ")


def test_turn_that_was_interrupted_goes_on(plan: Path) -> None:
    stop = "stop job-ingest.submit recv"
    result = by_hand(plan, stop, "step", "q")
    turn = [line for line in after(result, stop) if line.startswith("turn ")][-1]
    first, *more = after(result, "step")
    assert first == f"{turn} goes on"
    assert any(line.strip().startswith("job-ingest: ") for line in more)


def test_enter_at_rest_puts_everything_right_turn_by_turn(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(Plan(1, jobs=(JobPlan(urgency=0),))))
    result = by_hand(path, "run", "", "states", "step")
    lines = result.stdout.splitlines()
    assert after(result, "")[0] == "--- from here on everything is put right"
    assert sum(line.startswith("turn ") for line in after(result, "")) == 1
    assert lines[-1].startswith("every property held")
    refused = by_hand(path, "run", "", "crash sched")
    assert refused.exit_code == 2
    assert (
        "line 3: expected a world by hand, got one in which everything is put right"
        in refused.stderr
    )


def test_end_of_the_replay(plan: Path) -> None:
    result = by_hand(plan, "q", "step")
    assert result.stdout.splitlines()[-1] == "> q"
    assert result.exit_code == 0
    commands = ("stop sched.alloc send response", "duplicate", "run", "step")
    until = by_hand(plan, *commands, args=("--until", "3.routing.5"))
    assert any(line.startswith("3.routing.5 is broken in turn ") for line in after(until, "run"))
    assert "> step" not in until.stdout
    assert until.exit_code == 1


@pytest.mark.parametrize(
    "command",
    ["stop event nope job 0 2", "stop event nope", "stop state 0 NEW", "stop sched.nope 2 send"],
)
def test_moment_that_does_not_come_is_told_as_it_was_typed(plan: Path, command: str) -> None:
    result = by_hand(plan, "stop state 1 CLEANUP", command)
    assert result.exit_code == 2
    said = rf"the moment did not come: all is at rest after \d+ steps: {re.escape(command)}\n"
    assert re.search(said, result.stderr), result.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("stopp sched.alloc", "expected one of kvs, "),
        ("stop", "expected stop TOPIC [NTH] [send|recv] [request|response|event], got stop"),
        ("stop sched.alloc 0", "expected stop TOPIC [NTH]"),
        ("stop event", "expected stop event NAME [job JOB] [NTH], got stop event"),
        ("stop event start job 2", "expected the place of one of the 2 jobs, from 0, got 2"),
        ("stop state 0 RUNS", "expected a state of a job, one of NEW, DEPEND, PRIORITY, "),
        ("stop state 0", "expected stop state JOB STATE, got stop state 0"),
        ("stop at soon", "expected stop at SECONDS, got stop at soon"),
        ("stop at -1", "seconds: expected "),
        ("stop at 1e99", "seconds: expected float <= 100000000.0, got 1e+99"),
        ("stop sched.prioritize", "the moment did not come: all is at rest after "),
        ("hold", "expected a message that was sent and not received, got none here"),
        ("release", "expected a message that is held by hand, got none"),
        ("crash", "expected crash MODULE, got crash"),
        ("crash job_exec", "module: expected one of kvs, resource, "),
        ("unload kvs", "expected a module on which no other one depends, got kvs"),
        ("run fast", "expected run, got run fast"),
    ],
)
def test_wrong_command_of_a_pipe_ends_the_replay_with_its_line(
    plan: Path, command: str, said: str
) -> None:
    result = by_hand(plan, "", command, "step")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"flux-trio replay: ERROR: line 2: {said}")


def test_wrong_command_on_a_terminal_is_told_and_the_next_one_is_asked_for(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_prompt, "prompt", lambda _: Prompt())
    result = by_hand(plan, "hold", "crash x", "q")
    said = [line for line in result.stdout.splitlines() if "expected" in line]
    assert len(said) == 2
    assert "expected a message that was sent" in said[0]
    assert "module: expected one of kvs, " in said[1]
    assert result.exit_code == 0


def test_tab_on_a_terminal_completes_commands_and_modules(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """readline's word begins after the hyphen of a name."""
    prompt = Prompt()
    monkeypatch.setattr(replay_prompt, "prompt", lambda _: prompt)
    by_hand(plan, "q")
    assert prompt.completenames("st", "st", 0, 2) == ["step", "stop", "states"]
    assert prompt.completenames("sc", "sc", 0, 2) == ["sched"]
    assert prompt.completedefault("job-", "crash job-", 6, 10) == [
        "job-manager",
        "job-exec",
        "job-ingest",
        "job-list",
    ]
    assert prompt.completedefault("m", "crash job-m", 10, 11) == ["manager"]


def test_ctrl_d_on_a_terminal_ends_the_replay(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_prompt, "prompt", lambda _: Prompt())
    result = by_hand(plan, "step")
    assert result.stdout.endswith("> \n")
    assert result.exit_code == 0


@after_each_step("careless")
def careless(world: CoresWorld) -> str:
    """No name is wrong."""
    raise ValueError(f"no {world.nsteps}")


def test_property_that_raises_is_no_wrong_command(plan: Path) -> None:
    own = ("--property", "tests.cli.test_replay_by_hand:careless")
    result = by_hand(plan, "run", args=own)
    assert result.exit_code == 2
    assert "seed 1 was not judged" in result.stderr
    assert "ValueError: no 1" in result.stderr


def test_help_and_the_page_have_all_commands(plan: Path) -> None:
    said = after(by_hand(plan, "help", "q"), "help")
    assert [re.split(r"  +", line)[0] for line in said] == list(USAGES)
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    listed = [(usage.replace("\\|", "|"), about) for usage, about in rows]
    table = list(USAGES.items())
    assert [row for row in listed if row in table] == table


def test_commands_on_the_page_do_what_it_says(plan: Path) -> None:
    (script,) = re.findall(r"```text\n(stop .*?)```", PAGE.read_text(), re.DOTALL)
    result = by_hand(plan, *script.splitlines())
    (told,) = re.findall(r"```text\n(at rest .*?)```", PAGE.read_text(), re.DOTALL)
    assert told in result.stdout
    assert result.exit_code == 0


def test_plan_played_by_hand_without_interfering_is_the_plan(plan: Path) -> None:
    nsteps = run_plan(PLAN, properties=Setup().all_properties()).nsteps
    assert by_hand(plan).stdout.splitlines()[-1] == f"every property held, in {nsteps} turns"
