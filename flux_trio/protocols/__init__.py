"""Protocols: the conversations of RFC 21, 27, 28 and 32 as state tables.

A `Table` maps state and event to the next state and does not know which side of the conversation
it serves; a pair it does not have raises `InvalidTransition`. `Job` is one job folded from its
eventlog. What to do about a state is asked by the service cores; nothing here acts.
"""

from flux_trio.protocols.acquire import ACQUIRE, AcquireEvent, AcquireState, AcquireType
from flux_trio.protocols.alloc import (
    ALLOC,
    ALLOC_ANSWERS,
    LINK,
    AllocEvent,
    AllocState,
    AllocType,
    LinkEvent,
    LinkState,
    merge_annotations,
)
from flux_trio.protocols.contexts import check_context
from flux_trio.protocols.execution import EXECUTION, ExecEvent, ExecState, StartType
from flux_trio.protocols.job import (
    ACTIVE,
    EVENTLOG_VERSION,
    JOB,
    PENDING,
    PRIORITY_MAX,
    PRIORITY_MIN,
    RUNNING,
    URGENCY_DEFAULT,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    URGENCY_MAX,
    URGENCY_MIN,
    Job,
    JobEvent,
    JobFlag,
    JobState,
    Step,
    replay,
    step_of,
)
from flux_trio.protocols.table import InvalidTransition, Table

__all__ = [
    "ACQUIRE",
    "ACTIVE",
    "ALLOC",
    "ALLOC_ANSWERS",
    "EVENTLOG_VERSION",
    "EXECUTION",
    "JOB",
    "LINK",
    "PENDING",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "RUNNING",
    "URGENCY_DEFAULT",
    "URGENCY_EXPEDITE",
    "URGENCY_HOLD",
    "URGENCY_MAX",
    "URGENCY_MIN",
    "AcquireEvent",
    "AcquireState",
    "AcquireType",
    "AllocEvent",
    "AllocState",
    "AllocType",
    "ExecEvent",
    "ExecState",
    "InvalidTransition",
    "Job",
    "JobEvent",
    "JobFlag",
    "JobState",
    "LinkEvent",
    "LinkState",
    "StartType",
    "Step",
    "Table",
    "check_context",
    "merge_annotations",
    "replay",
    "step_of",
]
