"""`make explore` keeps what it has found of each world, and explores only what is left."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flux_trio.lab import Drop, JobPlan, Plan, SentMessage
from tests.explore.exploring import MEMORY_MAX, SECONDS_MAX, explore_all, explore_one, wrong_with
from tests.explore.search import Broken, Report, Search, SmallWorld
from tests.planter.findings import Finding, Findings

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(run=0.0),))
UNSUITABLE = msgspec.structs.replace(ONE, faults=(Drop(SentMessage("sched.alloc")),))


def findings(directory: Path, program: str = "now") -> Findings:
    return Findings(directory / "worlds.jsonl", program)


@pytest.mark.real
def test_world_that_was_finished_is_not_explored_again(tmp_path: Path) -> None:
    said: list[str] = []
    (found,) = explore_all({"one": ONE}, findings(tmp_path), 1, said.append)
    assert (found.mutant, found.by) == ("one", "")
    assert found.ran == Search(ONE, with_rules=True).run().nstates
    again = explore_all({"one": UNSUITABLE}, findings(tmp_path), 1, said.append)
    assert again == [found]
    line = f"one: clean; {found.why}"
    assert said == [line, f"{line} (found by an earlier run)"]


@pytest.mark.real
def test_world_is_explored_again_when_the_program_has_changed(tmp_path: Path) -> None:
    findings(tmp_path, "before").add(Finding("one", "6.matchtag.1 is broken: by an old program"))
    (found,) = explore_all({"one": ONE}, findings(tmp_path, "now"), 1, lambda _: None)
    assert found.by == ""


def test_world_that_was_interrupted_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SmallWorld, "do", interrupt)
    assert explore_one("one", ONE) is None


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report(ONE), ""),
        (Report(ONE, seconds=SECONDS_MAX), ""),
        (Report(ONE, seconds=SECONDS_MAX + 1), "it takes more than 600 s"),
        (
            Report(ONE, broken=Broken("inactive", "ƒA is active", ())),
            "inactive is broken: ƒA is active",
        ),
    ],
)
def test_what_is_wrong_with_a_world(report: Report, said: str) -> None:
    assert wrong_with(report) == said


def test_memory_of_a_world_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, said in ((MEMORY_MAX, ""), (MEMORY_MAX + 1, "it takes more than 4,096 MiB")):
        monkeypatch.setattr(Report, "memory", memory)
        assert wrong_with(Report(ONE)) == said
