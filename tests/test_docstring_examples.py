"""The examples in docstrings say what happens, and what people subclass has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import flux_trio
from flux_trio import jobtap, policies, testing

PACKAGE = Path(flux_trio.__file__).parent

WITH_EXAMPLE = [jobtap.Plugin, jobtap.counter, policies.Policy, testing.InstanceHarness]
"""What users derive from, copy the shape of, or begin a test with."""


def modules_with_examples() -> list[str]:
    paths = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text()]
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]


@pytest.mark.parametrize("name", sorted(modules_with_examples()))
def test_examples_of_a_module(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
    assert found.attempted > 0


@pytest.mark.parametrize("thing", WITH_EXAMPLE, ids=lambda each: each.__name__)
def test_what_people_derive_from_has_an_example(thing: object) -> None:
    assert ">>> " in (thing.__doc__ or "")
