"""The plugin reservation: a maintenance window that jobs may not run into."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from reservation import Reservation

from flux_trio.testing import EPOCH, PluginHarness
from flux_trio.testing.pytest_plugin import StartHarness

HOUR = 3600.0


@pytest.fixture
def harness(plugin_harness: StartHarness) -> PluginHarness:
    """The window begins in two hours and lasts one."""
    plugin = Reservation()
    window = {"start": moment(2), "end": moment(3), "reason": "cooling"}
    plugin.conf = {"windows": [window]}
    return plugin_harness(plugin)


def moment(hours: float) -> str:
    return datetime.fromtimestamp(EPOCH + hours * HOUR, UTC).isoformat()


def test_who_would_be_done_in_time_is_let_be(harness: PluginHarness) -> None:
    job = harness.submit(duration=HOUR)
    assert (job.priority, job.is_offered) == (16, True)


@pytest.mark.parametrize("duration", [0.0, 2 * HOUR, 3 * HOUR])
def test_who_would_not_is_held_with_the_reason(harness: PluginHarness, duration: float) -> None:
    job = harness.submit(duration=duration)
    assert (job.priority, job.is_offered) == (0, False)
    assert job.annotations == {"reservation": {"reason": "cooling"}}


def test_the_later_it_gets_the_fewer_are_let_be(harness: PluginHarness) -> None:
    long, short = harness.submit(duration=1.5 * HOUR), harness.submit(duration=0.5 * HOUR)
    assert long.is_offered
    harness.advance(0.5 * HOUR)
    assert [long.is_offered, short.is_offered] == [False, True]
    harness.advance(HOUR)
    assert [long.is_offered, short.is_offered] == [False, False]


def test_all_go_on_when_it_is_over(harness: PluginHarness) -> None:
    job = harness.submit(duration=5 * HOUR)
    harness.advance(3 * HOUR)
    assert (job.priority, job.is_offered) == (16, True)
    assert job.annotations == {}


def test_a_running_job_is_let_be(harness: PluginHarness) -> None:
    job = harness.submit(duration=HOUR)
    job.grant()
    job.start()
    harness.advance(2.5 * HOUR)
    assert job.names[-1] == "start"


def test_windows_are_checked(plugin_harness: StartHarness) -> None:
    for start, end, text in (
        ("2026-12-01T08:00:00", "2026-12-01T09:00:00", "need a time zone"),
        ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z", "is not after"),
    ):
        plugin = Reservation()
        plugin.conf = {"windows": [{"start": start, "end": end}]}
        with pytest.raises(Exception, match=text):
            plugin_harness(plugin)
