"""The rules of jobtap's operations: which events a plugin may post to a job, and when.

Events that wait behind the current hook count as logged. So a plugin that posts now gets the same
decision as the job manager makes when it logs the event later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from flux_trio.editions.rfc21 import JobEvent, check_context, description_in, is_fatal
from flux_trio.formats import Event, FormatError, Jobspec, apply_update
from flux_trio.protocols.hooks import JobView
from flux_trio.protocols.job import JobState

FLAGS: Final = ("alloc-bypass", "debug", "immutable", "waitable")
"""The flags that a set-flags event may name."""

Queued = Iterable[tuple[str, Mapping[str, Any]]]

# Events that only the job manager posts, because they follow from its own actions.
_JOB_MANAGER_EVENTS = frozenset(
    {
        JobEvent.SUBMIT,
        JobEvent.VALIDATE,
        JobEvent.INVALIDATE,
        JobEvent.DEPEND,
        JobEvent.PRIORITY,
        JobEvent.FLUX_RESTART,
        JobEvent.ALLOC,
        JobEvent.RESOURCE_UPDATE,
        JobEvent.START,
        JobEvent.FINISH,
        JobEvent.RELEASE,
        JobEvent.FREE,
        JobEvent.CLEAN,
    }
)

_UNDECIDED = JobState.NEW | JobState.DEPEND
_PENDING = _UNDECIDED | JobState.PRIORITY | JobState.SCHED


def refusal(job: JobView, name: str, context: Mapping[str, Any], queued: Queued = ()) -> str | None:
    """Return why a plugin may not post event `name` to `job` now; None if it may."""
    if not isinstance(name, str) or not name or not name.isprintable():
        return f"expected the name of an event, got {name!r}"
    try:
        check_context(Event(0.0, name, dict(context)))
    except FormatError as error:
        return str(error)
    if job.state == JobState.INACTIVE:
        return f"{name}: the job is inactive"
    if name in _JOB_MANAGER_EVENTS:
        return f"{name}: only the job manager posts it"
    rule = _RULES.get(name)
    return None if rule is None else rule(job, context, queued)


def is_repeat(job: JobView, name: str, context: Mapping[str, Any], queued: Queued = ()) -> bool:
    """Return whether the event repeats an open description; then nothing is posted.

    A plugin that is loaded again thereby resumes its own dependency, prolog or epilog
    (26.events.4).
    """
    opened = _OPENED_BY.get(name)
    if opened is None:
        return False
    field, _ = opened
    return context.get("description") in _open_after(getattr(job, field), name, queued)


def is_done(
    job: JobView | None, name: str, context: Mapping[str, Any], queued: Queued = ()
) -> bool:
    """Return whether the event would remove a dependency that holds the job no longer.

    It was removed before, or the job has ended (None: it cannot be looked up any more); then
    nothing is posted.
    """
    if name != JobEvent.DEPENDENCY_REMOVE:
        return False
    if job is None or job.state in (JobState.CLEANUP, JobState.INACTIVE):
        return True
    return _was_removed(job, context.get("description"), queued)


def _was_removed(job: JobView, description: Any, queued: Queued) -> bool:
    removed = (JobEvent.DEPENDENCY_REMOVE, description)
    return description in (job.dependencies_met or ()) or removed in [
        (name, each.get("description")) for name, each in queued
    ]


def _open_after(now: Iterable[str] | None, opener: str, queued: Queued) -> set[str]:
    """Return the descriptions that will be open after the queued events are logged."""
    _, closer = _OPENED_BY[opener]
    descriptions = set(now or ())
    for name, context in queued:
        if name == opener:
            descriptions.add(description_in(context))
        elif name == closer:
            descriptions.discard(description_in(context))
    return descriptions


_OPENED_BY = {
    JobEvent.DEPENDENCY_ADD.value: ("dependencies", JobEvent.DEPENDENCY_REMOVE.value),
    JobEvent.PROLOG_START.value: ("prologs", JobEvent.PROLOG_FINISH.value),
    JobEvent.EPILOG_START.value: ("epilogs", JobEvent.EPILOG_FINISH.value),
}


def _refusal_outside(job: JobView, states: int, what: str) -> str | None:
    """Return None if `job` is in one of `states`, else the text of the refusal."""
    if job.state & states:
        return None
    names = " or ".join(state.name for state in JobState if state & states)
    return f"{what}: expected a job in {names}, it is in {job.state.name}"


def _dependency_add(job: JobView, context: Mapping[str, Any], queued: Queued) -> str | None:
    description = description_in(context)
    if _was_removed(job, description, queued):
        return (
            f"dependency-add: {description!r} was removed: a job can have a description only once"
        )
    return _refusal_outside(job, _UNDECIDED, "dependency-add")


def _dependency_remove(job: JobView, context: Mapping[str, Any], queued: Queued) -> str | None:
    description = description_in(context)
    if description not in _open_after(job.dependencies, JobEvent.DEPENDENCY_ADD, queued):
        return f"dependency-remove: expected a dependency that was added, got {description!r}"
    return _refusal_outside(job, _UNDECIDED, "dependency-remove")


def _prolog_start(job: JobView, context: Mapping[str, Any], queued: Queued) -> str | None:
    if is_repeat(job, JobEvent.PROLOG_START, context, queued):
        return None
    if job.start_requested:
        return "prolog-start: expected before the start request"
    return _refusal_outside(job, JobState.RUN, "prolog-start")


def _prolog_finish(job: JobView, context: Mapping[str, Any], queued: Queued) -> str | None:
    description = description_in(context)
    if description not in _open_after(job.prologs, JobEvent.PROLOG_START, queued):
        return f"prolog-finish: expected a prolog that was started, got {description!r}"
    return _refusal_outside(job, JobState.RUN | JobState.CLEANUP, "prolog-finish")


def _epilog_start(job: JobView, _context: Mapping[str, Any], _queued: Queued) -> str | None:
    if job.state == JobState.CLEANUP and not job.has_resources and job.was_posted(JobEvent.FREE):
        return "epilog-start: expected before the resources are freed"
    return _refusal_outside(job, JobState.CLEANUP, "epilog-start")


def _epilog_finish(job: JobView, context: Mapping[str, Any], queued: Queued) -> str | None:
    description = description_in(context)
    if description not in _open_after(job.epilogs, JobEvent.EPILOG_START, queued):
        return f"epilog-finish: expected an epilog that was started, got {description!r}"
    return _refusal_outside(job, JobState.CLEANUP, "epilog-finish")


def _urgency(job: JobView, _context: Mapping[str, Any], _queued: Queued) -> str | None:
    return _refusal_outside(job, _PENDING, "urgency")


def _exception(job: JobView, context: Mapping[str, Any], _queued: Queued) -> str | None:
    if job.state == JobState.NEW and is_fatal(JobEvent.EXCEPTION, context):
        return (
            "exception: severity 0 is not allowed before the job is valid; reject the job instead"
        )
    return None


def _jobspec_update(job: JobView, context: Mapping[str, Any], _queued: Queued) -> str | None:
    rule = _refusal_outside(job, _PENDING, "jobspec-update")
    if rule is None:
        try:
            check_updated(context, job.current_jobspec_bytes())
        except FormatError as error:
            return str(error)
    return rule


def check_updates(updates: Mapping[str, Any], jobspec: bytes) -> dict[str, Any]:
    """Return the jobspec with `updates`; the result may be an invalid jobspec.

    Raises FormatError unless each key path starts with attributes. and fits `jobspec`.
    """
    updated: dict[str, Any] = msgspec.json.decode(jobspec)
    for path, value in updates.items():
        if not path.startswith("attributes."):
            raise FormatError("a key that starts with attributes.", path, JobEvent.JOBSPEC_UPDATE)
        updated = apply_update(updated, path, value)
    return updated


def check_updated(updates: Mapping[str, Any], jobspec: bytes) -> None:
    """Raise FormatError unless the jobspec with `updates` is a valid jobspec (RFC 14)."""
    Jobspec.parse_general(check_updates(updates, jobspec))


def _set_flags(_job: JobView, context: Mapping[str, Any], _queued: Queued) -> str | None:
    for flag in context["flags"]:
        if flag not in FLAGS:
            return f"set-flags: expected one of {', '.join(FLAGS)}, got {flag!r}"
    return None


_RULES = {
    JobEvent.DEPENDENCY_ADD.value: _dependency_add,
    JobEvent.DEPENDENCY_REMOVE.value: _dependency_remove,
    JobEvent.PROLOG_START.value: _prolog_start,
    JobEvent.PROLOG_FINISH.value: _prolog_finish,
    JobEvent.EPILOG_START.value: _epilog_start,
    JobEvent.EPILOG_FINISH.value: _epilog_finish,
    JobEvent.URGENCY.value: _urgency,
    JobEvent.EXCEPTION.value: _exception,
    JobEvent.JOBSPEC_UPDATE.value: _jobspec_update,
    JobEvent.SET_FLAGS.value: _set_flags,
}
