"""Answers to the job manager's requests, handed to the parts that wait for them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from flux_trio.cores.job_manager.calls import (
    AsideStep,
    EventsStored,
    ExpirationSent,
    GrantsRead,
    HistoryRead,
    InventoryRead,
    InventoryReadAgain,
    JobManagerCall,
    KillSent,
    LastStored,
    PurgeStep,
    QueuesNoted,
    QueuesRead,
    QueuesStored,
    Refusal,
    ReplayStep,
    SignOfLife,
    SubmittedAgain,
)
from flux_trio.cores.job_manager.jobs.active_job import is_over
from flux_trio.cores.job_manager.parts import Parts
from flux_trio.cores.job_manager.waiting import BypassStored, LifetimeProposed, UpdateProposed
from flux_trio.cores.kvs_calls import value_in
from flux_trio.cores.state import Part
from flux_trio.messages import FluxError, Response, topics

Handler: TypeAlias = Callable[[Any, Response], None]
"""Takes a call and its answer."""


class Replies(Part):
    """Finds the part that each answer is for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.handlers = _handlers(parts)

    def pass_on(self, response: Response) -> None:
        """Pass on an answer by its matchtag; the protocols of RFC 27 and 32 have matchtag 0."""
        if not response.matchtag:
            self._pass_on_by_topic(response)
            return
        self._parts.ledger.leave_gone()
        call = self._parts.ledger.outbox.calls.match(response)
        if call is not None:  # else it is late
            self.handlers[type(call)](call, response)

    def _pass_on_by_topic(self, response: Response) -> None:
        if response.topic == topics.SCHED_ALLOC:
            self._parts.scheduler.alloc_response(response)
        elif response.topic == topics.SCHED_FREE:
            self._parts.scheduler.free_response(response)
        elif response.topic == f"{self._parts.exec.service}.{topics.START_METHOD}":
            self._parts.exec.start_response(response)


def _handlers(parts: Parts) -> dict[type[JobManagerCall], Handler]:
    """Return for each type of call what takes its answer."""
    ledger, scheduler, grants = parts.ledger, parts.scheduler, parts.scheduler.grants
    return {
        # events and submissions
        EventsStored: lambda _, response: ledger.stored(response),
        Refusal: lambda call, response: ledger.send(
            call.absent.refusal(call.request, is_inactive=_is_over(response))
        ),
        SubmittedAgain: lambda call, response: parts.submission.looked_for(
            call.jobid, call.batch, was_over=_is_over(response)
        ),
        # the scheduler
        GrantsRead: grants.read,
        InventoryRead: lambda _, response: grants.inventory_read(response),
        InventoryReadAgain: grants.inventory_read_again,
        ExpirationSent: lambda call, response: scheduler.expiration_answered(call.jobid, response),
        UpdateProposed: parts.continuations.proposed,
        LifetimeProposed: parts.continuations.proposed,
        BypassStored: parts.bypass.stored,
        SignOfLife: lambda *_: scheduler.silence.broken(),  # any answer, of any kind
        # users
        KillSent: lambda call, response: parts.kills.answered(call.request, response),
        LastStored: lambda call, response: parts.control.last_stored(call.request, response),
        HistoryRead: lambda _, response: parts.history.page_read(response),
        # queues
        QueuesRead: lambda _, response: parts.queue_methods.queues_read(response),
        QueuesStored: lambda call, response: parts.queue_methods.queues_stored(
            call.request, response
        ),
        QueuesNoted: lambda _, response: parts.queue_methods.queues_noted(response),
        # work in steps: a restart, jobs that are set aside, purges
        **dict.fromkeys(get_args(ReplayStep), parts.replay.step_answered),
        **dict.fromkeys(get_args(AsideStep), parts.lost_found.step_answered),
        **dict.fromkeys(get_args(PurgeStep), parts.purge.step_answered),
    }


def _is_over(response: Response) -> bool:
    """Return whether the eventlog that `response` has is that of a finished job."""
    try:
        return is_over(value_in(response))
    except FluxError:
        return False
