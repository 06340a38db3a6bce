"""Scheduling policies in files of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.make_samples import DOCS
from flux_trio.config import Config, parse_config
from flux_trio.formats import FormatError
from flux_trio.jobtap import PluginError
from flux_trio.lab import Setup, run_plan
from flux_trio.policies import Schedule
from flux_trio.services.policy_files import load_policy, scheduler_policies
from tests.support import reborn

PUTS_DOWN = pytest.mark.skipif(
    reborn.is_on, reason="the property puts cores down, whose places have been taken by others"
)
SHORTEST = DOCS / "howto" / "policies" / "shortest.py"


def policy_file(directory: Path, more: str) -> str:
    """Return the name of a policy like `Shortest`, with more lines in its class."""
    path = directory / "mine.py"
    path.write_text(f"{SHORTEST.read_text()}\n\nclass Mine(Shortest):\n{more}\n")
    return f"{path}:Mine"


@pytest.mark.parametrize("table", ["[sched]\n", "[policy.scheduler]\n"])
def test_the_configuration_names_a_class_in_a_file(table: str) -> None:
    config = parse_config(f"{table}policy = '{SHORTEST}:Shortest'\n[queues.a]\n[queues.b]\n")
    sched, queues = scheduler_policies(config)
    assert sched.policy == f"{SHORTEST}:Shortest"
    assert queues == dict.fromkeys("ab", sched.policy)
    assert type(Schedule(sched.policy).policy).__name__ == "Shortest"


def test_an_edited_file_counts_when_it_is_loaded_again(tmp_path: Path) -> None:
    name = policy_file(tmp_path, "    version = 1")
    load_policy(name)
    old: Any = Schedule(name).policy
    load_policy(policy_file(tmp_path, "    version = 2"))
    new: Any = Schedule(name).policy
    assert (old.version, new.version) == (1, 2)


@pytest.mark.parametrize(
    ("text", "cls", "error"),
    [
        ("class A: pass", "A", r"expected a policy, got a class A without arrived, left, freed"),
        ("class A: pass\nclass B: pass", "C", r"expected one of its classes \(A, B\), got C"),
        ("class A: pass\nraise ValueError('odd')", "A", r"mine\.py:2: ValueError: odd"),
    ],
)
def test_a_file_without_the_policy_is_refused(
    tmp_path: Path, text: str, cls: str, error: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(PluginError, match=error):
        load_policy(f"{tmp_path / 'mine.py'}:{cls}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"no policy .*mine\.py: No such file"):
        load_policy(f"{tmp_path / 'mine.py'}:A")


def test_another_name_is_refused_with_those_that_there_are() -> None:
    expected = "sched.policy: expected one of fifo, easy, conservative, or FILE.py:Class"
    with pytest.raises(FormatError, match=expected):
        parse_config("[sched]\npolicy = 'best'")
    with pytest.raises(FormatError, match=r"policy\.scheduler\.policy: expected one of fifo"):
        scheduler_policies(parse_config("[policy.scheduler]\npolicy = 3"))
    assert scheduler_policies(Config())[0].policy == "fifo"


@PUTS_DOWN
def test_worlds_of_the_sample_break_nothing() -> None:
    setup = Setup(policy=f"{SHORTEST}:Shortest")
    for seed in range(5):
        outcome = run_plan(setup.plan_of(seed), properties=setup.all_properties())
        assert outcome.problems == ()


@PUTS_DOWN
@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("    def freed(self, grant):\n        pass", "idle: "),
        ("    def decide(self, now):\n        raise ValueError('odd')", "error: sched raised"),
        (
            "    def __init__(self, state):\n        super().__init__(state)\n"
            "        self.key = lambda job: job.id",
            "put-down: core._context.schedule.key: expected data, got <function",
        ),
        (
            "    def __getstate__(self):\n        self.n = getattr(self, 'n', 0) + 1\n"
            "        return dict(vars(self))\n"
            "    def __setstate__(self, held):\n        self.__dict__.update(held)",
            "put-down: the state is",
        ),
    ],
)
def test_worlds_show_what_is_wrong_with_a_policy(tmp_path: Path, more: str, problem: str) -> None:
    setup = Setup(policy=policy_file(tmp_path, more))
    problems = [
        each
        for seed in range(6)
        for each in run_plan(setup.plan_of(seed), properties=setup.all_properties()).problems
    ]
    assert [each for each in problems if each.startswith(problem)]
