"""Tests of a user, each run in a pytest of its own."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs tests with flux-trio's plugin, and without pytest-trio and this tree's."""

    def run_tests(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(dedent(source))
        return pytester.runpytest_inprocess("-q", "-p", "no:trio", "-p", "no:cacheprovider", *args)

    return run_tests
