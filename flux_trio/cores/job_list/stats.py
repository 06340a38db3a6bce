"""job-list.job-stats: how many jobs there are in each state, and how those that are over ended.

Counted as jobs change, so that an answer costs nothing. Left out: counts by queue.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from flux_trio.cores.job_list.finished import Finished
from flux_trio.protocols import JobResult, JobState

_STATES: Final = tuple(state for state in JobState if state is not JobState.NEW)
_RESULTS: Final = {
    JobResult.COMPLETED: "successful",
    JobResult.FAILED: "failed",
    JobResult.CANCELED: "canceled",
    JobResult.TIMEOUT: "timeout",
}


def job_stats(counts: Counter[int], finished: Finished) -> dict[str, Any]:
    """The response: `counts` are those of active jobs, by state."""
    results = {name: finished.counts[result] for result, name in _RESULTS.items()}
    states = {state.name.lower(): counts[state] for state in _STATES}
    states["inactive"] = sum(results.values())
    states["total"] = sum(states.values())
    return {"job_states": states, **results, "inactive_purged": finished.npurged, "queues": []}
