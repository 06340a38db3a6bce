"""Jobs that may be active at rest: a plugin holds them, or a job on which they depend.

When all has been put right, each active job has an urgency that is not 0, and the plugins have been
asked for its priority once more. If the last answer is UNAVAILABLE or 0, the job rightly waits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from flux_trio.formats import FormatError, parse_fluid
from flux_trio.jobtap.catalogue import Returns, hook_of
from flux_trio.lab.world.jobs import stored_job
from flux_trio.protocols import JobState
from flux_trio.store.stores import Store
from flux_trio.trace import Kind, Record

_HOOK: Final[str] = Kind.HOOK.value
_HOLDING: Final = ("UNAVAILABLE", 0)


class Waiting:
    """Follows the trace, and knows which jobs a plugin holds by its last answer."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def observe(self, record: Record) -> None:
        """Note the answer of a plugin about a priority that the next record of the trace tells of,
        if it does.
        """
        if record.kind != _HOOK or record.data is None or record.data["result"] is None:
            return
        if not is_about_priority(record.data["hook"]):
            return
        if record.data["result"] in _HOLDING:
            self._held.add(record.data["id"])
        else:
            self._held.discard(record.data["id"])

    def rightly(self, active: Iterable[int], store: Store) -> set[int]:
        """Return those of the active jobs that may stay active at rest, by their stored eventlogs.

        They are in PRIORITY or SCHED and a plugin holds them, or they are in DEPEND and wait for a
        dependency on such a job. A dependency that names no job may be on any job.
        """
        depending: dict[int, frozenset[str]] = {}
        waiting: set[int] = set()
        for jobid in active:
            job = stored_job(jobid, store)
            if job is None:
                continue
            if job.state == JobState.DEPEND:
                depending[jobid] = job.dependencies or frozenset()
            elif job.state in (JobState.PRIORITY, JobState.SCHED) and jobid in self._held:
                waiting.add(jobid)
        while found := {
            jobid
            for jobid, dependencies in depending.items()
            if jobid not in waiting and any(_may_be_on(each, waiting) for each in dependencies)
        }:
            waiting |= found
        return waiting


@functools.cache
def is_about_priority(topic: str) -> bool:
    """Return whether plugins answer a question of this topic with a priority."""
    return hook_of(topic).returns is Returns.PRIORITY


def _may_be_on(description: str, waiting: set[int]) -> bool:
    """Whether a dependency, `scheme=value` or another text, may be on one of the jobs."""
    try:
        return parse_fluid(description.partition("=")[2]) in waiting
    except FormatError:
        return bool(waiting)
