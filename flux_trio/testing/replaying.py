"""Replay the jobs of a recorded trace with a plugin.

Jobs are submitted with their jobspecs and at their times. The recorded steps of the scheduler, the
execution service and users are repeated if they are still possible; a step that the plugin made
impossible is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from flux_trio.messages import Request, topics
from flux_trio.protocols import JobEvent, JobState
from flux_trio.testing.harness import PluginHarness, Rejected
from flux_trio.testing.harness_job import HarnessJob
from flux_trio.trace import Kind, Record


@dataclass(slots=True)
class Replayed:
    """`jobs` by their recorded ids; `differences` are sentences, in order."""

    jobs: dict[int, HarnessJob] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def replay_trace(harness: PluginHarness, records: Iterable[Record]) -> Replayed:
    """Replay the jobs of a trace (`flux_trio.trace.read_trace`) in `harness`."""
    kept = list(records)
    replayed = Replayed()
    jobspecs = dict(_jobspecs(kept))
    now = None
    for record in kept:
        data = record.data or {}
        if record.kind != Kind.EVENT or data["id"] not in jobspecs:
            continue
        if now is not None and record.t > now:
            harness.advance(record.t - now)
        now = record.t if now is None else max(now, record.t)
        if data["name"] == JobEvent.SUBMIT:
            _submit(harness, replayed, data, jobspecs[data["id"]])
        elif data["id"] in replayed.jobs:
            _repeat(replayed, data)
    return replayed


def _jobspecs(records: Iterable[Record]) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield id and jobspec from submit requests, or if those were not recorded, from alloc."""
    for record in records:
        message = record.message
        if not isinstance(message, Request) or not isinstance(message.payload, dict):
            continue
        if message.topic == topics.JOB_SUBMIT:
            for job in message.payload.get("jobs", ()):
                if "jobspec" in job:
                    yield job["id"], job["jobspec"]
        elif message.topic == topics.SCHED_ALLOC and "jobspec" in message.payload:
            yield message.payload["id"], message.payload["jobspec"]


def _submit(
    harness: PluginHarness, replayed: Replayed, data: dict[str, Any], jobspec: dict[str, Any]
) -> None:
    context = data["context"]
    try:
        job = harness.submit(jobspec, userid=context["userid"], urgency=context["urgency"])
    except Rejected as error:
        replayed.differences.append(f"job {data['id']}: rejected: {error}")
    else:
        replayed.jobs[data["id"]] = job


def _repeat(replayed: Replayed, data: dict[str, Any]) -> None:
    """Repeat a step that the job manager does not take itself; note it if it is impossible."""
    job, name, context = replayed.jobs[data["id"]], data["name"], data["context"]
    if name == JobEvent.EXCEPTION and job.state != JobState.INACTIVE:
        job.raise_exception(context["type"], context["severity"], context.get("note", ""))
    elif name == JobEvent.URGENCY and job.state != JobState.INACTIVE:
        job.set_urgency(context["urgency"])
    elif name in _STEPS:
        possible, step, missing = _STEPS[name]
        if possible(job):
            step(job, context)
        elif job.state != JobState.INACTIVE:
            replayed.differences.append(f"job {data['id']}: no {name}: {missing}")


_Step = tuple[Callable[[HarnessJob], bool], Callable[[HarnessJob, dict[str, Any]], None], str]

_STEPS: Final[dict[str, _Step]] = {
    JobEvent.ALLOC: (
        lambda job: job.is_offered,
        lambda job, _context: job.grant(),
        "it was not offered to the scheduler",
    ),
    JobEvent.START: (
        lambda job: job.is_start_requested,
        lambda job, _context: job.start(),
        "its start was not requested",
    ),
    JobEvent.FINISH: (
        lambda job: job.is_start_requested,
        lambda job, context: job.finish(context["status"]),
        "it does not run",
    ),
}
