"""What is planted is what the worlds are made of; a mutant that is found is not tried again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mistakes import actions
from tests.mistakes.page import page
from tests.mistakes.trying import Target, Trial, play
from tests.mistakes.worker import BROKEN, Task
from tests.planter.findings import Finding, Findings

DRAWING = "flux_trio/faults/drawing.py"


@pytest.mark.real
def test_seeds_are_played_with_what_is_planted() -> None:
    assert play(Task(0, 1, {})).broken == ""
    answer = play(Task(0, 2, {DRAWING: "raise ValueError('planted')"}))
    assert (answer.broken, answer.problem) == (BROKEN, "ValueError: planted")


@pytest.mark.real
def test_mutant_that_was_found_is_not_tried_again(tmp_path: Path) -> None:
    broken = {DRAWING: "raise ValueError('planted')"}
    findings = Findings(tmp_path / "found.jsonl", "now")
    trial = Trial(findings, lambda _: None, 1, 1)
    trial.run([Target("A", lambda: broken)])
    found = findings.latest("A")
    assert found is not None
    assert (found.by, found.ran) == (BROKEN, 1)
    trial.run([Target("A", dict)])  # nothing planted would be alive
    assert findings.latest("A") == found


def test_each_action_is_dropped_and_doubled() -> None:
    found = list(actions.targets())
    assert len(found) > 400
    assert [name for name, n in Counter(each.name for each in found).items() if n > 1] == []
    for each in found[:40]:
        ((file, text),) = each.plants().items()
        compile(text, file, "exec")


def test_page_has_what_was_found_and_what_is_alive(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now")
    findings.add(Finding("hello-leaves-out-cleanup", "27.hello.4", "because", 7, 1.5))
    findings.add(Finding("worst-job-first", "", "", 60, 5.0))
    findings.add(Finding("sched-grant-number", "", "", 400, 30.0))
    asked = ["hello-leaves-out-cleanup", "worst-job-first", "sched-grant-number", "deny-is-a-note"]
    text, summary, is_well = page({"mistakes": asked}, {"mistakes": findings})
    assert summary == (
        "Mistakes made by hand: 1 of 4 found, 1 not run; of each that was not found, "
        "60 seeds or more were played; median 7 seeds, 1.5 s."
    )
    assert "| 27.hello.4 | fault | `27.hello.4` | 7 | 1.5 |" in text
    assert "- `worst-job-first`, 60 seeds\n" in text
    assert "- `sched-grant-number`, 400 seeds. What would find it: more seeds: a grant" in text
    assert not is_well
