"""Recounting at rest: the counters are compared with the active jobs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from flux_trio.jobtap.calls import HostServices
from flux_trio.jobtap.counter import Counter
from flux_trio.jobtap.failures import describe
from flux_trio.jobtap.job import Job
from flux_trio.jobtap.loaded import Loaded, Tracker
from flux_trio.messages import Level
from flux_trio.protocols import Jobs, JobState
from flux_trio.trace import Kind


def recount(loaded: Loaded, tracker: Tracker, jobs: Jobs, given: HostServices) -> int:
    """Recount a plugin's counters, trace both counts, log differences; return their number."""
    handles = list(_active(loaded, tracker, jobs))
    declared: dict[str, Any] = {}
    recounted: dict[str, Any] = {}
    found = 0
    for counter in tracker.counters:
        try:
            kept = counter.recount(handles)
            declared[counter.name] = {str(key): amount for key, amount in kept.items()}
            recounted[counter.name] = counter.shown()
            differences = list(_differences(counter, kept))
        except Exception as error:  # noqa: BLE001 - a key is the plugin's own code
            given.log(Level.ERR, f"plugin {loaded.name}: counter {counter.name}: {describe(error)}")
            continue
        for text in differences:
            given.log(Level.ERR, f"plugin {loaded.name}: {text}")
        found += len(differences)
    data = {"plugin": loaded.name, "declared": declared, "recounted": recounted}
    given.note_all(Kind.COUNTERS, [data])
    return found


def _active(loaded: Loaded, tracker: Tracker, jobs: Jobs) -> Iterator[Job]:
    """Yield the active jobs that the tracker knows."""
    for jobid in tracker.entered:
        view = jobs.get(jobid)
        if view is not None and view.state != JobState.INACTIVE:
            yield Job(view, None, loaded.job_host)


def _differences(counter: Counter, kept: dict[Hashable, float]) -> Iterator[str]:
    for key in dict.fromkeys([*kept, *counter]):
        had, has = kept.get(key, 0), counter[key]
        if had != has:
            yield f"counter {counter.name} of {key!r} had {had}, there are {has}"
