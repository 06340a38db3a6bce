"""RFC 33, Initial Assignment of Job to Queue: the changes that a queue makes to a jobspec.

The changes are the context of a jobspec-update event (RFC 21). A job without a duration, or with
duration 0, gets the default duration; without the key and a default it is refused (readings: The
key duration). Whether the queue is enabled, and limits, are checked elsewhere. `hosts` of a queue
are a property of them, which its jobs require.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.config.parsing import ALL_HOSTS, Config, queue_property
from flux_trio.config.policy import Policy
from flux_trio.formats import (
    MISSING,
    FormatError,
    Hostlist,
    Idset,
    ResourceSet,
    Words,
    both,
    parse_constraint,
)

QUEUE_KEY: Final = "attributes.system.queue"
DURATION_KEY: Final = "attributes.system.duration"
CONSTRAINTS_KEY: Final = "attributes.system.constraints"


class NoQueue(ValueError):
    """A job names an unknown queue, or no queue although it must; the text is for the user."""


class Assignment(msgspec.Struct, frozen=True):
    """The queue of a job (None: the anonymous queue) and its policy.

    `updates` maps jobspec key paths to new values; it is empty if the jobspec needs no change.
    """

    queue: str | None
    policy: Policy
    updates: dict[str, Any]


def assign(config: Config, system: Mapping[str, Any]) -> Assignment:
    """Assign a queue to a job with these `attributes.system`, as submitted.

    Raises NoQueue, or FormatError for invalid constraints and a missing duration.
    """
    queue = system.get("queue")
    updates: dict[str, Any] = {}
    if queue is None and config.default_queue is not None:
        queue = updates[QUEUE_KEY] = config.default_queue
    check_queue(config, queue)
    policy = config.policy_for(queue)
    duration = system.get("duration")
    if duration is None and policy.duration is None:
        raise FormatError("a number of seconds, since there is no default", MISSING, DURATION_KEY)
    if duration is None or (policy.duration and not duration):
        updates[DURATION_KEY] = policy.duration
    constraints = system.get("constraints")
    wanted = required_by(config, queue, constraints)
    if wanted != constraints:
        updates[CONSTRAINTS_KEY] = wanted
    return Assignment(queue, policy, updates)


def check_queue(config: Config, queue: str | None) -> None:
    """Raise NoQueue, with flux-core's text, unless a job may name `queue`."""
    if queue is None and config.queues:
        raise NoQueue("a named queue is required")
    if queue is not None and queue not in config.queues:
        raise NoQueue(f"Invalid queue '{queue}' specified")


def access_refusal(
    config: Config, queue: str | None, userid: int, name: str | None, groups: frozenset[str]
) -> str | None:
    """Return why a user may not submit to `queue` (RFC 33, Access Policy); None if allowed.

    `name` is None for a userid that the user database does not know.
    """
    if config.policy_for(queue).access.allows(name, groups):
        return None
    who = f"userid {userid}" if name is None else f"user {name}"
    where = "this instance" if queue is None else f"queue {queue}"
    return f"{who} has no access to {where}"


def required_by(config: Config, queue: str | None, constraints: Any) -> Any:
    """Return the conjunction of a job's constraints (RFC 31) and its queue's; FormatError."""
    required = config.constraint_for(queue)
    if required is None:
        return constraints
    if constraints is None:
        return required.to_json()
    return both(parse_constraint(constraints, CONSTRAINTS_KEY), required).to_json()


def queue_hosts(config: Config) -> dict[str, str]:
    """Return `hosts` of each queue that has it."""
    return {name: queue.hosts for name, queue in config.queues.items() if queue.hosts is not None}


def add_queue_properties(hosts_of: Mapping[str, str], inventory: ResourceSet) -> ResourceSet:
    """Return the inventory with the property `+NAME` on the hosts of each queue in `hosts_of`.

    Raises FormatError for a host that the instance does not have.
    """
    added: dict[str, Idset] = {}
    for name, text in hosts_of.items():
        ranks = {host: rank for rank, host in inventory.hosts.items()}
        hosts = list(ranks) if text == ALL_HOSTS else Hostlist.parse(text)
        if unknown := [host for host in hosts if host not in ranks]:
            expected = f"hosts of this instance, such as {inventory.hostnames[0]}"
            raise FormatError(Words(expected), unknown[0], f"queues.{name}.hosts")
        added[queue_property(name)] = Idset.of(ranks[host] for host in hosts)
    return inventory.with_properties(added, {}) if added else inventory
