"""What is planted is what the worlds are made of; a mutant that is found is not tried again."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.mistakes import actions
from tests.mistakes.forking import Forks, Unplantable, changed_in
from tests.mistakes.page import page
from tests.mistakes.reaching import survey
from tests.mistakes.trying import NOT_REACHED, Target, Trial, play
from tests.mistakes.worker import BROKEN, Task
from tests.mistakes.worlds import Worlds
from tests.planter.findings import ROOT, Finding, Findings

DRAWING = "flux_trio/lab/plans/drawing.py"
ALLOC = "flux_trio/cores/job_manager/scheduler/allocs.py:_send: "


def is_dropped(target: Target) -> bool:
    return target.name.endswith(" dropped")


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


def test_actions_that_note_their_places_are_all_there() -> None:
    texts = actions.noting()
    for file, text in texts.items():
        compile(text, file, "exec")
    noted = Counter(re.findall(rf"{actions.NOTE}\((.+?)\); ", "".join(texts.values())))
    assert noted == Counter(repr(each.place) for each in actions.targets() if is_dropped(each))


@pytest.mark.real
def test_request_for_resources_that_is_dropped_is_missed_at_the_first_seed_that_reaches_it(
    tmp_path: Path,
) -> None:
    """The worlds run what is planted, and the survey knows which of them do."""
    (dropped,) = (
        each for each in actions.targets() if each.name.startswith(ALLOC) and is_dropped(each)
    )
    known = survey(tmp_path / "survey.json", 3, lambda _: None)
    findings = Findings(tmp_path / "found.jsonl", "now")
    Trial(findings, lambda _: None, 3, 1, reached=known.reached).run([dropped])
    found = findings.latest(dropped.name)
    assert found is not None
    assert found.by in ("invariant.nobody-stuck", "idle")
    assert found.ran == known.reached[dropped.place][0] + 1


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "by"),
    [(ALLOC, "dropped"), ("flux_trio/cores/ingest/core.py:_decided: ", "doubled")],
)
def test_fork_finds_what_a_new_process_finds(name: str, by: str) -> None:
    target = next(
        each for each in actions.targets() if each.name.startswith(name) and each.name.endswith(by)
    )
    task = Task(0, 3, target.plants())
    with closing(Forks()) as forks:
        forked = forks.play(task)
        assert forked is not None
        assert forked.broken
        found = play(task)
        assert (forked.seed, forked.broken, forked.problem) == (
            found.seed,
            found.broken,
            found.problem,
        )
        other = forks.play(Task(0, 1, {}))  # the next one is as the program is
        assert other is not None
        assert other.broken == ""
        row = forks.play(Task(0, 1, {}, "JOB SCHED ALLOC deleted"))
        assert row is not None
        assert row.broken == "error"


def test_every_action_can_be_planted_in_memory() -> None:
    for each in actions.targets():
        ((file, text),) = each.plants().items()
        assert len(changed_in(file, text)) == 1, each.name


def test_edit_of_more_than_functions_is_not_planted_in_memory() -> None:
    file = "flux_trio/cores/outbox.py"
    text = (ROOT / file).read_text()
    assert changed_in(file, text) == []
    assert changed_in(file, "# a line more\n" + text) == []
    for other in (text + "\nMORE = 1\n", text.replace("def send(", "def sent(")):
        with pytest.raises(Unplantable):
            changed_in(file, other)


@pytest.mark.real
def test_survey_goes_on_where_it_was_and_finds_seeds_that_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "survey.json"
    path.write_text(json.dumps({"end": 1, "unsound": [0], "reached": {"A": [0]}}))
    known = survey(path, 2, lambda _: None)
    assert (known.end, known.unsound, known.reached["A"]) == (2, [0], [0])
    assert known.reached["JOB SCHED ALLOC"] == [1]
    assert survey(path, 1, lambda _: None) == known


def test_worlds_that_do_not_reach_a_mutant_are_not_played(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now")
    said: list[str] = []
    reached = {"A": [0, 1, 40], "C": []}
    trial = Trial(
        findings,
        said.append,
        40,
        1,
        {Worlds(): [0]},
        reached=reached,
        worker="tests.no_worker",
    )
    trial.run([Target("B dropped", dict, place="B"), Target("C dropped", dict, place="C")])
    assert [each.split(" (")[0] for each in said] == [
        "1/2 to seed 19 B dropped: not reached",
        "2/2 to seed 19 C dropped: not reached",
        "1/2 to seed 39 B dropped: not reached",
        "2/2 to seed 39 C dropped: not reached",
    ]
    with pytest.raises(RuntimeError, match="no_worker"):  # it is to be played
        trial.run([Target("A dropped", dict, place="A")])


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
    assert "| 27.hello.4 | fault | cores | `27.hello.4` | 7 | 1.5 |" in text
    assert "- `worst-job-first`, 60 seeds\n" in text
    assert "- `sched-grant-number`, 400 seeds. What would find it: more seeds: a grant" in text
    assert not is_well


def test_page_counts_what_no_world_reaches_by_file(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found.jsonl", "now")
    findings.add(Finding("cores/a.py:f: x dropped", "error", "because", 2, 1.0))
    findings.add(Finding("cores/a.py:f: x doubled", "", "", 60, 1.0))
    findings.add(Finding("cores/b.py:g: y dropped", "", NOT_REACHED, 60))
    findings.add(Finding("cores/b.py:g: y doubled", "", NOT_REACHED, 60))
    asked = [f"cores/{each}" for each in ("a.py:f: x dropped", "a.py:f: x doubled")]
    asked += [f"cores/b.py:g: y {how}" for how in ("dropped", "doubled")]
    text, _, _ = page({"actions": asked}, {"actions": findings}, commit="1234abcd")
    assert (
        "The program is that of commit 1234abcd.\n\n1 of 4 found, 1 of the 2 that a world" in text
    )
    assert "Not found:\n\n- `cores/a.py:f: x doubled`, 60 seeds\n" in text
    assert text.endswith("The worlds of the first 60 seeds do not reach: `cores/b.py` (2).\n")


def test_page_keeps_what_was_found_in_an_earlier_program(tmp_path: Path) -> None:
    now, later = (Findings(tmp_path / "found.jsonl", code) for code in ("now", "later"))
    now.add(Finding("A a", "error", "because", 2, 1.0))
    none = Findings(tmp_path / "none.jsonl", "later")
    asked = {"actions": ["A a", "A b"], "rows": ["R a"]}
    before, _, _ = page(asked, {"actions": now, "rows": none}, commit="1234abcd")
    text, summary, _ = page(asked, {"actions": later, "rows": none}, before, "5678abcd")
    assert text == before
    assert "1234abcd" in text
    assert summary.startswith("Actions of cores, dropped or doubled: 2 mutants, not run.")
