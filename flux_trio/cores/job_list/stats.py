"""job-list.job-stats: how many jobs are in each state, and how the finished jobs have ended.

Jobs are counted as they change, so an answer is quick. Left out: counts by queue.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from flux_trio.cores.job_list.finished import Finished
from flux_trio.editions.job_list import JobStats
from flux_trio.protocols import JobResult, JobState

_STATES: Final = tuple(state for state in JobState if state is not JobState.NEW)


def job_stats(counts: Counter[int], finished: Finished) -> JobStats:
    """Return the response; `counts` are numbers of active jobs by state."""
    results = {result: finished.counts[result] for result in JobResult}
    states = {state.name.lower(): counts[state] for state in _STATES}
    states["inactive"] = sum(results.values())
    states["total"] = sum(states.values())
    return JobStats(
        job_states=states,
        successful=results[JobResult.COMPLETED],
        failed=results[JobResult.FAILED],
        canceled=results[JobResult.CANCELED],
        timeout=results[JobResult.TIMEOUT],
        inactive_purged=finished.npurged,
    )
