"""The page on faults: its table, its list and its examples, with those on traces, hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flux_trio.lab import JobPlan, Plan, run_plan
from flux_trio.lab.catalogue import FAULTS, Fault, Holds, Lie, SentMessage, When
from flux_trio.messages import topics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"

ROWS = (
    "raises, or returns early",
    "unload, reload",
    "hangs (alive, silent)",
    "connection lost, then the old one speaks again",
    "answers wrongly",
)
COLUMNS = (
    "scheduler",
    "exec service",
    "resource service",
    "job manager",
    "kvs",
    "client / remote peer",
)
NOTHING = {
    ("unload, reload", "client / remote peer"),
    ("connection lost, then the old one speaks again", "kvs"),
    ("answers wrongly", "job manager"),
    ("answers wrongly", "kvs"),
}
"""The cells that the design leaves empty."""

KINDS = {kind.__name__: kind for kind in FAULTS}
JOBS = (JobPlan(), JobPlan(nnodes=2), JobPlan(at=2.0, run=0.5))
MOMENT = When(topics.SCHED_ALLOC, nth=2)
SAID = {
    "sched": SentMessage(topics.SCHED_ALLOC, type="response", party="sched"),
    "job-exec": SentMessage("job-exec.start", type="response", party="job-exec"),
    "resource": SentMessage(topics.RESOURCE_ACQUIRE, type="response", party="resource"),
}


def table() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By row and column: the faults as (name, module)."""
    lines = [re.split(r" *\| *", line)[1:-1] for line in PAGE.read_text().splitlines()]
    start = next(n for n, cells in enumerate(lines) if cells[1:] == list(COLUMNS))
    rows = lines[start + 2 : start + 2 + len(ROWS)]
    return {
        (cells[0], column): re.findall(r'`(\w+)\("?([\w-]*)"?\)`', cell)
        for cells in rows
        for column, cell in zip(COLUMNS, cells[1:], strict=True)
    }


TABLE = table()
NAMED = sorted({named for cell in TABLE.values() for named in cell})


def test_every_cell_names_a_fault() -> None:
    assert set(TABLE) == {(row, column) for row in ROWS for column in COLUMNS}
    assert {cell for cell, faults in TABLE.items() if not faults} == NOTHING


def made(name: str, module: str) -> Fault:
    """A fault of the table, at a moment in the midst of things."""
    fault = KINDS[name]
    given: dict[str, Any] = {"when": MOMENT, "module": module}
    if issubclass(fault, Lie):
        grant = SentMessage(topics.KVS_COMMIT, nth=2, party=module)
        given = {"which": grant if name.startswith("Grant") else SAID[module]}
    elif name == "LoseClient":
        given["late"] = 1.0
    elif name == "WrongRequest":
        given |= {"topic": topics.JOB_RAISE, "payload": {"id": "no number"}}
    fields = fault.__struct_fields__
    return fault(**{key: value for key, value in given.items() if key in fields})


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("name", "module"), NAMED)
def test_every_property_holds_under_each_fault(name: str, module: str) -> None:
    fault = made(name, module)
    outcome = run_plan(Plan(seed=0, jobs=JOBS, faults=(fault,)))
    assert outcome.struck[0] == fault
    assert outcome.problems == ()
    assert fault.holds is Holds.OTHERS or outcome.excused == ()
    assert outcome.excused != () or not isinstance(fault, Lie)


EXAMPLES = [
    example
    for page in (PAGE, PAGE.with_name("trace.md"))
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_the_page_runs(example: str) -> None:
    exec(example, {})


def test_page_lists_each_fault() -> None:
    rows = re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE)
    assert rows == [kind.__name__ for kind in FAULTS]
