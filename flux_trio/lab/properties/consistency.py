"""Properties of a world at rest: what is stored and what is listed are the same jobs.

A job may be active there, if a plugin holds it: `inactive` (`running`) tells of the others.

Also that a fatal exception ends its job: it does not run on to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from flux_trio.cores.job_index import ACTIVE, ENDED, jobid_in
from flux_trio.formats import EVENTLOG, FormatError, format_fluid, job_key, parse_eventlog
from flux_trio.lab.properties.across_restarts import ACROSS_RESTARTS
from flux_trio.lab.properties.copies import Copied
from flux_trio.lab.properties.kept_twice import KEPT_TWICE
from flux_trio.lab.properties.pauses import AT_PAUSES, names_of
from flux_trio.lab.properties.priorities import Priorities
from flux_trio.lab.properties.property import (
    at_rest,
    no_job_runs_twice,
    over_trace,
    resources_are_accounted_for,
)
from flux_trio.lab.properties.recovery import Recovered
from flux_trio.lab.properties.subscriptions import Subscribers
from flux_trio.lab.properties.trace_properties import OVER_TRACE
from flux_trio.lab.properties.updates import Requested
from flux_trio.lab.world.clients import Asker
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import stored_job
from flux_trio.messages import Request, topics
from flux_trio.protocols import InvalidTransition, JobEvent, JobState, replay
from flux_trio.trace import SLEEP, Kind, Record

STEPS_MAX: Final = 2000
"""The number of steps within which job-list answers, even if it has to read its state first."""
LATE_S: Final = 30.0
"""Seconds within which a job ends after its fatal exception, whichever module is slow or away."""
_ALL: Final = sum(JobState)
_SLOW: Final = (SLEEP, "held-until", "overtaken", "delay", "plugin-hangs")
_EVENTLOG: Final = f".{EVENTLOG}"
_GUEST: Final = ".guest."  # below it are the eventlogs of the execution service


@at_rest("listed")
def stored_jobs_are_listed(world: CoresWorld) -> str:
    """At rest job-list lists and counts each stored job once, finished or active, and no other."""
    wanted = {"max_entries": 0, "states": _ALL, "queues": []}
    looker = Asker([Request(topics.LIST_LIST, wanted), Request(topics.LIST_STATS, {})])
    world.start(world.add("looker", looker))
    for _ in range(STEPS_MAX):
        if len(looker.answers) == 2 or not world.step():
            break
    world.remove("looker", "")
    ended, active = _stored(world, ENDED), _active(world)
    for topic in (topics.LIST_LIST, topics.LIST_STATS):
        answer = looker.answers.get(topic)
        if answer is None or answer.errnum or not isinstance(answer.payload, dict):
            return f"{topic} is not answered" if answer is None else f"{topic}: {answer.payload}"
    jobs = _payload(looker, topics.LIST_LIST)["jobs"]
    listed = sorted((job["id"], job["state"] == JobState.INACTIVE) for job in jobs)
    if listed != sorted([*((id_, True) for id_ in ended), *((id_, False) for id_ in active)]):
        names = ", ".join(format_fluid(job["id"], "f58") for job in jobs) or "none"
        return f"{len(ended)} jobs are finished, {len(active)} active, listed are {names}"
    counts = {name: n for name, n in _payload(looker, topics.LIST_STATS)["job_states"].items() if n}
    states = Counter(JobState(job["state"]).name.lower() for job in jobs)
    states["total"] = len(jobs)
    return "" if counts == +states else f"listed are {dict(+states)}, counted are {counts}"


def _stored(world: CoresWorld, index: str) -> list[int]:
    return [jobid_in(key) for key in world.disk.store.dir(index)]


def _active(world: CoresWorld) -> list[int]:
    """Return the active jobs, without those that the job manager was never told of."""
    store = world.disk.store
    found = {jobid: stored_job(jobid, store) for jobid in _stored(world, ACTIVE)}
    return [jobid for jobid, job in found.items() if job and job.state != JobState.NEW]


def _payload(looker: Asker, topic: str) -> dict[str, Any]:
    payload = looker.answers[topic].payload
    assert isinstance(payload, dict)
    return payload


@at_rest("stored")
def eventlogs_are_whole(world: CoresWorld) -> str:
    """At rest each stored eventlog is one that RFC 21 allows, of a job that has ended or waits.

    A job that ingest has stored and that the job manager was never told of is in NEW.
    """
    store = world.disk.store
    ended, active = (set(_stored(world, index)) for index in (ENDED, ACTIVE))
    for key in store.dir("job"):
        if not key.endswith(_EVENTLOG) or _GUEST in key:
            continue
        (text,) = store.lookup([key])
        if not isinstance(text, str):
            continue
        try:
            job = replay(0, parse_eventlog(text))
        except (FormatError, InvalidTransition) as error:
            return f"{key}: {error}"
        if job.state in (JobState.RUN, JobState.CLEANUP):
            return f"{key}: the job is in {job.state.name}"
    for jobid in sorted(ended):
        if jobid in active or not store.lookup([job_key(jobid, EVENTLOG)])[0]:
            name = format_fluid(jobid, "f58")
            return (
                f"{name} is finished, and its eventlog or the index of active jobs says otherwise"
            )
    return ""


@over_trace("ended")
def a_fatal_exception_ends_its_job(trace: Sequence[Record]) -> str:
    """A job that has a fatal exception does not run on to its end, with status 0."""
    raised: dict[int, float] = {}  # by job: when it got its exception, in seconds that passed
    ahead = 0.0  # how far the wall clock was set
    for record in trace:
        data = record.data or {}
        if record.kind == Kind.CONFIG:
            raised.clear()  # the instance begins anew, from the events that were stored
        elif record.kind == Kind.CLOCK:
            ahead += data["by"]
        elif record.kind == Kind.FAULT and data.get("type") in _SLOW:
            return ""  # then time may pass and nobody can do anything
        elif record.kind == Kind.EVENT:
            passed, context = record.t - ahead, data["context"]
            if data["name"] == JobEvent.EXCEPTION and context["severity"] == 0:
                raised.setdefault(data["id"], passed)
            elif data["name"] == JobEvent.FINISH and context["status"] == 0:
                late_s = passed - raised.get(data["id"], passed)
                if late_s > LATE_S:
                    name = format_fluid(data["id"], "f58")
                    return f"{name} runs on for {late_s:g} s after its fatal exception"
    return ""


@at_rest("forgotten")
def plugins_have_left_all_jobs(world: CoresWorld) -> str:
    """At rest the host of plugins keeps no job that has ended: each has left its last state."""
    manager = getattr(world.stations["job-manager"], "core", None)
    active = set(_stored(world, ACTIVE))
    for plugin, jobids in getattr(manager, "entered", {}).items():
        if kept := set(jobids) - active:
            names = names_of(kept)
            return f"{names} is finished, and has not left its state for plugin {plugin}"
    return ""


OURS: Final = (
    no_job_runs_twice,
    resources_are_accounted_for,
    stored_jobs_are_listed,
    eventlogs_are_whole,
    a_fatal_exception_ends_its_job,
    plugins_have_left_all_jobs,
    *AT_PAUSES,
    *KEPT_TWICE,
    *OVER_TRACE,
    *ACROSS_RESTARTS,
    Subscribers,
    Priorities,
    Requested,
    Recovered,
    Copied,
)
"""The properties that are checked in every world, beside those of the judge."""
