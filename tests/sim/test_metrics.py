"""Metrics, against numbers worked out by hand."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.sim import JobFacts, Outcome, measure
from flux_trio.sim.metrics import bounded_slowdown, downsample, percentile, thinned

# Four jobs on a machine of 10 cores:
#   a holds 4 cores from 0 to 100; b, submitted at 0, holds 8 from 100 to 150 (wait 100, timeout);
#   c is denied at 20 at once; d, submitted at 120, waits 30 and holds 10 for 2 s.
JOBS = [
    JobFacts("a", 0.0, 0.0, 100.0, 4, Outcome.COMPLETED),
    JobFacts("b", 0.0, 100.0, 150.0, 8, Outcome.TIMEOUT),
    JobFacts("c", 20.0, None, 20.0, 40, Outcome.DENIED),
    JobFacts("d", 120.0, 150.0, 152.0, 10, Outcome.COMPLETED),
]


def test_a_run_worked_out_by_hand() -> None:
    metrics = measure(JOBS, ncores=10)
    assert metrics.njobs == 4
    assert metrics.outcomes == {
        Outcome.COMPLETED: 2,
        Outcome.TIMEOUT: 1,
        Outcome.FAILED: 0,
        Outcome.CANCELED: 0,
        Outcome.DENIED: 1,
    }
    assert metrics.makespan_s == 152.0
    assert metrics.wait_mean_s == pytest.approx((0 + 100 + 30) / 3)
    assert metrics.wait_p95_s == 100.0
    # a: 100/100; b: 150/50; d: 32 over the bound of 10, not over 2
    assert metrics.slowdown_mean == pytest.approx((1 + 3 + 3.2) / 3)
    assert metrics.utilisation == pytest.approx((400 + 400 + 20) / 1520)


def test_series_step_where_something_changes_and_nowhere_else() -> None:
    metrics = measure(JOBS, ncores=10)
    assert metrics.utilisation_series == [(0.0, 0.4), (100.0, 0.8), (150.0, 1.0), (152.0, 0.0)]
    # the denied job came and went at 20
    assert metrics.queue_length_series == [(0.0, 1.0), (100.0, 0.0), (120.0, 1.0), (150.0, 0.0)]


def test_a_long_series_becomes_means_over_equal_spans() -> None:
    series = [(0.0, 4.0), (10.0, 0.0), (15.0, 2.0), (40.0, 6.0)]
    # 0-20: (4*10 + 0*5 + 2*5) / 20; 20-40: 2
    assert downsample(series, 40.0, 2) == [(0.0, 2.5), (20.0, 2.0)]
    assert downsample(series, 40.0, 4) == series


def test_a_long_series_with_gaps_has_means_and_gaps() -> None:
    series: list[tuple[float, float | None]] = [(0, 10), (1, None), (4, 20), (6, 40), (7, None)]
    assert thinned(series, 8, 5) == series
    assert thinned(series, 8, 4) == [(0, 10), (2, None), (4, 20), (6, 40)]
    assert thinned(series, 8, 2) == [(0, 10), (4, pytest.approx(80 / 3))]


@given(
    begin=st.floats(0, 2e9),
    steps=st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 9) | st.none()), min_size=4),
    last_s=st.floats(1, 1e5),
    data=st.data(),
)
def test_means_are_those_of_the_part_of_each_step_in_a_span(
    begin: float, steps: list[tuple[float, int | None]], last_s: float, data: st.DataObject
) -> None:
    """Also with times at which no float is the edge of a span."""
    times = [begin + passed for passed in accumulate((seconds for seconds, _ in steps), initial=0)]
    series = [(at, value) for at, (_, value) in zip(times, steps, strict=False)]
    t_end = times[-2] + last_s
    points = data.draw(st.integers(2, len(series) - 1))
    means = thinned(series, t_end, points)
    assert len(means) == points
    edges = [*(at for at, _ in means), t_end]
    for place, (_, mean) in enumerate(means):
        covered = [
            (min(after, edges[place + 1]) - max(at, edges[place]), value)
            for (at, value), (after, _) in pairwise([*series, (t_end, None)])
        ]
        parts = [
            (seconds, value) for seconds, value in covered if seconds > 0 and value is not None
        ]
        if not parts:
            assert mean is None
            continue
        wanted = sum(seconds * value for seconds, value in parts) / sum(each for each, _ in parts)
        assert mean == pytest.approx(wanted)


def test_a_slowdown_is_never_below_1() -> None:
    short = JobFacts("s", 0.0, 1.0, 2.0, 1, Outcome.COMPLETED)
    assert bounded_slowdown(short) == 1.0


def test_a_percentile_is_the_nearest_rank() -> None:
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile(list(range(1, 22)), 0.95) == 20
    assert percentile([7.0], 0.95) == 7.0


def test_no_jobs_and_no_started_jobs_have_no_means() -> None:
    empty = measure([], ncores=10)
    assert (empty.njobs, empty.makespan_s, empty.utilisation) == (0, 0.0, 0.0)
    denied = measure([JOBS[2]], ncores=10)
    assert denied.wait_mean_s is denied.wait_p95_s is denied.slowdown_mean is None
    assert denied.queue_length_series == [(20.0, 0.0)]
