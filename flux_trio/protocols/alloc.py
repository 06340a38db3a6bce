"""RFC 27: the resources of one job between job manager and scheduler, and their link.

The scheduler begins. What it and the job manager say to each other, in order:

    scheduler    sched-hello        → a response for each job that holds resources, then ENODATA
    scheduler    sched-ready        → the number of jobs that wait; requests may come from now on
    job manager  sched.alloc        → ANNOTATE as often as it likes, then SUCCESS or DENY
    job manager  sched.prioritize   no answer
    job manager  sched.cancel       no answer; that of sched.alloc is CANCEL, if none has come
    job manager  sched.expiration   → nothing, or an error: the job keeps its old expiration
    job manager  sched.free         → the job's id; in the current edition no answer

It ends with the scheduler, by its disconnect, or by an error response: that suspends scheduling
until the next hello and ready.

`ALLOC` follows one job from its request to the answer of its free. `LINK` follows the scheduler
from hello to its loss. Neither table knows which side uses it. `protocols.job` defines the effect
on the job; the job manager decides which request goes next.
"""

from __future__ import annotations

from collections.abc import Mapping

from flux_trio.editions.rfc27 import AllocType
from flux_trio.protocols.table import Conversation, JobConversations, Member, Table


class AllocState(Member):
    """State of one job's conversation with the scheduler."""

    IDLE = "no request, no resources"
    PENDING = "sched.alloc sent, not answered"
    CANCELING = "sched.cancel sent, sched.alloc not answered"
    ALLOCATED = "resources granted"
    FREEING = "sched.free sent, not answered"
    HELD = "resources held, no scheduler knows of it"


class AllocEvent(Member):
    """Messages between the two sides about one job, and their loss."""

    ALLOC = "sched.alloc"
    CANCEL = "sched.cancel"
    PRIORITIZE = "sched.prioritize"
    SUCCESS = "SUCCESS"
    ANNOTATE = "ANNOTATE"
    DENY = "DENY"
    CANCELED = "CANCEL response"
    EXPIRATION = "sched.expiration"
    FREE = "sched.free"
    FREE_PART = "sched.free, not final"
    FREED = "sched.free response"
    HELLO = "sched-hello response"
    RESUME = "read back with resources"
    LOST = "scheduler lost"
    LOST_HELD = "scheduler lost, resources held"


_S, _E = AllocState, AllocEvent

ALLOC: Table[AllocState, AllocEvent] = Table(
    "sched.alloc",
    AllocState.IDLE,
    {
        _S.IDLE: {
            _E.ALLOC: _S.PENDING,
            _E.CANCEL: _S.IDLE,  # without a pending request: ignored (RFC 27, Cancel)
            _E.PRIORITIZE: _S.IDLE,  # ids without a pending request are ignored
            _E.HELLO: _S.ALLOCATED,  # a new scheduler learns what is allocated
            _E.RESUME: _S.HELD,  # by the job manager, after a restart
        },
        _S.PENDING: {
            _E.ANNOTATE: _S.PENDING,
            _E.PRIORITIZE: _S.PENDING,
            _E.SUCCESS: _S.ALLOCATED,
            _E.DENY: _S.IDLE,
            _E.CANCEL: _S.CANCELING,
            _E.LOST: _S.IDLE,  # sent again after the next sched-ready
        },
        _S.CANCELING: {
            _E.ANNOTATE: _S.CANCELING,  # answers that crossed the cancel
            _E.SUCCESS: _S.ALLOCATED,
            _E.DENY: _S.IDLE,
            _E.CANCELED: _S.IDLE,
            _E.LOST: _S.IDLE,
        },
        _S.ALLOCATED: {
            _E.CANCEL: _S.ALLOCATED,  # crossed the SUCCESS: ignored
            _E.PRIORITIZE: _S.ALLOCATED,
            _E.EXPIRATION: _S.ALLOCATED,
            _E.FREE_PART: _S.ALLOCATED,  # the rest of the resources stays granted
            _E.FREE: _S.FREEING,
            _E.LOST: _S.IDLE,  # no eventlog says that it was granted
            _E.LOST_HELD: _S.HELD,
        },
        _S.FREEING: {
            _E.FREED: _S.IDLE,
            _E.LOST: _S.IDLE,
            _E.LOST_HELD: _S.HELD,  # the free is sent again after the next sched-ready
        },
        _S.HELD: {_E.HELLO: _S.ALLOCATED},  # each scheduler learns of it once
    },
)


class Allocs(JobConversations[AllocState, AllocEvent]):
    """The alloc state of each job; job manager and scheduler keep one each."""

    table = ALLOC


# The table's event for each type of an alloc response.
ALLOC_ANSWERS: dict[AllocType, AllocEvent] = {
    AllocType.SUCCESS: AllocEvent.SUCCESS,
    AllocType.ANNOTATE: AllocEvent.ANNOTATE,
    AllocType.DENY: AllocEvent.DENY,
    AllocType.CANCEL: AllocEvent.CANCELED,
}


class LinkState(Member):
    """State of the scheduler's connection with the job manager."""

    DETACHED = "no scheduler, or scheduling suspended"
    GREETED = "sched-hello answered"
    READY = "sched-ready answered: requests may be sent"


class LinkEvent(Member):
    HELLO = "sched-hello"
    READY = "sched-ready"
    LOST = "disconnect"
    SUSPEND = "error response or protocol error"


_L, _K = LinkState, LinkEvent

LINK: Table[LinkState, LinkEvent] = Table(
    "scheduler",
    LinkState.DETACHED,
    {
        # Resuming requires both hello and ready (readings: Resume).
        _L.DETACHED: {_K.HELLO: _L.GREETED, _K.LOST: _L.DETACHED, _K.SUSPEND: _L.DETACHED},
        _L.GREETED: {
            _K.HELLO: _L.GREETED,
            _K.READY: _L.READY,
            _K.LOST: _L.DETACHED,
            _K.SUSPEND: _L.DETACHED,
        },
        _L.READY: {_K.HELLO: _L.GREETED, _K.LOST: _L.DETACHED, _K.SUSPEND: _L.DETACHED},
    },
)


class Link(Conversation[LinkState, LinkEvent]):
    """Where the scheduler and the job manager stand with each other."""

    table = LINK
    kind = "peer"


def merge_annotations(
    current: Mapping[str, object], update: Mapping[str, object], *, keeps_empty: bool = True
) -> dict[str, object]:
    """Return the annotations after `update` (RFC 27, Alloc Annotate): null removes, objects merge.

    A null for an absent key has no effect, also inside a new object. An object that is left empty
    stays with `keeps_empty` and is removed without (readings: Annotations).
    """
    merged = dict(current)
    for key, value in update.items():
        if isinstance(value, dict):
            old = merged.get(key)
            old = old if isinstance(old, dict) else {}
            value = merge_annotations(old, value, keeps_empty=keeps_empty)
            if not value and not keeps_empty:
                value = None
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
