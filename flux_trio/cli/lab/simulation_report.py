"""The figures of a simulated run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flux_trio.cli.terminal.columns import short_duration
from flux_trio.sim import Metrics, Outcome, SimulationResult

_ALWAYS = (Outcome.COMPLETED, Outcome.TIMEOUT)  # printed even if the count is 0


def report_lines(result: SimulationResult) -> Iterator[str]:
    """Yield a line for each figure and one for what ran, names and values in columns."""
    for name, value in (*_figures(result.metrics), ("depth", result.depth)):
        yield f"{name:<22} {value}"


def _figures(metrics: Metrics) -> Iterator[tuple[str, str]]:
    yield "jobs", str(metrics.njobs)
    for outcome, count in metrics.outcomes.items():
        if count or outcome in _ALWAYS:
            yield f"  {_SAID.get(outcome, outcome.value)}", str(count)
    yield "makespan", short_duration(metrics.makespan_s)
    yield "mean wait", _seconds(metrics.wait_mean_s)
    yield "95th percentile wait", _seconds(metrics.wait_p95_s)
    slowdown = metrics.slowdown_mean
    yield "mean bounded slowdown", "-" if slowdown is None else f"{slowdown:.2f}"
    yield "utilisation", f"{metrics.utilisation:.1%}"


_SAID = {Outcome.TIMEOUT: "timed out"}


def _seconds(value: float | None) -> str:
    return "-" if value is None else short_duration(value)


def report_json(result: SimulationResult, seed: int) -> dict[str, Any]:
    """Return the same figures, times in seconds; null for a mean over no jobs."""
    metrics = result.metrics
    return {
        "seed": seed,
        "depth": result.depth,
        "jobs": metrics.njobs,
        "outcomes": {outcome.value: count for outcome, count in metrics.outcomes.items()},
        "makespan_s": metrics.makespan_s,
        "wait_mean_s": metrics.wait_mean_s,
        "wait_p95_s": metrics.wait_p95_s,
        "bounded_slowdown_mean": metrics.slowdown_mean,
        "utilisation": metrics.utilisation,
    }
