"""Answers to the job manager's requests, handed to the parts that wait for them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

from flux_trio.cores.job_manager.calls import (
    AsideStep,
    BacklogStep,
    BytesRead,
    EventsStored,
    ExpirationSent,
    GrantsRead,
    HistoryRead,
    HousekeepingRead,
    InventoryRead,
    InventoryReadAgain,
    JobManagerCall,
    KillSent,
    LastStored,
    PurgeStep,
    QueuesNoted,
    QueuesRead,
    QueuesStored,
    RankDrained,
    Refusal,
    ReplayStep,
    SignOfLife,
    SubmittedAgain,
)
from flux_trio.cores.job_manager.jobs.active_job import is_over
from flux_trio.cores.job_manager.parts import Parts
from flux_trio.cores.job_manager.waiting import BypassStored, Proposal
from flux_trio.cores.kvs_calls import value_in
from flux_trio.cores.state import Part
from flux_trio.messages import FluxError, Response, topics

Handler: TypeAlias = Callable[[Parts, Any, Response], None]
"""Passes a call and its answer on to the part that waits for it."""


def _is_over(response: Response) -> bool:
    """Return whether the eventlog that `response` has is that of a finished job."""
    try:
        return is_over(value_in(response))
    except FluxError:
        return False


# A function of `parts`, not a method of one of them: a copy of the core has parts of its own.
HANDLERS: Final[dict[type[JobManagerCall], Handler]] = {
    # events and submissions
    EventsStored: lambda parts, _, response: parts.ledger.stored(response),
    Refusal: lambda parts, call, response: parts.ledger.send(
        call.absent.refusal(call.request, is_inactive=_is_over(response))
    ),
    SubmittedAgain: lambda parts, call, response: parts.submission.looked_for(
        call.jobid, call.batch, was_over=_is_over(response)
    ),
    # the scheduler
    GrantsRead: lambda parts, call, response: parts.scheduler.grants.read(call, response),
    InventoryRead: lambda parts, _, response: parts.scheduler.grants.inventory_read(response),
    InventoryReadAgain: lambda parts, call, response: parts.scheduler.grants.inventory_read_again(
        call, response
    ),
    ExpirationSent: lambda parts, call, response: parts.scheduler.expiration_answered(
        call.jobid, response
    ),
    **dict.fromkeys(
        get_args(Proposal),
        lambda parts, call, response: parts.continuations.proposed(call, response),
    ),
    HousekeepingRead: lambda parts, _, response: parts.scheduler.housekeeping.read(response),
    RankDrained: lambda parts, call, response: parts.scheduler.housekeeping.drained(call, response),
    BypassStored: lambda parts, call, response: parts.bypass.stored(call, response),
    SignOfLife: lambda parts, *_: parts.scheduler.silence.broken(),  # any answer, of any kind
    # users
    KillSent: lambda parts, call, response: parts.kills.answered(call.request, response),
    LastStored: lambda parts, call, response: parts.control.last_stored(call.request, response),
    HistoryRead: lambda parts, _, response: parts.history.page_read(response),
    # queues
    QueuesRead: lambda parts, _, response: parts.queue_methods.queues_read(response),
    QueuesStored: lambda parts, call, response: parts.queue_methods.queues_stored(
        call.request, response
    ),
    QueuesNoted: lambda parts, _, response: parts.queue_methods.queues_noted(response),
    BytesRead: lambda parts, _, response: parts.purge.finished.page_read(response),
    # work in steps: a restart, jobs that are set aside, purges, a backlog
    **dict.fromkeys(
        get_args(ReplayStep),
        lambda parts, step, response: parts.replay.step_answered(step, response),
    ),
    **dict.fromkeys(
        get_args(AsideStep),
        lambda parts, step, response: parts.lost_found.step_answered(step, response),
    ),
    **dict.fromkeys(
        get_args(BacklogStep),
        lambda parts, step, response: parts.events_journal.step_answered(step, response),
    ),
    **dict.fromkeys(
        get_args(PurgeStep), lambda parts, step, response: parts.purge.step_answered(step, response)
    ),
}


class Replies(Part):
    """Finds the part that each answer is for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def pass_on(self, response: Response) -> None:
        """Pass on an answer by its matchtag; the protocols of RFC 27 and 32 have matchtag 0."""
        if not response.matchtag:
            self._pass_on_by_topic(response)
            return
        self._parts.ledger.leave_gone()
        call = self._parts.ledger.outbox.calls.match(response)
        if call is not None:  # else it is late
            HANDLERS[type(call)](self._parts, call, response)

    def _pass_on_by_topic(self, response: Response) -> None:
        if response.topic == topics.SCHED_ALLOC:
            self._parts.scheduler.alloc_response(response)
        elif response.topic == topics.SCHED_FREE:
            self._parts.scheduler.free_response(response)
        elif response.topic == f"{self._parts.exec.service}.{topics.START_METHOD}":
            self._parts.exec.start_response(response)
