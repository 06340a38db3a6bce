"""The how-to page: its property, its commands and its stories are what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.faults.plan import plan_from_toml

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PAGE = HOWTO / "find-a-bug-with-faults.md"


def run(command: str, *args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, [*command.split()[1:], *map(str, args)], prog_name="flux-trio")


def commands() -> list[str]:
    return re.findall(r"^\$ (flux-trio .*)$", PAGE.read_text(), re.MULTILINE)


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


@pytest.mark.parametrize(
    ("name", "property_"), [("clock", "prompt_start"), ("hang", "prompt_start_by_durations")]
)
def test_story_on_the_page_is_that_of_its_plan(name: str, property_: str) -> None:
    plan, told = HOWTO / "faults" / f"{name}.toml", HOWTO / "faults" / f"{name}.txt"
    result = run("flux-trio replay", plan, "--story", "--property", f"prompt_start:{property_}")
    assert result.stdout == told.read_text()
    assert result.exit_code == 1


def test_commands_that_look_closer_work() -> None:
    closer = [each for each in commands() if each.startswith("flux-trio replay")]
    assert len(closer) == 3
    for command in closer:
        plan = str(HOWTO / "faults" / "hang.toml")
        result = run(re.sub(r"fuzz-found/\S+", plan, command))
        assert result.exit_code in (0, 1)
        assert "seed 26" in result.stdout
