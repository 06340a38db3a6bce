"""Tests that break clauses on purpose, and which: all others fail if a clause is broken.

A test names the clauses beside it, with `pytest.mark.breaks`; here are those of whole files, and of
tests that judge what they play themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

ANY: Final = "*"

BREAKING: Final = {
    "tests/instance/test_clauses_instance.py::test_a_second_scheduler": "25.resources.7 28.impl.1",
    # shows that violations are found
    "tests/testing/test_watching.py": ANY,
    "tests/testing/test_plugin.py": ANY,
    "tests/cli/test_monitoring.py::test_what_breaks_while": ANY,
    # asks everything in everybody's name, also what only another service may ask
    "tests/instance/test_roles.py": ANY,
    "tests/instance/test_native_roles.py": ANY,
    "tests/fuzz/test_wire.py": ANY,
    # judges its scenarios itself, which break clauses on purpose
    "tests/judge/test_planted.py": ANY,
    "tests/explore/test_snapshot.py": ANY,
    "tests/judge/test_readers.py": ANY,
    "tests/judge/test_garbage.py": ANY,
    "tests/judge/test_innocent.py": ANY,
    "tests/judge/test_random_administration.py": ANY,
    # as flux-core does in the recording
    "tests/recordings/test_eventlogs.py": "27.impl.10 32.impl.5",
    "tests/recordings/test_steps.py": "27.impl.10 32.impl.5",
    # asks everything wrongly, as in the recording
    "tests/recordings/test_rpc_errors.py": ANY,
    # a scheduler that ends between hello and ready, as if ENODATA were the reason
    "tests/failures/test_next_scheduler.py::test_next_scheduler_takes_over_from_every_state"
    "[queued_before_ready": "6.streaming.3",
}
"""By the beginning of a test's id, the clauses that whoever the test plays breaks."""


def is_judged(nodeid: str) -> bool:
    """Whether the test's instances are judged at all."""
    return ANY not in _entries(nodeid)


def broken_on_purpose(nodeid: str) -> frozenset[str]:
    """The clauses that the test may break."""
    return frozenset[str]().union(*(entry.split() for entry in _entries(nodeid)))


def _entries(nodeid: str) -> list[str]:
    return [clauses for start, clauses in BREAKING.items() if nodeid.startswith(start)]


def named(table: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """The names in a table as parameters of a test, each with the clauses its first word names."""
    return [
        pytest.param(name, marks=pytest.mark.breaks(*words[0].split()))
        for name, words in table.items()
    ]
