"""The plugins every instance loads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flux_trio.jobtap import HookAnswer, PriorityDefault, ValidateDuration, builtin_plugins
from tests.support.job_view import SeenJob

JOB = SeenJob()


def asking(duration: Any) -> SeenJob:
    """A job, submitted at 100.0, whose jobspec has this duration."""
    jobspec = {"version": 1, "attributes": {"system": {"duration": duration}}}
    return replace(JOB, jobspec=json.dumps(jobspec).encode())


@pytest.mark.parametrize("urgency", [0, 16, 31])
def test_priority_is_the_urgency(urgency: int) -> None:
    plugin = PriorityDefault()
    assert list(plugin.handlers()) == ["job.state.priority"]
    handler = plugin.handlers()["job.state.priority"]
    assert handler(replace(JOB, urgency=urgency)) == HookAnswer(priority=urgency)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, None),  # unset
        (100, None),
        (100.0, None),
        (100.5, "job duration 1.675m exceeds remaining instance lifetime of 100s"),
        (7200, "job duration 2h exceeds remaining instance lifetime of 100s"),
    ],
)
def test_job_may_not_ask_for_longer_than_the_instance_has_left(
    duration: float, text: str | None
) -> None:
    handler = ValidateDuration(expiration=200.0).handlers()["job.validate"]
    answer = handler(asking(duration))
    assert answer == (None if text is None else HookAnswer(reject=text))


@pytest.mark.parametrize("jobspec", [b"{}", b'{"attributes": {}}', b'{"attributes":{"system":{}}}'])
def test_job_without_a_duration_may_run_to_the_end_of_the_instance(jobspec: bytes) -> None:
    handler = ValidateDuration(expiration=200.0).handlers()["job.validate"]
    assert handler(replace(JOB, jobspec=jobspec)) is None


def test_instance_past_its_end_takes_no_job_with_a_duration() -> None:
    handler = ValidateDuration(expiration=50.0).handlers()["job.validate"]
    text = "job duration 1s exceeds remaining instance lifetime of 0s"
    assert handler(asking(1)) == HookAnswer(reject=text)
    assert handler(asking(0)) is None


def test_instance_without_an_end_does_not_ask() -> None:
    assert ValidateDuration(expiration=0.0).handlers() == {}


def test_builtins_have_names_of_their_own_that_start_with_a_period() -> None:
    names = [plugin.name for plugin in builtin_plugins(0.0)]
    assert names == [".validate-duration", ".priority-default"]
