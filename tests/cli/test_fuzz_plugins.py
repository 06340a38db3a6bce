"""`flux-trio fuzz` with plugins, of which some fail, and with those of a configuration."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.lab import play_seed
from flux_trio.lab.plans.files import plan_from_toml
from flux_trio.lab.world.plugin_files import LOOP_S, PluginFile
from flux_trio.testing import PropertyBroken, play_plan
from tests.support.fuzzing import HERE, fuzz
from tests.support.instance import flux_trio


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


@pytest.mark.gate
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


@pytest.mark.gate
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


@pytest.mark.gate
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
    plugin.write_text(RAISES.format("True").replace("ValueError", "KeyboardInterrupt"))
    result = fuzz("--seeds", "0:1", "--workers", 1, "--plugin", plugin, "-o", tmp_path)
    assert result.exit_code == 2
    said = "seed 0 was not judged: a plugin or a property raised KeyboardInterrupt"
    assert result.stderr == f"flux-trio fuzz: ERROR: {said}\n"
    assert "interrupted" not in result.stdout


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


@pytest.mark.gate
@pytest.mark.real
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugin_that_loops_ends_its_worker_and_is_named(tmp_path: Path, depth: str) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text(
        "from flux_trio import jobtap\n\n"
        "@jobtap.on('job.state.priority')\n"
        "def priority(job):\n"
        "    while True:\n"
        "        pass\n"
    )
    found = tmp_path / "found"
    done = flux_trio(
        *("fuzz", "--plugin", endless, "--seeds", "0:4", "--workers", "1"),
        *("--depth", depth, "-o", found),
    )
    assert done.returncode == 2
    said = "plugin endless: job.state.priority for job "
    named = [each for each in done.stderr.splitlines() if said in each]
    assert f"has used {LOOP_S} s of CPU time in one call, which ends the process" in named[-1]
    assert f"({endless}:" in named[-1]
    assert "the workers have ended at seed 0 or later" in done.stderr
