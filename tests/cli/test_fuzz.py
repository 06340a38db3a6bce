"""`flux-trio fuzz`: seeds, the stories it writes, its report and its exit codes."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.lab import all_transitions, play_seed, run_plan
from flux_trio.lab.plans.files import plan_from_toml
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from tests.support.fuzzing import HERE, fuzz
from tests.support.instance import ROOT, flux_trio
from tests.support.terminal import on_terminal

STUCK = "invariant.nobody-stuck"


@functools.cache
def first_seed() -> int:
    """The first seed whose world loses a request that is pending, for a forgetful job manager."""
    return next(seed for seed in range(100) if play_seed(seed).broken == STUCK)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> int:
    """A seed that breaks STUCK: the job manager does not ask again after the scheduler was lost."""
    monkeypatch.setitem(ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING)
    return first_seed()


def test_quiet_run_says_what_it_has_not_reached(tmp_path: Path) -> None:
    result = fuzz("--seeds", "3:5", *HERE, "-o", tmp_path / "found")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "seeds 3:5"
    assert lines[1].startswith("2 worlds, ")
    assert lines[1].endswith("0 with a broken property")
    assert lines[2].endswith(f"of {len(all_transitions())}")
    assert any(line.startswith("  LINK ") and "never: " in line for line in lines)
    assert any(line.split() == ["crash", "job-list", "0", "0"] for line in lines)
    assert not (tmp_path / "found").exists()
    assert result.stderr == ""  # a bar is for terminals


def test_workers_are_processes(tmp_path: Path) -> None:
    result = fuzz("--seeds", "3:5", "--workers", 1, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(fuzz("--seeds", "3:5", *HERE, "--json").stdout)


@pytest.mark.gate
def test_broken_property_is_told_as_a_small_story(tmp_path: Path, breaking: int) -> None:
    result = fuzz("--seeds", f"{breaking}:{breaking + 9}", *HERE, "-o", tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1] == f"seed {breaking} breaks {STUCK}; see {tmp_path}/seed-{breaking}"
    assert any(line.startswith("1 worlds, ") for line in lines)
    found = tmp_path / f"seed-{breaking}"
    plan = plan_from_toml((found / "plan.toml").read_text())
    assert STUCK in run_plan(plan).broken
    assert len(plan.jobs) <= 3
    assert len(plan.faults) == 1
    story = (found / "story.txt").read_text().splitlines()
    assert story[0] == f"{STUCK} is broken by job-manager"
    assert story == lines[3 : 3 + len(story)]
    assert (found / "story.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.gate
@pytest.mark.usefixtures("hardly_shrinking")
def test_each_broken_property_has_one_story_when_it_keeps_going(
    tmp_path: Path, breaking: int
) -> None:
    junit = tmp_path / "junit.xml"
    options = ("--keep-going", "--json", "--junit", junit, "-o", tmp_path)
    result = fuzz("--seeds", f"{breaking}:{breaking + 16}", *HERE, *options)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == f"flux-trio fuzz: seeds {breaking}:{breaking + 16}"
    report = json.loads(result.stdout)
    assert report["seeds"] == [breaking, breaking + 16]
    assert report["worlds"] == 16
    assert len(report["broken"]) > 1
    directories = [each["directory"] for each in report["broken"] if each["directory"]]
    assert len(directories) == len({each["property"] for each in report["broken"]})
    cases = ElementTree.parse(junit).findall(".//testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert len(cases) == 16
    assert failed == [f"seed {each['seed']}" for each in report["broken"]]
    messages = [str(each.get("message")) for each in ElementTree.parse(junit).iter("failure")]
    named = [message.partition(":")[0] for message in messages]
    assert named == [each["property"] for each in report["broken"]]


@pytest.mark.gate
@pytest.mark.usefixtures("hardly_shrinking")
def test_test_of_a_story_passes_once_the_mistake_is_mended(tmp_path: Path, breaking: int) -> None:
    fuzz("--seeds", f"{breaking}:{breaking + 1}", *HERE, "-o", tmp_path)
    story = tmp_path / f"seed-{breaking}" / "test_story.py"
    namespace = {"__file__": str(story), "__name__": "story"}
    exec(story.read_text(), namespace)
    with pytest.raises(AssertionError):
        namespace["test_every_property_holds"]()  # type: ignore[operator]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", story.name]
    mended = subprocess.run(command, cwd=story.parent, capture_output=True, text=True, check=False)
    assert mended.returncode == 0, mended.stdout


LIMIT = """\
from flux_trio.lab import over_trace
import limits  # beside this module


@over_trace("few")
def few_jobs(trace):
    \"\"\"Few jobs are submitted.\"\"\"
    names = [each.data["name"] for each in trace if each.kind == "event"]
    return "" if names.count("submit") <= limits.JOBS else "there are more"
"""
PLUGIN = """\
from flux_trio import jobtap


@jobtap.on("job.state.run")
def run(job):
    pass
"""


@pytest.mark.gate
def test_test_of_a_story_is_run_from_anywhere_and_moved_with_its_modules(tmp_path: Path) -> None:
    """Its paths begin where it is kept; only the command line knew the working directory."""
    work = tmp_path / "work"
    (work / "checks").mkdir(parents=True)
    (work / "checks" / "few.py").write_text(LIMIT)
    (work / "limits.py").write_text("JOBS = 0\n")
    (work / "mine.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "flux_trio", "fuzz", "--workers", "1"]
    options = ["--property", "checks.few:few_jobs", "--plugin", "mine.py", "--seeds", "0:20"]
    found = subprocess.run(
        [*command, *options], cwd=work, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1, found.stderr
    (directory,) = (work / "fuzz-found").iterdir()
    for name in ("plan.toml", "test_story.py", "story.txt", "story.html"):
        assert str(tmp_path) not in (directory / name).read_text()
    moved = tmp_path / "repository"
    work.rename(moved)
    directory = moved / directory.relative_to(work)
    test = directory / "test_story.py"
    broken = plain_pytest(test, tmp_path)
    assert (broken.returncode, "few is broken" in broken.stdout) == (1, True), broken.stdout
    replayed = click.testing.CliRunner().invoke(main, ["replay", str(directory / "plan.toml")])
    assert replayed.exit_code == 0, replayed.output  # it finds the plugin
    (moved / "limits.py").write_text("JOBS = 1000\n")
    held = plain_pytest(test, tmp_path)
    assert held.returncode == 0, held.stdout


def plain_pytest(test: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command `pytest`, which does not put the working directory on sys.path."""
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider"]
    return subprocess.run([*command, test], cwd=cwd, capture_output=True, text=True, check=False)


def test_workers_of_a_dask_cluster() -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    # In a process of its own: the threads of a cluster stay until the process ends.
    options = ("--seeds", "3:5", "--executor", "cluster:executor", "--json")
    result = flux_trio("fuzz", *options, cwd=ROOT / "docs" / "howto" / "faults")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == json.loads(fuzz("--seeds", "3:5", *HERE, "--json").stdout)


def test_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with on_terminal("fuzz", "--seeds", "3:6", *HERE) as terminal:
        shown, code = terminal.until_end()
    assert code == 0
    assert shown.startswith("seeds 3:6\n")
    assert "3 worlds, " in shown
    assert re.search(r"seed .*3/3", shown)


def test_time_budget_ends_the_run_after_the_first_seed() -> None:
    result = fuzz("--time-budget", "1e-9s", *HERE, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["worlds"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--seeds", "x"), "expected A:B"),
        (("--seeds", f"{10**18}:"), "two numbers of 1 to 18 digits"),
        (("--seeds", "5:5"), "A below B"),
        (("--seeds", "5:"), "has no end"),
        (("--executor", "concurrent.futures"), "expected module:callable"),
        (("--executor", "concurrent.futures:Cloud"), "no attribute 'Cloud'"),
        (("--executor", "sys:maxsize"), f"returns an Executor, got {sys.maxsize}"),
        (("--executor", "sys:getrecursionlimit"), "returns an Executor; it returned 1"),
        (("--property", "sys:maxsize"), "expected a flux_trio.lab.Property"),
        (("--property", "tests.cli.test_fuzz:fuzz"), "which is made by @over_trace(name), "),
        (
            ("--property", "flux_trio.lab.properties.property:no_job_runs_twice"),
            "the name once is that",
        ),
        (("--plugin", "nowhere.py"), "there is no such file"),
        (
            ("--plugin", str(ROOT / "LICENSE")),
            "expected a Python file, whose name ends in .py, got LICENSE",
        ),
        (("--time-budget", "abc"), "expected a duration"),
        (("--time-budget", "0"), "expected a duration above 0, got 0"),
        (("--time-budget", "-1s"), "expected a duration above 0, got -1s"),
        (("--time-budget", "-inf"), "expected a duration above 0, got -inf"),
    ],
)
def test_wrong_usage_is_refused(args: tuple[str, ...], said: str) -> None:
    result = fuzz(*args)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        ("Gone", "a process was killed"),
        (
            "ShutDown",
            "the executor has raised RuntimeError: cannot schedule new futures after shutdown",
        ),
        ("Canceling", "the executor has canceled what was submitted"),
    ],
)
def test_workers_that_end_are_no_violation(executor: str, said: str) -> None:
    result = fuzz("--seeds", "3:5", "--executor", f"tests.support.at_once:{executor}")
    assert result.exit_code == 2
    text = f"the workers have ended at seed 3 or later: {said}"
    assert result.stderr == f"flux-trio fuzz: ERROR: {text}\n"


def test_error_of_a_world_is_not_one_of_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of flux-trio")

    monkeypatch.setattr("flux_trio.lab.stories.campaign.run_plan", raising)
    assert isinstance(fuzz("--seeds", "3:5", *HERE).exception, RuntimeError)


@pytest.mark.usefixtures("hardly_shrinking")
def test_limit_of_shrinking_is_told(tmp_path: Path, breaking: int) -> None:
    seeds = f"{breaking}:{breaking + 1}"
    result = fuzz("--seeds", seeds, *HERE, "-o", tmp_path / "found")
    said = f"2 plans were tried: the plan of seed {breaking} may not be the smallest"
    assert said in result.stdout.splitlines()


@pytest.mark.usefixtures("hardly_shrinking")
def test_finding_is_told_though_its_story_cannot_be_written(tmp_path: Path, breaking: int) -> None:
    (tmp_path / f"seed-{breaking}").write_text("")
    junit = tmp_path / "junit.xml"
    options = ("--seeds", f"{breaking}:{breaking + 1}", *HERE, "-o", tmp_path, "--junit", junit)
    result = fuzz(*options)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1] == f"seed {breaking} breaks {STUCK}"
    assert lines[3] == f"{STUCK} is broken by job-manager"
    assert any(line.startswith("1 worlds, ") for line in lines)
    assert result.stderr == f"flux-trio fuzz: ERROR: {tmp_path}/seed-{breaking}: File exists\n"
    assert ElementTree.parse(junit).find(".//failure") is not None
    (broken,) = json.loads(fuzz(*options, "--json").stdout)["broken"]
    assert (broken["seed"], broken["directory"]) == (breaking, None)


def test_output_that_cannot_be_made_is_refused_before_the_first_seed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for option, there in (
        ("--output", tmp_path / "file"),
        ("--output", tmp_path / "file" / "found"),
        ("--output", tmp_path / "gone"),
        ("--output", "/proc/nosuch"),
        ("--junit", tmp_path),
        ("--junit", tmp_path / "nowhere" / "junit.xml"),
        ("--junit", "/proc/nosuch.xml"),
    ):
        result = fuzz("--seeds", "0:1", *HERE, option, there)
        assert (result.exit_code, result.stdout) == (2, ""), there
        assert f"Invalid value for '{'-o' if option == '--output' else option}'" in result.stderr
        assert str(there) in result.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"file", "gone"}


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("options", "command"),
    [
        (("--junit", "/dev/full"), "fuzz --seeds 0:1 >/dev/null"),
        ((), "fuzz --seeds 0:1 >/dev/full"),
        (("--json",), "fuzz --seeds 0:1 >&-"),
    ],
)
def test_report_that_cannot_be_written_is_no_broken_property(
    options: tuple[str, ...], command: str
) -> None:
    line = f"{sys.executable} -m flux_trio {command} {' '.join((*HERE, *options))}"
    result = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    where = "/dev/full" if "--junit" in options else "standard output"
    assert result.returncode == 2
    said = [text for text in result.stderr.splitlines() if "ERROR" in text]
    why = "it is closed" if command.endswith(">&-") else "No space left on device"
    assert said == [f"flux-trio fuzz: ERROR: {where}: {why}"]
    assert "Traceback" not in result.stderr
