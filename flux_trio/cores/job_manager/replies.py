"""Answers to the job manager's requests, handed to the parts that wait for them. Pure."""

from __future__ import annotations

from typing import assert_never

from flux_trio.cores.job_manager.calls import (
    ActiveRead,
    EndedCount,
    EventsStored,
    ExpirationSent,
    GrantsRead,
    HistoryRead,
    InventoryRead,
    InventoryReadAgain,
    JobsRead,
    KillSent,
    LastRead,
    LastStored,
    MarkRead,
    NamedRead,
    NamedStored,
    OtherCall,
    QueuesNoted,
    QueuesRead,
    QueuesStored,
    Refusal,
    RowsRead,
    RunRead,
    RunSized,
    RunStored,
    SetAside,
    SignOfLife,
    SubmittedAgain,
    ValuesCopied,
    ValuesRead,
)
from flux_trio.cores.job_manager.hooks.waiting import BypassStored, LifetimeProposed, UpdateProposed
from flux_trio.cores.job_manager.jobs.active_job import is_over
from flux_trio.cores.job_manager.parts import Parts
from flux_trio.cores.kvs_calls import value_in
from flux_trio.cores.state import Part
from flux_trio.messages import (
    FluxError,
    Response,
    topics,
)


class Replies(Part):
    """Finds the part that each answer is for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def take(self, response: Response) -> None:
        """Take an answer by its matchtag; the protocols of RFC 27 and 32 have matchtag 0."""
        if response.matchtag:
            self._take_call(response)
        else:
            self._take_by_topic(response)

    def _take_by_topic(self, response: Response) -> None:
        if response.topic == topics.SCHED_ALLOC:
            self._parts.scheduler.alloc_response(response)
        elif response.topic == topics.SCHED_FREE:
            self._parts.scheduler.free_response(response)
        elif response.topic == f"{self._parts.exec.service}.{topics.START_METHOD}":
            self._parts.exec.start_response(response)

    def _take_call(self, response: Response) -> None:
        self._parts.ledger.leave_gone()
        call = self._parts.ledger.outbox.calls.match(response)
        match call:
            case None:
                pass  # it is late
            case EventsStored():
                self._parts.ledger.stored(response)
            case GrantsRead():
                self._parts.scheduler.grants.read(call, response)
            case InventoryRead():
                self._parts.scheduler.grants.inventory_read(response)
            case InventoryReadAgain():
                self._parts.scheduler.grants.inventory_read_again(call, response)
            case ExpirationSent(jobid):
                self._parts.scheduler.expiration_answered(jobid, response)
            case UpdateProposed() | LifetimeProposed():
                self._parts.continuations.proposed(call, response)
            case BypassStored():
                self._parts.bypass.stored(call, response)
            case _:
                self._take_other_call(call, response)

    def _take_other_call(self, call: OtherCall, response: Response) -> None:
        match call:
            case MarkRead() | LastRead() | ActiveRead() | JobsRead() | EndedCount():
                self._parts.replay.take(call, response)
            case RunRead() | RunSized() | RunStored() | NamedRead() | NamedStored():
                self._parts.purge.take(call, response)
            case ValuesRead() | ValuesCopied() | RowsRead() | SetAside():
                self._parts.lost_found.take(call, response)
            case QueuesRead() | QueuesStored() | QueuesNoted():
                self._parts.queue_methods.take(call, response)
            case SignOfLife():
                self._parts.scheduler.silence.broken()  # any answer, of any kind
            case HistoryRead():
                self._parts.history.take_page(response)
            case LastStored(request):
                self._parts.control.last_stored(request, response)
            case KillSent(request):
                self._parts.kills.answered(request, response)
            case Refusal(request, absent):
                is_inactive = _is_over(response)
                self._parts.ledger.send(absent.refusal(request, is_inactive=is_inactive))
            case SubmittedAgain(jobid, batch):
                self._parts.submission.looked_for(jobid, batch, was_over=_is_over(response))
            case _:
                assert_never(call)


def _is_over(response: Response) -> bool:
    """Return whether the eventlog that `response` has is that of a finished job."""
    try:
        return is_over(value_in(response))
    except FluxError:
        return False
