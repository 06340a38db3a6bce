"""The page for authors of policies names all that a job, its shape and its grant have."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from flux_trio.policies import Grant, Job, Shape

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-a-scheduling-policy.md"


@pytest.mark.parametrize(
    ("words", "shape", "more"),
    [("job", Job, {"rank"}), ("job.shape", Shape, set()), ("grant", Grant, set())],
)
def test_each_field_is_on_the_page(words: str, shape: type, more: set[str]) -> None:
    table = PAGE.read_text().split(f"| `{words}.` |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {each.name for each in msgspec.structs.fields(shape)} | more
