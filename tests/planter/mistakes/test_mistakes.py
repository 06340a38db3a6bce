"""Each mistake can be planted; one is found by a seed, and one by a search."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.planter.mistakes.entries import mistakes
from tests.planter.mistakes.exploring import NAMES, WORKER
from tests.planter.mistakes.families import worlds_of
from tests.planter.mistakes.forking import Forks
from tests.planter.mistakes.trying import play
from tests.planter.mistakes.worker import Task

ALL = {each.id: each for each in mistakes()}


def test_mistakes_are_planted_at_one_place_and_the_module_compiles() -> None:
    for mistake in ALL.values():
        for file, text in mistake.edited().items():
            compile(text, file, "exec")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "by"),
    [("hello-leaves-out-cleanup", "27.hello.4"), ("access-admits-jobs-without-a-bank", "closed")],
)
def test_fork_finds_a_mistake_in_a_core_and_one_in_a_plugin(name: str, by: str) -> None:
    """That of the plugin is in functions that are made when a world loads its copy."""
    task = Task(0, 8, ALL[name].edited(), worlds=worlds_of(ALL[name]))
    with closing(Forks()) as forks:
        found = forks.play(task)
    assert found is not None
    assert found.broken == by


@pytest.mark.real
def test_search_finds_a_mistake_in_a_small_world() -> None:
    end = NAMES.index("cancel") + 1
    answer = play(Task(0, end, ALL["free-before-the-release"].edited()), WORKER)
    assert (NAMES[answer.seed], answer.broken) == ("cancel", "32.start.39")
