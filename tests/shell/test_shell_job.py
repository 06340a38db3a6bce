"""A job of the shell host as the lines of its record tell it, without a process."""

from __future__ import annotations

import pytest

from flux_trio.shell.job import STATUS_LOST, ShellJob
from flux_trio.shell.records import Accepted, Ended


@pytest.mark.parametrize(
    ("statuses", "greatest"),
    [
        ([0, 768, 256], 768),
        ([512, 0, 15], 143 << 8),
        ([0, 256, 9], 137 << 8),
        ([255 << 8, 9], 255 << 8),
        ([0, 128 + 11], 139 << 8),  # with a core dump
        ([0, None, 0], STATUS_LOST),
    ],
)
def test_status_is_the_greatest_of_all_tasks(statuses: list[int | None], greatest: int) -> None:
    """32.start.32, readings: finish status. Whichever task has it, and whichever ends first."""
    job = ShellJob(7)
    job.apply(Accepted(len(statuses)))
    for taskid, status in enumerate(statuses):
        job.apply(Ended(taskid, status))
    assert job.status == greatest
