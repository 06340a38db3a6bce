"""The examples of docs/how-we-know/state.md say what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.support import reborn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-we-know" / "state.md"


def test_examples_of_the_page() -> None:
    if reborn.is_on:
        pytest.skip("cores are replaced after every turn")
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted > 10


def test_page_names_the_tests_that_the_gate_plays_with_cores_replaced() -> None:
    (arguments,) = re.findall(
        r'^make reborn ARGS="([^"]*)"', (ROOT / ".ci" / "run").read_text(), re.M
    )
    # The path behind --deselect has "::" in it.
    played = [each for each in arguments.split() if re.fullmatch(r"tests/[\w/.]+", each)]
    (sentence,) = re.findall(r"The gate .*? in this way", PAGE.read_text(), re.S)
    named = [each for each in re.findall(r"`([\w/.]+)`", sentence) if each != ".ci/run"]
    assert [f"tests/{each}" for each in named] == played
