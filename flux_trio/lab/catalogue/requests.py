"""What faults may ask in the name of a client or a module."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.formats import FormatError
from flux_trio.lab.catalogue.places import Machine
from flux_trio.messages import topics

_BETWEEN_MODULES: Final = frozenset(
    {
        topics.SCHED_HELLO,
        topics.SCHED_READY,
        topics.EXEC_HELLO,
        topics.SCHED_ALLOC,
        topics.SCHED_CANCEL,
        topics.SCHED_PRIORITIZE,
        topics.SCHED_EXPIRATION,
        topics.SCHED_FREE,
        topics.RESOURCE_ACQUIRE,
        topics.RESOURCE_RELEASE,
        f"{topics.JOB_EXEC}.{topics.START_METHOD}",
    }
)
"""The requests of RFC 27, 28 and 32: who sends one is bound by their clauses."""


def check_topic(topic: str) -> None:
    """Raise FormatError unless this is the topic of a request: a service and a method."""
    service, *method = topic.split(".")
    if not (service and method and all(method)):
        raise FormatError(f"a topic such as {topics.JOB_RAISE}", topic, "topic")


def check_topic_of_client(topic: str) -> None:
    """Raise FormatError unless a client may ask so: else the client breaks clauses itself."""
    if topic in _BETWEEN_MODULES:
        expected = f"a topic that clients ask, such as {topics.JOB_RAISE}"
        raise FormatError(f"{expected} (a module asks this one: see AlsoAsked)", topic, "topic")
    if topic.endswith("-cancel"):
        expected = f"a topic that is answered, such as {topics.JOB_RAISE}"
        raise FormatError(f"{expected} (a cancel is not: RFC 6)", topic, "topic")


def unfit_ranks(payload: dict[str, Any], machine: Machine) -> tuple[int, ...]:
    """Return the nodes that a request may drain or mark as down: all nodes, if it has targets."""
    return tuple(range(machine.nnodes)) if isinstance(payload.get("targets"), str) else ()
