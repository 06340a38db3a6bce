"""dependency-after: which ends of a job satisfy which scheme of RFC 26."""

from __future__ import annotations

import pytest

from flux_trio.jobtap.builtins.dependency_after import CONDITIONS, Outcome

UNSTARTED = Outcome(
    1000, had_resources=False, started=False, succeeded=False, ended_by_exception=True
)
UNLAUNCHED = Outcome(
    1000, had_resources=True, started=False, succeeded=False, ended_by_exception=True
)
GOOD = Outcome(1000, had_resources=True, started=True, succeeded=True, ended_by_exception=False)
BAD = Outcome(1000, had_resources=True, started=True, succeeded=False, ended_by_exception=False)
KILLED = Outcome(1000, had_resources=True, started=True, succeeded=False, ended_by_exception=True)


@pytest.mark.parametrize(
    ("scheme", "satisfied"),
    [
        ("after", [GOOD, BAD, KILLED]),
        ("afterstart", [GOOD, BAD, KILLED]),
        ("afterany", [UNSTARTED, UNLAUNCHED, GOOD, BAD, KILLED]),
        ("afterok", [GOOD]),
        ("afternotok", [UNSTARTED, UNLAUNCHED, BAD, KILLED]),
        ("afterexcept", [UNLAUNCHED, KILLED]),
    ],
)
def test_which_outcomes_satisfy_a_scheme(scheme: str, satisfied: list[Outcome]) -> None:
    """26.schemes.2, 26.schemes.4, 26.schemes.5, 26.schemes.6"""
    all_of_them = [UNSTARTED, UNLAUNCHED, GOOD, BAD, KILLED]
    assert [each for each in all_of_them if CONDITIONS[scheme].holds(each)] == satisfied
