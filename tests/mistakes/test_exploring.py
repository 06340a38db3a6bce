"""Small worlds are explored with what is planted; the page has what was found there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.explore.search import SmallWorld
from tests.mistakes import exploring, small_worlds
from tests.mistakes.entries import mistakes
from tests.mistakes.exploring import NAMES, WORKER, is_alive, page
from tests.mistakes.small_worlds import ROUNDS, SMALL_WORLDS
from tests.mistakes.trying import NOT_REACHED, play
from tests.mistakes.worker import BROKEN, Task
from tests.planter.findings import Finding, Findings


def test_rounds_end_with_all_worlds() -> None:
    assert ROUNDS[-1] == len(SMALL_WORLDS)


@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_worlds_are_small_enough_to_be_explored(name: str) -> None:
    assert SmallWorld(SMALL_WORLDS[name]).choices()


@pytest.mark.real
def test_worlds_are_explored_with_what_is_planted() -> None:
    (mistake,) = (each for each in mistakes() if each.id == "free-before-the-release")
    end = NAMES.index("cancel") + 1
    assert play(Task(0, end, {}), WORKER).broken == ""
    answer = play(Task(0, end, mistake.edited()), WORKER)
    assert (NAMES[answer.seed], answer.broken) == ("cancel", "32.start.39")
    assert re.match("cancel, [0-9]+ steps: ", answer.problem)


@pytest.mark.real
def test_world_that_cannot_begin_is_told() -> None:
    broken = {"tests/explore/search/search.py": "raise ValueError('planted')"}
    answer = play(Task(0, 1, broken), WORKER)
    assert (answer.broken, answer.problem) == (BROKEN, "ValueError: planted")


def test_mutants_that_fuzz_finds_or_does_not_reach_are_left_out() -> None:
    assert is_alive(None)
    assert is_alive(Finding("A", "", "", 60))
    assert not is_alive(Finding("A", "error", "because", 60))
    assert not is_alive(Finding("A", "", NOT_REACHED, 60))


def test_page_has_the_world_and_the_steps(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now", "worlds")
    findings.add(Finding("better-job-waits", "", "", len(NAMES), 5.0))
    findings.add(
        Finding("worst-job-first", "27.cancel.5", "exec-crash, 12 steps: job 7: late", 2, 1.25)
    )
    text, summary = page({"mistakes": findings, "rows": Findings(tmp_path / "none", "now")})
    assert summary == "Mistakes made by hand, explored: 1 of 2 found."
    assert "- `worst-job-first`: `27.cancel.5` in exec-crash, 12 steps, 1.2 s\n" in text
    assert f"Not found:\n\n- `better-job-waits`, {len(NAMES)} worlds\n" in text


def test_what_was_not_found_holds_for_the_same_worlds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "KEPT", tmp_path)
    findings = exploring.found_by_search("mistakes")
    findings.add(Finding("A", "", "", 2, 1.0))
    assert exploring.found_by_search("mistakes").of("A") is not None
    worlds = tmp_path / "other.py"
    worlds.write_text("other worlds")
    monkeypatch.setattr(small_worlds, "__file__", str(worlds))
    assert exploring.found_by_search("mistakes").of("A") is None
