"""How to read the payloads of the messages in the state of a core.

A message is in the state while it waits for a commit, a request while it waits for its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, TypeAlias

from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import CommitOps, Page
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.state import Part
from flux_trio.editions import (
    common,
    exec_requests,
    flux,
    job_list,
    job_requests,
    journal,
    kvs,
    rfc32,
    submission,
)
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import Event, Response, topics

PayloadTypes: TypeAlias = Mapping[str | tuple[type, str], Any]
"""How to read the payload of a message, as a type or a Codec. The key is the topic of a request, or
(class, topic) of a response or an event.
"""


class _Commit(kvs.Commit[KvsOp], frozen=True):
    """The kvs.commit request with R that a plugin gave a job."""


@singledispatch
def payload_types(_core: Part) -> PayloadTypes:
    """Return the payload types of the messages that the state of a core may hold."""
    return {}


@payload_types.register
def _of_exec(core: ExecCore) -> PayloadTypes:
    service = core._manager.service
    return {
        f"{service}.{topics.START_METHOD}": rfc32.Start,
        f"{service}.input": exec_requests.Input,
    }


@payload_types.register
def _of_job_list(_core: JobListCore) -> PayloadTypes:
    return {
        topics.LIST_LIST: job_list.List,
        topics.LIST_ID: job_list.ListId,
        topics.LIST_CANCEL: common.Cancel,
        topics.INFO_LOOKUP: job_list.Lookup,
        topics.INFO_WATCH: job_list.Watch,
        topics.INFO_WATCH_CANCEL: common.Cancel,
        topics.credit_of(topics.LIST_LIST): common.Grant,
        topics.credit_of(topics.INFO_WATCH): common.Grant,
    }


@payload_types.register
def _of_kvs(_core: KvsCore) -> PayloadTypes:
    return {
        topics.KVS_COMMIT: CommitOps,
        topics.KVS_LOOKUP: kvs.Lookup,
        topics.KVS_OWN.lookup_all: kvs.LookupAll,
        topics.KVS_OWN.dir: kvs.Prefix,
        topics.KVS_OWN.page: Page,
        topics.KVS_OWN.count_below: kvs.Prefix,
        topics.KVS_OWN.watch: kvs.Watch,
        topics.KVS_OWN.backup: kvs.Backup,
    }


@payload_types.register
def _of_resource(_core: ResourceCore) -> PayloadTypes:
    return {topics.RESOURCE_EXPIRATION: flux.InstanceEnd}


@payload_types.register
def _of_job_manager(core: JobManagerCore) -> PayloadTypes:
    edition, execution = core._parts.ledger.edition, core._parts.exec.service
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
