"""--rlimit."""

import pytest

from flux_trio.cli.submit.resource_limits import current_limits, job_limits

CURRENT = {"core": 0, "cpu": -1, "nofile": 20, "nproc": 5, "memlock": 8, "ofile": 20}


@pytest.mark.parametrize(
    ("rules", "limits"),
    [
        ((), {"core": 0, "cpu": -1, "nofile": 20, "nproc": 5}),
        (("-*", "core"), {"core": 0}),
        (("-*,core,cpu",), {"core": 0, "cpu": -1}),
        (("-n*",), {"core": 0, "cpu": -1}),
        (("-*", "*"), CURRENT),
        (("-*", "nofile=7"), {"nofile": 7}),
        (("-*", "CORE=unlimited"), {"core": -1}),
        (("-/^c/,-n*",), {}),
    ],
)
def test_rules_are_applied_in_their_order(rules: tuple[str, ...], limits: dict[str, int]) -> None:
    assert job_limits(rules, CURRENT) == limits


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("nosuch", 'No corresponding rlimit matching "nosuch"'),
        ("nosuch=1", 'Invalid rlimit "nosuch"'),
        ("core=x", "Invalid value in core=x"),
        ("core=-1", "Invalid value in core=-1"),
    ],
)
def test_rules_that_mean_nothing_are_refused(rule: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        job_limits((rule,), CURRENT)


def test_limits_are_those_of_this_process() -> None:
    assert current_limits()["nofile"] > 0
