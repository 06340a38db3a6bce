"""Tests of short-first."""

import pytest
from short_first import DAY, ShortFirst

from flux_trio.testing import Rejected


def test_the_shorter_job_ranks_higher(plugin_harness):
    harness = plugin_harness(ShortFirst())
    long, short = harness.submit(duration=7200), harness.submit(duration=60)
    assert short.priority == DAY - 60
    assert short.priority > long.priority


def test_a_job_has_to_say_how_long_it_takes(plugin_harness):
    harness = plugin_harness(ShortFirst())
    with pytest.raises(Rejected, match="at most a day"):
        harness.submit()


def test_nothing_goes_wrong_on_the_way(plugin_harness):
    harness = plugin_harness(ShortFirst())
    job = harness.submit(duration=60)
    job.set_urgency(20)
    job.run()
    assert job.names[-1] == "clean"
    calls = harness.calls_of("short-first")
    assert [call.hook for call in calls] == ["job.validate", *["job.state.priority"] * 2]
    assert not any(call.error for call in calls)
