"""`flux-trio fuzz` and `replay` with a property, or an executor, that raises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.lab.plans.files import plan_from_toml
from tests.support.fuzzing import HERE, fuzz

CLASHING = """\
from flux_trio.lab import over_trace


@over_trace("a:b")
def stored(trace):
    return ""
"""


@pytest.mark.parametrize("command", ["fuzz", "replay"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLASHING, "ValueError: expected the name of a property, a text without a colon, got 'a:b"),
        ("\n\n\nx = )\n", "SyntaxError: unmatched ')'"),
        ("import sys\n\n\nsys.exit(0)\n", "SystemExit: 0"),
        ("\n\n\nimport nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of"),
    ],
)
def test_module_that_raises_while_it_is_imported_is_wrong_usage(
    command: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # each case has its own raising.py
    args = [command, *(["3"] if command == "replay" else []), "--property", "raising:stored"]
    result = click.testing.CliRunner().invoke(main, args, prog_name="flux-trio")
    assert result.exit_code == 2
    assert f"raising:stored: {said}" in result.stderr
    assert f"({tmp_path}/raising.py:4)" in result.stderr


def test_executor_that_raises_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster_gone.py").write_text("def executor():\n    raise OSError('no cluster')\n")
    monkeypatch.chdir(tmp_path)
    result = fuzz("--executor", "cluster_gone:executor")
    assert result.exit_code == 2
    said = f"it raised OSError: no cluster ({tmp_path}/cluster_gone.py:2)"
    assert said in result.stderr


CARELESS = """\
from flux_trio.lab import over_trace


@over_trace("careless")
def careless(trace):
    return {}["jobs"]
"""


@pytest.mark.parametrize("command", ["fuzz", "replay"])
def test_property_that_raises_is_no_violation(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"careless_{command}"
    (tmp_path / f"{module}.py").write_text(CARELESS)
    monkeypatch.chdir(tmp_path)
    args = ["--seeds", "3:5", *HERE] if command == "fuzz" else ["3"]
    args = [command, *args, "--property", f"{module}:careless"]
    result = click.testing.CliRunner().invoke(main, args, prog_name="flux-trio")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0] == f"flux-trio {command}: ERROR: seed 3 was not judged"
    assert lines[1].strip() == "Traceback (most recent call last):"
    assert f'File "{tmp_path}/{module}.py", line 6, in careless' in lines[2]
    assert [line.strip() for line in lines[-2:]] == [
        "KeyError: 'jobs'",
        "The property careless has raised this.",
    ]


def test_property_that_raises_does_not_end_a_run_that_keeps_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "careless_later.py").write_text(CARELESS)
    monkeypatch.chdir(tmp_path)
    options = ("--seeds", "3:6", *HERE, "--property", "careless_later:careless", "--keep-going")
    result = fuzz(*options, "--junit", "junit.xml")
    assert result.exit_code == 2
    assert "a property raised in 3 more, which were not judged" in result.stdout.splitlines()
    told = [line for line in result.stderr.splitlines() if "ERROR" in line]
    assert told == [f"flux-trio fuzz: ERROR: seed {seed} was not judged" for seed in (3, 4, 5)]
    failed = ElementTree.parse("junit.xml").findall(".//failure")
    assert len(failed) == 3
    report = json.loads(fuzz(*options, "--json").stdout)
    assert [each["seed"] for each in report["not_judged"]] == [3, 4, 5]
    assert all("KeyError: 'jobs'" in each["raised"] for each in report["not_judged"])


HALF_CAREFUL = """\
from flux_trio.lab import over_trace


@over_trace("half-careful")
def half_careful(trace):
    submitted = [each for each in trace if (each.data or {}).get("name") == "submit"]
    first = submitted[0]
    return f"the first submit is record {first.n}"
"""


def test_property_that_raises_in_a_smaller_world_keeps_the_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shrinking tries worlds without jobs, for which an author may not have written."""
    (tmp_path / "half_careful.py").write_text(HALF_CAREFUL)
    monkeypatch.chdir(tmp_path)
    options = ("--seeds", "0:1", *HERE, "--property", "half_careful:half_careful")
    result = fuzz(*options, "-o", tmp_path / "found")
    assert result.exit_code == 1
    assert result.stderr == ""
    assert "the first submit is record" in (tmp_path / "found/seed-0/story.txt").read_text()
    plan = plan_from_toml((tmp_path / "found/seed-0/plan.toml").read_text())
    assert len(plan.jobs) == 1
