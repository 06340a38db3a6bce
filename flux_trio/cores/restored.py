"""What changes in a copy of an instance's state, so that it starts no job a second time. Pure."""

from __future__ import annotations

import msgspec

from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.editions import rfc21
from flux_trio.editions.rfc33 import read_checkpoint, write_checkpoint
from flux_trio.formats import Event, FormatError, Jobspec, format_event, parse_jobspec
from flux_trio.protocols import Job, JobEvent, JobState

EXCEPTION = "restore"  # type of the exception of jobs that had resources
BYPASS = "alloc-bypass"


def ending_event(jobid: int, eventlog: str, jobspec: str, note: str, now: float) -> str | None:
    """Return the event that ends a job which has resources; None for a job that waits for them.

    A job that the plugin alloc-bypass gives resources waits for no queue, so it ends as well. `now`
    is in seconds since the Unix epoch. Raises FluxError(EBADMSG) if the eventlog cannot be read.
    """
    job, events = fold_eventlog(Job, jobid, eventlog)
    if job.state is not JobState.RUN and not (job.is_active and _bypasses(jobspec)):
        return None
    raised = rfc21.Exceptional(EXCEPTION, rfc21.SEVERITY_FATAL, note)
    at = max(now, events[-1].timestamp)
    return format_event(Event(at, JobEvent.EXCEPTION, rfc21.write(raised)))


def _bypasses(jobspec: str) -> bool:
    try:
        parsed: Jobspec = parse_jobspec(jobspec.encode())
    except FormatError:
        return False
    return parsed.attribute(f"system.{BYPASS}") is not None


def stopped_checkpoint(text: str | None, reason: str) -> str:
    """Return a checkpoint in which all queues are stopped, also those that are not in `text`."""
    try:
        queues = [] if text is None else read_checkpoint(text).queues
    except msgspec.MsgspecError:
        queues = []
    return write_checkpoint(queues, reason)
