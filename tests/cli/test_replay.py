"""`flux-trio replay`: a plan or a seed is played once more, to its end or turn by turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click.testing
import msgspec
import pytest

from flux_trio._version import __version__
from flux_trio.cli import main
from flux_trio.cli.lab.replay import outcome_lines
from flux_trio.cli.lab.replaying import read_plan
from flux_trio.lab import (
    Crash,
    JobPlan,
    NodesUp,
    Outcome,
    OwnerRequest,
    Plan,
    Setup,
    When,
    draw_plan,
    over_trace,
    run_plan,
)
from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
from flux_trio.messages import topics
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from flux_trio.trace import Kind, Record

DOCS = Path(__file__).parents[2] / "docs"
PLANS = Path(__file__).parents[1] / "lab" / "plans"
NOT_ASKED = "27.ready.6"  # known at the pause after it


def replay(*args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["replay", *map(str, args)], prog_name="flux-trio")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A plan that breaks a clause: the job manager does not ask again after a crash."""
    monkeypatch.setitem(ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING)
    jobs = (JobPlan(), JobPlan(urgency=0))
    plan = Plan(1, jobs=jobs, faults=(Crash("sched", When(topics.SCHED_ALLOC)),))
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(plan))
    return path


def test_seed_is_played_again() -> None:
    result = replay(3)
    nsteps = run_plan(draw_plan(3), properties=Setup().all_properties()).nsteps
    assert result.stdout == f"seed 3\nevery property held, in {nsteps} turns\n"
    assert result.exit_code == 0


def test_plan_that_breaks_nothing_any_more() -> None:
    result = replay(PLANS / "clock-set-back.toml")
    assert "every property held" in result.stdout
    assert result.exit_code == 0


def test_fault_that_never_strikes_is_told_and_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    crash = Crash("sched", When(topics.SCHED_ALLOC, nth=2))
    path.write_text(plan_to_toml(Plan(1, jobs=(JobPlan(),), faults=(crash,))))
    result = replay(path)
    assert result.stdout.splitlines()[1] == (
        "crash (module sched, back 0.0) never struck: "
        "there was no request sched.alloc number 2 that was received"
    )
    assert result.exit_code == 0


def test_request_that_is_never_made_is_told_and_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    made = OwnerRequest(0.0, "cancel", when=When(topics.SCHED_ALLOC))
    missed = OwnerRequest(0.0, "urgency", when=When("sched.allok", side="send", type="response"))
    path.write_text(plan_to_toml(Plan(1, jobs=(JobPlan(),), actions=(made, missed))))
    result = replay(path)
    assert result.stdout.splitlines()[1:-1] == [
        "request urgency of job 0 was never made: "
        "there was no response sched.allok number 1 that was sent"
    ]
    assert result.exit_code == 0


WROTE = f"flux-trio 0.0.1 wrote the plan, and this is {__version__}"
ANOTHER_ORDER = f"{WROTE}: it may play in another order"


def of_another_version(path: Path) -> None:
    """Let a plan be one that another version of the program has written."""
    path.write_text(path.read_text().replace(f'program = "{__version__}"', 'program = "0.0.1"'))


@pytest.mark.parametrize("story", [[], ["--story"]])
def test_plan_of_another_version_says_so_if_its_places_do_not_come(
    tmp_path: Path, story: list[str]
) -> None:
    path = tmp_path / "plan.toml"
    crash = Crash("sched", When(topics.SCHED_ALLOC, nth=2))
    path.write_text(plan_to_toml(Plan(1, jobs=(JobPlan(),), faults=(crash,))))
    assert "wrote the plan" not in replay(path, *story).stdout
    of_another_version(path)
    result = replay(path, *story)
    lines = result.stdout.splitlines()
    assert lines[-1] == ANOTHER_ORDER
    assert any(line.startswith("crash (module sched, back 0.0) never struck: ") for line in lines)
    assert result.exit_code == 0


@pytest.mark.parametrize("story", [[], ["--story"]])
def test_plan_of_another_version_says_so_if_it_breaks_nothing(
    tmp_path: Path, story: list[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(Plan(1, jobs=(JobPlan(),))))
    of_another_version(path)
    lines = replay(path, *story).stdout.splitlines()
    assert lines[-1] == f"{ANOTHER_ORDER}, but every fault and request of it came"


def test_plan_of_another_version_says_so_if_it_does_not_break_the_clause(broken: Path) -> None:
    of_another_version(broken)
    assert "wrote the plan" not in replay(broken).stdout
    assert "wrote the plan" not in replay(broken, "--until", "inactive").stdout
    assert replay(broken, "--until", "once").stdout.splitlines()[-1].startswith(WROTE)


def test_plan_that_cannot_be_played_says_which_version_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('seed = 1\nprogram = "0.0.1"\ngone = 1\n')
    assert replay(path).stderr.endswith(
        f'got "gone" (flux-trio 0.0.1 wrote it, and this is {__version__})\n'
    )
    path.write_text("seed = 1\nprogram = 1\n")
    expected = "program: expected the version of flux-trio as text, got 1\n"
    assert replay(path).stderr.endswith(expected)


def test_problems_of_a_plan_are_told(broken: Path) -> None:
    result = replay(broken)
    assert result.exit_code == 1
    assert any(line.startswith(f"{NOT_ASKED}: record ") for line in result.stdout.splitlines())


def test_problem_is_told_once_with_the_id_as_people_type_it() -> None:
    plan = DOCS / "howto" / "faults" / "clock.toml"
    result = replay(plan, "--property", "prompt_start:prompt_start")
    told = "prompt-start: job ƒTSfi3Sf starts 3600 s after its alloc event"
    assert result.stdout.splitlines()[1:] == [told]
    twice = Outcome(Plan(1), ("27.alloc.1: job 1 waits",) * 2)
    assert list(outcome_lines(twice, None, is_drawn=False)) == ["27.alloc.1: job ƒ2 waits"]


def test_story_of_a_plan(broken: Path) -> None:
    result = replay(broken, "--story")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[:2] == ["seed 1", f"{NOT_ASKED} is broken by job-manager"]
    assert any("sched has crashed" in line for line in lines)


def test_story_of_a_property_that_holds_says_what_is_broken(broken: Path) -> None:
    result = replay(broken, "--story", "--until", "once")
    lines = result.stdout.splitlines()
    assert any(line.startswith(f"{NOT_ASKED}: record ") for line in lines)
    assert lines[-1] == "once was not broken"
    assert "every property held" not in result.stdout
    assert result.exit_code == 1


def test_each_turn_is_shown_with_what_it_changed(broken: Path) -> None:
    lines = replay(broken, "--step").stdout.splitlines()
    assert lines[1] == "at the start"
    assert "turn 1" in lines
    crash = next(place for place, line in enumerate(lines) if "sched has crashed" in line)
    begin = max(place for place in range(crash) if lines[place].startswith("turn "))
    end = next(place for place in range(crash, len(lines)) if lines[place].startswith("turn "))
    assert any("sched takes request sched.alloc" in line for line in lines[begin:crash])
    assert any(line.strip() == "sched: the module is not there" for line in lines[crash:end])


@pytest.mark.parametrize(("clause", "when"), [(NOT_ASKED, "in turn "), ("inactive", "at the end")])
def test_replay_stops_when_the_clause_is_broken(broken: Path, clause: str, when: str) -> None:
    result = replay(broken, "--until", clause)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1].startswith(f"{clause} is broken {when}")
    states = [line.strip() for line in lines[2:] if line.startswith(" ")]
    assert {line.partition(": ")[0] for line in states} == set(MODULES)
    assert any(line.startswith("job-manager: parts.scheduler.link.state = ") for line in states)


def test_replay_stops_where_a_property_over_the_trace_is_broken() -> None:
    plan = DOCS / "howto" / "faults" / "clock.toml"
    own = ("--property", "prompt_start:prompt_start")
    story = replay(plan, *own, "--story").stdout.splitlines()[-1]
    assert story.startswith(">")
    assert story.endswith("event start of job ƒTSfi3Sf")
    result = replay(plan, *own, "--until", "prompt-start", "--step")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    end = next(place for place, line in enumerate(lines) if "prompt-start is broken" in line)
    begin = max(place for place in range(end) if lines[place].startswith("turn "))
    assert lines[end] == f"prompt-start is broken in {lines[begin]}"
    assert any("event start of job ƒTSfi3Sf" in line for line in lines[begin:end])


def test_story_marks_what_never_struck_and_where_all_is_put_right(tmp_path: Path) -> None:
    """The nodes are down from the start; the scheduler denies a job that no node can run."""
    never = When(topics.SCHED_ALLOC, nth=9)
    jobs = (JobPlan(nnodes=1), JobPlan(nnodes=9))
    faults = (NodesUp((0, 1, 2, 3), never), Crash("sched", never))
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(Plan(1, jobs=jobs, faults=faults)))
    result = replay(path, "--story", "--property", "tests.cli.test_replay:all_wait")
    lines = result.stdout.splitlines()
    played = [line for line in lines if line.startswith("  fault ")]
    assert [line.partition("; ")[2] for line in played] == [
        "it never struck: the nodes are down until everything is put right",
        "it never struck",
    ]
    right = lines.index(" " * 15 + "--- from here on everything is put right")
    assert any("sched sends response sched.alloc" in line and "type=2" in line for line in lines)
    assert not any("events-journal" in line for line in lines)
    assert all(" alloc" not in line for line in lines[:right])
    assert any(" alloc" in line for line in lines[right:])


PLUGIN = """\
from flux_trio import jobtap


class Careless(jobtap.Plugin):
    name = "careless"

    @jobtap.on("job.state.priority")
    def priority(self, job):
        return jobtap.UNAVAILABLE

    @jobtap.on("job.state.cleanup")
    def over(self, job):
        return self.place
"""


def test_story_tells_what_plugins_have_answered_before(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(PLUGIN)
    path = tmp_path / "plan.toml"
    cancel = OwnerRequest(2.0, "cancel")
    plan = Plan(1, jobs=(JobPlan(),), actions=(cancel,), plugins=("careless.py",))
    path.write_text(plan_to_toml(plan))
    result = replay(path, "--story")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert any("owner sends request job-manager.raise" in line for line in lines)
    answers = [line for line in lines if ": hook plugin=" in line]
    assert 'hook="job.state.priority"' in answers[0]
    assert 'result="UNAVAILABLE"' in answers[0]
    assert answers[-1].startswith(">")
    assert 'hook="job.state.cleanup"' in answers[-1]
    stopped = replay(path, "--until", "plugin").stdout.splitlines()[1]
    assert stopped.startswith("plugin is broken in turn ")


@over_trace("all-wait")
def all_wait(trace: Sequence[Record]) -> str:
    """No job starts."""
    names = [(each.data or {})["name"] for each in trace if each.kind == Kind.EVENT]
    return "a job starts" if "start" in names else ""


MODULES = ("kvs", "resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list")


def test_names_of_properties_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from flux_trio import jobtap\n\n@jobtap.on('job.state.run')\ndef run(job): ...\n"
    )
    plan = tmp_path / "plan.toml"
    plan.write_text('seed = 3\nplugins = ["mine.py"]\n')
    result = replay(plan, "--until", "27.aloc.1")
    assert result.exit_code == 2
    assert result.stderr.count(" plugin,") == 1


def test_name_of_no_clause_and_no_property_is_wrong_usage() -> None:
    """Else a slip of the pen would look as if the clause were kept."""
    result = replay(3, "--until", "27.aloc.1")
    assert result.exit_code == 2
    expected = "--until: expected a clause, such as 27.alloc.1, or one of the properties "
    assert expected in result.stderr
    assert ", answered, " in result.stderr
    assert "; got 27.aloc.1 (see" in result.stderr
    for name in ("answered", "27.alloc.1"):
        assert replay(3, "--until", name).exit_code == 0


def test_clause_that_is_not_broken_is_told_beside_others(broken: Path) -> None:
    lines = replay(broken, "--until", "once").stdout.splitlines()
    assert any(line.startswith(f"{NOT_ASKED}: ") for line in lines)
    assert lines[-1] == "once was not broken"
    last = replay(broken, "--until", "inactive").stdout
    assert "was not broken" not in last


def test_clause_that_is_not_broken_stops_nothing() -> None:
    result = replay(3, "--until", NOT_ASKED)
    assert "every property held" in result.stdout
    assert result.exit_code == 0


def test_empty_text_is_no_file() -> None:
    result = click.testing.CliRunner().invoke(main, ["replay", ""], prog_name="flux-trio")
    assert result.exit_code == 2
    assert "expected a file of a plan or a trace, or a seed, got an empty text" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "seed = 1\nversion = 9\nlater = true",
            "the plan cannot be played: version: expected version 1 of a plan, got 9",
        ),
        ("seed = 'x'", "the plan cannot be played: seed: expected"),
        ("seed: 1", "the plan cannot be played: expected a plan as TOML, got Expected '=' after"),
        (
            "seed = 1\njobs = [{}, {ntaks = 2}]",
            "the plan cannot be played: jobs[1]: expected one of the keys at, ntasks, nnodes, run, "
            'limit, urgency, ranks, queue, after, is_single (did you mean ntasks?), got "ntaks"',
        ),
        (
            "seed = 1\njobs = [{}]\nactions = [{at = 0.0, what = 'cancel', job = 1}]",
            "the plan cannot be played: actions[0].job: "
            "expected the place of one of the 1 jobs, from 0, got 1",
        ),
        (
            "seed = 1\nprogramm = '1.0'",
            "the plan cannot be played: expected one of the keys seed, nnodes, cores, policy, "
            "limit, late, jobs, actions, faults, depth, store, queues, plugins, builtins, edition, "
            "pages, version, program "
            '(did you mean program?), got "programm"',
        ),
        (None, "No such file or directory"),
    ],
)
def test_plan_that_cannot_be_replayed_says_why(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "plan.toml"
    if text is not None:
        path.write_text(text)
    result = replay(path)
    assert result.exit_code == 2
    assert f"{path}: {said}" in result.stderr


def test_what_a_liar_breaks_is_shown_and_is_no_failure() -> None:
    result = replay(DOCS / "howto" / "faults" / "broken-scheduler.toml")
    assert result.exit_code == 0
    seed, broken, held = result.stdout.splitlines()
    assert seed == "seed 1"
    assert broken.startswith("as planned: 27.success.8: record ")
    assert broken.endswith(": another SUCCESS after SUCCESS")
    assert held.startswith("every property held, in ")


def test_depth_and_store_of_a_plan_can_be_changed(broken: Path) -> None:
    plan = plan_from_toml(broken.read_text())
    changed = read_plan(str(broken), "stack", "sqlite")
    assert changed == msgspec.structs.replace(plan, depth="stack", store="sqlite")
    assert read_plan("3").depth == "cores"


def test_turns_of_the_stack_are_shown_with_what_they_changed() -> None:
    shown = replay("3", "--depth", "stack", "--step")
    assert "every property held" in shown.output
    assert re.search(r"^ +job-manager: ", shown.output, re.MULTILINE)


def test_file_that_is_no_text_is_neither_plan_nor_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08")
    result = replay(path)
    assert result.exit_code == 2
    assert "expected a plan as TOML or a trace as JSON lines, got bytes" in result.stderr
