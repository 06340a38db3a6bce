"""The how-to page: its property, its commands and its stories are what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.lab.plans.files import plan_from_toml

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PAGE = HOWTO / "find-a-bug-with-faults.md"
FILES = HOWTO / "faults"


def run(command: str, *args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, [*command.split()[1:], *map(str, args)], prog_name="flux-trio")


def commands() -> list[str]:
    return re.findall(r"^\$ (flux-trio .*)$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.gate
def test_seeds_find_a_small_counterexample(tmp_path: Path) -> None:
    command = next(each for each in commands() if each.startswith("flux-trio fuzz"))
    here = ("--executor", "tests.support.at_once:AtOnce", "-o", tmp_path)
    result = run(command, *here)
    assert result.exit_code == 1
    (found,) = tmp_path.iterdir()
    assert "prompt-start is broken" in (found / "story.txt").read_text()
    plan = plan_from_toml((found / "plan.toml").read_text())
    assert len(plan.jobs) <= 3
    assert len(plan.faults) <= 2


@pytest.mark.parametrize("name", ["clock", "hang"])
def test_story_on_the_page_is_what_the_command_above_it_prints(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FILES)
    lines = re.findall(r"^(\$ flux-trio .*|<!-- sample .*)$", PAGE.read_text(), re.MULTILINE)
    command = lines[lines.index(f"<!-- sample faults/{name}.txt -->") - 1]
    assert f"replay {name}.toml" in command
    result = run(command.removeprefix("$ "))
    assert result.stdout == (FILES / f"{name}.txt").read_text()
    assert result.exit_code == 1


def test_commands_that_play_a_plan_work_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    plays = [each for each in commands() if each.startswith("flux-trio replay")]
    assert len(plays) == 4
    for command in plays:
        result = run(command)
        assert result.exit_code == ("--story" in command), result.output
        assert "every property held" in result.stdout or " is broken" in result.stdout
