"""docs/reference/limits.md says what the code has."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import msgspec
import pytest

from flux_trio.config import UserLimitsConfig

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text()
ROWS = re.findall(r"^\| `([\w.-]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
CONSTANTS = [(name, value) for name, value in ROWS if "." in name]
KEYS = {name: int(value) for name, value in ROWS if "." not in name}
FOR_A_USER = re.compile(r"^(\w+_OF_(?:USER|GUEST|GUESTS|OWNER)(?:_BYTES)?_MAX)\b", re.MULTILINE)


@pytest.mark.parametrize(("name", "value"), CONSTANTS)
def test_a_constant_has_the_value_of_the_page(name: str, value: str) -> None:
    module, _, constant = name.rpartition(".")
    found = getattr(importlib.import_module(f"flux_trio.{module}"), constant)
    assert str(found) == value


def test_every_bound_for_a_user_is_on_the_page() -> None:
    told = {name.rpartition(".")[2] for name, _ in CONSTANTS}
    sources = (ROOT / "flux_trio").rglob("*.py")
    assert {name for each in sources for name in FOR_A_USER.findall(each.read_text())} <= told


def test_limits_that_can_be_set_have_the_defaults_of_the_page() -> None:
    fields = msgspec.structs.fields(UserLimitsConfig)
    assert {field.encode_name: field.default for field in fields} == KEYS
