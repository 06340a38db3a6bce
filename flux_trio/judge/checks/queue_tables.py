"""RFC 33, Policy and Queue Configuration: the tables of a configuration, read by hand.

The reader in `config` is not used, on purpose: the judge reads the RFC.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from flux_trio.formats import FormatError, parse_duration
from flux_trio.judge.checks.shapes import part

ANONYMOUS: Final = ""
MANAGER: Final = "job-manager"
STOPS: Final = "stop-queues-on-restart"


class Limits(NamedTuple):
    """The limits of a job's request; math.inf, or 0, means no limit."""

    most: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    """The most nodes, cores and gpus of a job."""
    nnodes_min: float = 0
    duration: float = math.inf
    """The longest duration of a job in seconds."""


NO_LIMITS: Final = Limits()


class Tables:
    """The tables `policy` and `queues` of a configuration, read by hand."""

    def __init__(self, tables: Any) -> None:
        self._policy = part(tables, "policy", dict)
        self.stops_on_restart = part(tables, MANAGER, dict).get(STOPS) is True
        """Whether a restart of the job manager stops every queue (flux-config-job-manager(5))."""
        self._queues = part(tables, "queues", dict)
        self._limits: dict[str, Limits] = {}
        self.names = tuple(self._queues)
        """The queues that have a name."""
        found = ((name, part(self._queues, name, dict).get("parent")) for name in self.names)
        self.parents = {name: parent for name, parent in found if isinstance(parent, str)}
        """The parent of each virtual queue (flux-config-queues(5))."""
        self.default = str(self.value("", "jobspec", "defaults", "system", "queue") or "")
        """The default queue, or ""."""
        known = (ANONYMOUS, *self.names)
        self._closed = frozenset(queue for queue in known if self._lists_nobody(queue))

    def starts_stopped(self, name: str) -> bool:
        """Whether a queue is stopped when the instance begins, until somebody starts it."""
        return part(self._queues, name, dict).get("started") is False

    def value(self, queue: str, *path: str) -> Any:
        """Return a policy value for a queue: its own, its parent's, the general one, or None."""
        for name in (queue, self.parents.get(queue, queue)):
            found = _at(part(part(self._queues, name, dict), "policy", dict), path)
            if found is not None:
                return found
        return _at(self._policy, path)

    def is_closed(self, queue: str) -> bool:
        """Whether no user may use a queue."""
        return queue in self._closed

    def users(self, queue: str) -> tuple[Any, ...] | None:
        """Return the names of all who may use a queue; None if groups may, or everybody."""
        users = self.value(queue, "access", "allow-user")
        groups = self.value(queue, "access", "allow-group")
        return tuple(users) if isinstance(users, list) and not groups else None

    def _lists_nobody(self, queue: str) -> bool:
        users = self.value(queue, "access", "allow-user")
        groups = self.value(queue, "access", "allow-group")
        return (users, groups) != (None, None) and not users and not groups

    def limits(self, queue: str) -> Limits:
        """Return the limits of a queue's jobs."""
        known = self._limits.get(queue)
        if known is None:
            known = self._limits_of(queue)
            if queue in self._queues or not queue:  # not for whatever name a job may have
                self._limits[queue] = known
        return known

    def _limits_of(self, queue: str) -> Limits:
        def size(*path: str, unlimited: float) -> float:
            found = self.value(queue, "limits", "job-size", *path)
            return found if type(found) is int and found != -1 else unlimited

        kinds = ("nnodes", "ncores", "ngpus")
        nnodes, ncores, ngpus = (size("max", kind, unlimited=math.inf) for kind in kinds)
        return Limits(
            (nnodes, ncores, ngpus),
            size("min", "nnodes", unlimited=0),
            _seconds(self.value(queue, "limits", "duration")),
        )


def _seconds(duration: Any) -> float:
    """Return the seconds of an FSD (RFC 23); math.inf if it is missing or 0."""
    try:
        return parse_duration(duration) or math.inf
    except FormatError:
        return math.inf


def _at(found: dict[str, Any], path: tuple[str, ...]) -> Any:
    *tables, last = path
    for key in tables:
        found = part(found, key, dict)
    return found.get(last)
