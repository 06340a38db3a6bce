"""Mistakes are played in worlds that run the edited code, and each world of a plugin loads it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.mistakes.entries import mistakes
from tests.mistakes.families import NEEDS, TRIED, worlds_of
from tests.mistakes.forking import Forks
from tests.mistakes.page import page
from tests.mistakes.reaching import played
from tests.mistakes.site import PROPERTIES
from tests.mistakes.trying import Target, Trial, play
from tests.mistakes.worker import Task
from tests.mistakes.worlds import PLAIN, Worlds, open_worlds
from tests.planter.findings import Finding, Findings

ALL = {each.id: each for each in mistakes()}
STACK_ONLY = ("flux_trio/services/", "flux_trio/broker/handle.py", "flux_trio/broker/supervisor.py")


def test_code_that_only_the_whole_stack_runs_is_played_there() -> None:
    wrong = [
        each.id
        for each in ALL.values()
        for edit in each.edit
        if edit.file.startswith((*STACK_ONLY, "plugins/")) and each.depth != "stack"
    ]
    assert wrong == []


def test_plugins_with_mistakes_have_properties() -> None:
    plugins = {worlds_of(each).plugin for each in ALL.values()}
    assert plugins - {""} <= PROPERTIES.keys()


@pytest.mark.real
@pytest.mark.parametrize("plugin", PROPERTIES)
def test_worlds_with_a_plugin_break_nothing(plugin: str) -> None:
    assert played(0, 3, Worlds("stack", plugin)).unsound == []


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("multifactor-lets-one-job-too-many-run", "limit"),
        ("multifactor-releases-no-job-at-an-end", "limit"),
        ("reservation-lets-endless-jobs-run-into-a-window", "window"),
        ("reservation-forgets-the-end-of-its-window", "window"),
        ("access-admits-jobs-without-a-bank", "closed"),
    ],
)
def test_mistake_in_a_plugin_is_planted_in_the_copy_that_worlds_load(name: str, by: str) -> None:
    """Also in a fork, although the functions of the file are made when a world loads it."""
    task = Task(0, 2, ALL[name].edited(), worlds=worlds_of(ALL[name]))
    with closing(Forks()) as forks:
        found = forks.play(task)
    assert found is not None
    assert found.broken == by


@pytest.mark.real
def test_mistake_in_a_shell_is_found_in_the_whole_stack_alone() -> None:
    mistake = ALL["sched-hears-of-no-new-job-manager"]
    assert play(Task(6, 7, mistake.edited())).broken == ""
    assert play(Task(6, 7, mistake.edited(), worlds=worlds_of(mistake))).broken == "held"


def test_worlds_without_faults_have_the_jobs_of_their_seed() -> None:
    with open_worlds(Worlds(has_faults=False), {}) as calm, open_worlds(PLAIN, {}) as plain:
        without, with_faults = calm(3).plan, plain(3).plan
    assert without.faults == ()
    assert with_faults.faults
    assert without.jobs == with_faults.jobs


def test_worlds_have_names_of_their_own() -> None:
    all_ = [PLAIN, Worlds("stack"), Worlds("stack", "access.py"), Worlds(has_faults=False)]
    assert [each.name for each in all_] == ["", "stack", "stack-access", "cores-calm"]


def test_mistakes_that_need_a_fault_are_tried_without_one() -> None:
    tried = {each.name: each.worlds for each in TRIED[NEEDS]()}
    assert tried.keys() == {each.id for each in ALL.values() if each.needs == "fault"}
    assert not any(each.has_faults for each in tried.values())


def test_target_with_fewer_seeds_is_done_after_them(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now")
    said: list[str] = []
    trial = Trial(findings, said.append, 60, 1, reached={"A": []}, worker="tests.no_worker")
    trial.run([Target("A a", dict, place="A", seeds_max=30)])
    assert [each.split(" A a")[0] for each in said] == ["1/1 to seed 19", "1/1 to seed 59"]
    found = findings.latest("A a")
    assert found is not None
    assert found.ran == 30


def test_page_says_which_mistakes_need_no_fault(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now")
    findings.add(Finding("A", "", "", 300, 5.0))
    text, _, _ = page({NEEDS: ["A", "B"]}, {NEEDS: findings})
    assert "\n0 of 1 found, the others not by 300 seeds or more.\n" in text
    findings.add(Finding("B", "error", "because", 2, 1.0))
    text, _, _ = page({NEEDS: ["A", "B"]}, {NEEDS: findings})
    assert "\n1 of 2 found, the others not by 300 seeds or more: `B`.\n" in text
