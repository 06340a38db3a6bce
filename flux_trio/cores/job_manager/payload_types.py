"""The payload types of the messages in the job manager's state; its fingerprint needs them. Pure.

A message is in the state while it waits for a commit, a request while it waits for its answer.
"""

from __future__ import annotations

from flux_trio.cores.fingerprint import PayloadTypes
from flux_trio.editions import Edition, exec_requests, job_requests, journal, kvs, submission
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import Event, Response, topics


class _Commit(kvs.Commit[KvsOp], frozen=True):
    """The kvs.commit request with R that a plugin gave a job."""


def payload_types(edition: Edition, execution: str) -> PayloadTypes:
    """Return the payload types of messages to and from services and users.

    `execution` is the name of the execution service.
    """
    return {
        # the job manager's requests
        topics.SCHED_ALLOC: edition.alloc,
        topics.SCHED_CANCEL: edition.cancel,
        topics.SCHED_FREE: edition.free,
        topics.SCHED_PRIORITIZE: edition.prioritize,
        topics.SCHED_EXPIRATION: edition.expiration,
        f"{execution}.{topics.START_METHOD}": edition.start,
        f"{execution}.kill": job_requests.KILL,
        topics.KVS_COMMIT: _Commit,
        # requests to it
        topics.JOB_SUBMIT: submission.NEW_JOBS,
        topics.JOB_RAISE: job_requests.RAISE,
        topics.JOB_KILL: job_requests.KILL,
        topics.JOB_MEMO: job_requests.MEMO,
        topics.JOB_WAIT: job_requests.WAIT,
        topics.JOB_PURGE_ID: job_requests.PURGE_ID,
        topics.JOB_UPDATE: job_requests.UPDATE,
        topics.JOB_URGENCY: job_requests.URGENCY,
        # its responses
        (Response, topics.JOB_SUBMIT): submission.REFUSALS,
        (Response, topics.JOB_HISTORY): job_requests.JobIds,
        (Response, topics.JOB_JOURNAL): journal.BATCH,
        (Response, topics.JOB_WAIT): job_requests.WAITED,
        (Response, topics.SCHED_HELLO): edition.held_job,
        # its events
        (Event, topics.EXEC_SERVICE_EVENT): exec_requests.ExecPlace,
        (Event, topics.JOB_EXCEPTION_EVENT): job_requests.JOB_EXCEPTION,
        (Event, topics.JOB_PURGE_EVENT): journal.PURGED,
    }
