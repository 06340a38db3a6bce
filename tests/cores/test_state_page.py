"""The examples of docs/reference/state.md say what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.support import reborn

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "state.md"


def test_examples_of_the_page() -> None:
    if reborn.is_on:
        pytest.skip("cores are replaced after every turn")
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted > 10
