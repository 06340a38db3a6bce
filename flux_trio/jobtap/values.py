"""The typed arguments and return values of handlers, other than the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Dependency:
    """One entry of a jobspec's dependencies (RFC 26), in its object form."""

    scheme: str
    value: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other keys; a value that looks like a number is a number."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Dependency:
        """Read the object of a jobspec."""
        rest = {key: value for key, value in entry.items() if key not in ("scheme", "value")}
        return cls(entry["scheme"], entry.get("value", ""), rest)


@dataclass(frozen=True, slots=True)
class UpdateAllowed:
    """Returned by a job.update.KEY handler: the key may be updated.

    With `validated`, job.validate is not asked about the updated jobspec; with `feasible`, the
    scheduler need not check it. `updates` are further values, by jobspec key, to update as well.
    """

    validated: bool = False
    feasible: bool = False
    updates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request to a method of a plugin's service; raise FluxError to refuse it."""

    method: str
    payload: dict[str, Any]
    userid: int
    is_owner: bool
