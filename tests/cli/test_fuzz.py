"""`flux-trio fuzz`: seeds, the stories it writes, its report and its exit codes."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import traceback
from pathlib import Path
from xml.etree import ElementTree

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.lab import all_transitions, play_seed, run_plan
from flux_trio.lab.plans.files import plan_from_toml
from flux_trio.lab.world.plugin_files import PluginFile
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from flux_trio.testing import PropertyBroken, play_plan
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


@pytest.fixture
def hardly_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that is not about how small a plan becomes, which takes most of the time."""
    monkeypatch.setattr("flux_trio.lab.stories.shrinking.RUNS_MAX", 2)


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


def test_plugin_that_fails_is_told_with_its_plan(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from flux_trio import jobtap\n\n"
        "@jobtap.on('job.state.run')\n"
        "def run(job):\n"
        "    assert job.urgency == 16\n"
    )
    result = fuzz("--plugin", mine, "--seeds", "0:20", *HERE, "-o", tmp_path / "found")
    assert result.exit_code == 1
    (found,) = (tmp_path / "found").iterdir()
    plan = plan_from_toml((found / "plan.toml").read_text())
    assert plan.plugins == ("../../mine.py",)
    assert len(plan.jobs) == 1
    story = (found / "story.txt").read_text()
    assert "plugin is broken" in story
    assert "found:    mine failed in job.state.run: AssertionError: " in story
    assert " (mine.py:5)\n" in story
    runner = click.testing.CliRunner()
    again = runner.invoke(main, ["replay", str(found / "plan.toml")], prog_name="flux-trio")
    assert "plugin: mine failed in job.state.run: AssertionError" in again.stdout
    mine.unlink()
    gone = runner.invoke(main, ["replay", str(found / "plan.toml")], prog_name="flux-trio")
    assert gone.exit_code == 2
    assert "the plan cannot be played: no plugin" in gone.stderr


RAISES = """\
import multiprocessing
import sys

from flux_trio import jobtap


@jobtap.on("job.new")
def new(job):
    sys.nseen = getattr(sys, "nseen", 0) + 1
    if {}:
        raise ValueError("bad luck")
"""


def test_story_of_a_plugin_that_raises_begins_with_its_traceback(tmp_path: Path) -> None:
    (mine := tmp_path / "mine.py").write_text(RAISES.format("True"))
    fuzz("--plugin", mine, "--seeds", "4:5", *HERE, "-o", tmp_path)
    plan = tmp_path / "seed-4" / "plan.toml"
    with pytest.raises(PropertyBroken, match=r"found:    mine failed in job\.new") as broken:
        play_plan(plan)
    cause = broken.value.__cause__
    assert isinstance(cause, ValueError)
    assert Path(traceback.extract_tb(cause.__traceback__)[-1].filename).samefile(mine)
    lines = click.testing.CliRunner().invoke(main, ["replay", str(plan)]).stdout.splitlines()
    assert lines[1] == "plugin: mine failed in job.new: ValueError: bad luck"
    assert "ValueError: bad luck" in lines[lines.index("Traceback (most recent call last):") :]


def test_plugin_that_fails_in_a_worker_alone_has_a_story_without_a_trace(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(RAISES.format("multiprocessing.parent_process() is not None"))
    options = ("--plugin", mine, "--seeds", "4:5", "--workers", 1, "-o", tmp_path / "found")
    result = fuzz(*options)
    assert result.exit_code == 1, result.output
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[1] == f"seed 4 breaks plugin; see {tmp_path}/found/seed-4"
    doubt = "it was broken in a worker, and not when it was played again: a plugin or "
    assert any(line.startswith(f"seed 4, plugin: {doubt}") for line in lines)
    assert any(line.startswith("1 worlds, ") for line in lines)
    plan = plan_from_toml((tmp_path / "found" / "seed-4" / "plan.toml").read_text())
    assert plan.jobs == play_seed(4).plan.jobs
    story = (tmp_path / "found" / "seed-4" / "story.txt").read_text()
    assert "  found:    mine failed in job.new: ValueError: bad luck\n" in story
    assert f"  again:    {doubt}" in story
    (broken,) = json.loads(fuzz(*options, "--json").stdout)["broken"]
    assert broken["doubt"].startswith(doubt)


def test_plugin_with_state_elsewhere_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(RAISES.format("sys.nseen > 30"))
    monkeypatch.setattr("sys.nseen", 30, raising=False)  # of shrinking, which has seen jobs before
    result = fuzz("--plugin", mine, "--seeds", "0:20", "--workers", 1, "-o", tmp_path / "found")
    assert result.exit_code == 1, result.output
    doubt = "it held when a worker played this smallest plan once more: a plugin or a property"
    assert f", plugin: {doubt}" in result.stdout
    (found,) = (tmp_path / "found").iterdir()
    assert f"  again:    {doubt}" in (found / "story.txt").read_text()
    assert doubt in (found / "story.html").read_text()
    sure = fuzz("--plugin", mine, "--seeds", "0:20", *HERE, "-o", tmp_path / "sure")
    assert (sure.exit_code, "again:" in sure.stdout) == (1, False), sure.output


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


CHOOSY = """\
from typing import Any

from flux_trio import jobtap


class Choosy(jobtap.Plugin):
    @jobtap.on("conf.update")
    def configure(self, _config: Any) -> None:
        self.urgencies = self.read_conf(dict[str, list[int]])["urgencies"]

    @jobtap.on("job.state.run")
    def run(self, job: jobtap.Job) -> None:
        assert job.urgency in self.urgencies
"""


@pytest.mark.usefixtures("hardly_shrinking")
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugins_of_a_configuration_get_their_conf(tmp_path: Path, depth: str) -> None:
    choosy, config = tmp_path / "choosy.py", tmp_path / "site.toml"
    choosy.write_text(CHOOSY)
    directive = '[[job-manager.plugins]]\nload = "{}"\nconf = {{ urgencies = {} }}\n'
    config.write_text(directive.format(choosy, list(range(32))))
    options = ("--config", config, "--depth", depth, "--seeds", "0:1", *HERE, "-o", tmp_path / "o")
    assert fuzz(*options).exit_code == 0
    config.write_text(directive.format(choosy, [16]))
    result = fuzz(*options, "--keep-going")
    assert result.exit_code == 1, result.output
    (found,) = (tmp_path / "o").glob("seed-0")
    plan = plan_from_toml((found / "plan.toml").read_text())
    assert plan.plugins == (PluginFile("../../choosy.py", {"urgencies": [16]}),)
    assert 'plugin choosy.py, conf {"urgencies":[16]}' in (found / "story.txt").read_text()
    runner = click.testing.CliRunner()
    again = runner.invoke(main, ["replay", str(found / "plan.toml")], prog_name="flux-trio")
    assert "plugin: choosy failed in job.state.run: AssertionError" in again.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected [job-manager] plugins that are loaded, got none"),
        ('[[job-manager.plugins]]\nremove = "all"\n', "plugins that are loaded, got none"),
        ('[[job-manager.plugins]]\nload = "nowhere.py"\n', "there is no such file"),
        ('[[job-manager.plugins]]\nload = "hold-until"\n', "missing required field `command`"),
        ("job-manager = 1\n", "job-manager"),
        ("[sched\n", "site.toml"),
        (None, "No such file or directory"),
    ],
)
def test_configuration_without_plugins_for_a_world(
    tmp_path: Path, text: str | None, said: str
) -> None:
    config = tmp_path / "site.toml"
    if text is not None:
        config.write_text(text)
    result = fuzz("--config", config, "--seeds", "0:1", *HERE)
    assert result.exit_code == 2
    assert said in result.stderr
    assert str(config) in result.stderr


def test_plugin_that_cannot_be_loaded_in_a_world_is_told(tmp_path: Path) -> None:
    plugin = tmp_path / "bad.py"
    plugin.write_text(
        "from flux_trio.jobtap import Plugin\n\n\nclass Bad(Plugin):\n    name = 'bad'\n\n"
        "    def loaded(self):\n        raise KeyError('x')\n"
    )
    result = fuzz("--seeds", "0:1", *HERE, "--plugin", plugin, "--depth", "stack")
    assert result.exit_code == 2
    assert "plugin bad failed when it was loaded: KeyError: 'x'" in result.stderr
    assert "Traceback" not in result.stderr


def test_plugin_that_raises_keyboard_interrupt_is_not_the_user(tmp_path: Path) -> None:
    plugin = tmp_path / "typing.py"
    plugin.write_text(PLUGIN.replace("pass", "raise KeyboardInterrupt"))
    result = fuzz("--seeds", "0:1", "--workers", 1, "--plugin", plugin, "-o", tmp_path)
    assert result.exit_code == 2
    said = "seed 0 was not judged: a plugin or a property raised KeyboardInterrupt"
    assert result.stderr == f"flux-trio fuzz: ERROR: {said}\n"
    assert "interrupted" not in result.stdout


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


def test_worlds_of_the_whole_stack_with_a_plugin_that_waits(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text(
        "import trio\n"
        "from flux_trio import jobtap\n\n"
        "@jobtap.on('job.state.priority')\n"
        "async def priority(job):\n"
        "    await trio.sleep(1.0)\n"
    )
    options = ("--seeds", "0:2", "--plugin", waits, *HERE, "-o", tmp_path)
    deep = fuzz("--depth", "stack", "--store", "sqlite", *options)
    assert (deep.exit_code, "async" in deep.output) == (0, False), deep.output
    assert fuzz(*options).exit_code == 2
