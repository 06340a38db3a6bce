"""Restart: all state from the eventlogs (RFC 16, Content Consumed/Produced by Job Manager).

The job directories are scanned, each eventlog is folded, and of those still active the jobspecs are
read, and R of those that hold resources. Requests that come meanwhile wait.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flux_trio.formats import FormatError, parse_eventlog, parse_fluid
from flux_trio.messages import Errno, FluxError, Level, Payload, Request, Response, topics
from flux_trio.protocols import InvalidTransition, Job, JobState, replay
from flux_trio.services.job_manager.grants import resources_in
from flux_trio.services.job_manager.jobspecs import KeptJobspec
from flux_trio.services.job_manager.ledger import ActiveJob, Ledger
from flux_trio.services.job_manager.submission import redacted_bytes
from flux_trio.services.turns import Exit, Log

EVENTLOG = ".eventlog"
JOBSPEC = ".jobspec"
RESOURCES = ".R"


class Replay:
    """Reads the job directories; `done` once every one has been read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open = 0
        self._active: dict[int, Job] = {}
        self.done = False

    def start(self) -> list[Any]:
        """Ask for the keys of all jobs."""
        return [self._call(topics.KVS_DIR, {"prefix": "job"}, "")]

    def response(self, key: str, response: Response) -> list[Any]:
        """One answer; `key` is what was looked up, "" for the list of keys."""
        self._open -= 1
        if key == "" and response.errnum == Errno.ENOENT:
            self.done = True
            return []
        if key.endswith(RESOURCES):
            actions = self._take_resources(key, response)
        elif response.errnum:
            return [Exit(f"cannot read {key or 'the jobs'}: {response.error_text}")]
        else:
            actions = self._take(key, response.payload)
        self.done = self._open == 0
        return actions

    def _take(self, key: str, payload: Payload) -> list[Any]:
        assert isinstance(payload, dict)  # a successful lookup of ours
        if key == "":
            logs = [each for each in payload["keys"] if each.endswith(EVENTLOG)]
            return [self._lookup(each) for each in logs if each.count(".") == 5]
        jobid = _jobid_in(key)
        if key.endswith(JOBSPEC):
            job = self._active.pop(jobid)
            jobspec = redacted_bytes(payload["value"].encode())
            self._ledger.resume(_revive(job, self._ledger.jobspecs.keep(job.userid, jobspec)))
            return []
        return self._folded(key, jobid, payload["value"])

    def _folded(self, key: str, jobid: int, text: str) -> list[Any]:
        try:
            job = replay(jobid, parse_eventlog(text))
        except (FormatError, InvalidTransition, KeyError) as error:
            return [Log(Level.CRIT, f"{key}: not a job eventlog, left alone: {error}")]
        if not job.is_active:
            self._ledger.remember_inactive(jobid, job.userid)
            return []
        self._active[jobid] = job
        wanted = (JOBSPEC, RESOURCES) if job.has_resources else (JOBSPEC,)
        return [self._lookup(key.removesuffix(EVENTLOG) + name) for name in wanted]

    def _take_resources(self, key: str, response: Response) -> list[Any]:
        """R of a job whose jobspec has come before; without it others may be granted the same."""
        jobid = _jobid_in(key)
        try:
            self._ledger.jobs[jobid].granted = resources_in(response)
        except (FluxError, FormatError) as error:
            text = f"job {jobid}: what it holds is not known: {error}"
            return [Log(Level.CRIT, text)]
        return []

    def _lookup(self, key: str) -> Request:
        return self._call(topics.KVS_LOOKUP, {"key": key}, key)

    def _call(self, topic: str, payload: dict[str, Any], key: str) -> Request:
        self._open += 1
        return Request(topic, payload, self._ledger.calls.open(partial(self.response, key)))


def _jobid_in(key: str) -> int:
    return parse_fluid(key.removeprefix("job.").rpartition(".")[0])


def _revive(job: Job, jobspec: KeptJobspec) -> ActiveJob:
    """The job as the job manager keeps it; what ran before it may run now."""
    active = ActiveJob(job.id, jobspec)
    for name in Job.__slots__:
        setattr(active, name, getattr(job, name))
    active.asked = job.state
    active.start_sent = job.has_resources and job.state in (JobState.RUN, JobState.CLEANUP)
    return active
