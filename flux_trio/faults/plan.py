"""A plan: the jobs, the users' requests and the faults of a world. Plain values, kept as TOML.

A plan and its seed decide everything that happens, so a plan is the lasting record of a story.
Times are in seconds since the start of the world.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.faults.catalogue import Fault
from flux_trio.faults.catalogue.base import Count
from flux_trio.faults.disk import StoreKind
from flux_trio.faults.workload import Do, JobPlan
from flux_trio.formats import FormatError

__all__ = ["Depth", "Do", "Fault", "JobPlan", "Plan", "plan_from_toml", "plan_to_toml"]

VERSION: Final = 1

Depth = Literal["cores", "stack"]
"""What a world is made of: the cores of all modules, or the whole stack under Trio."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A world: `seed` orders what happens, `late` is how often time passes while messages wait."""

    seed: int
    nnodes: Count = 4
    cores: Count = 2
    policy: Literal["fifo", "easy", "conservative"] = "fifo"
    limit: Annotated[int, msgspec.Meta(ge=0)] = 0  # of alloc requests at a time; 0: no limit
    late: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    jobs: tuple[JobPlan, ...] = ()
    actions: tuple[Do, ...] = ()
    faults: tuple[Fault, ...] = ()
    depth: Depth = "cores"
    store: StoreKind = "memory"
    plugins: tuple[str, ...] = ()  # files of jobtap plugins, behind priority-default
    version: int = VERSION


def plan_to_toml(plan: Plan) -> str:
    """Return the plan as TOML."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    tables = {key: fields.pop(key) for key in ("jobs", "actions", "faults")}
    filled = {key: each for key, each in tables.items() if each}
    return msgspec.toml.encode(fields | filled).decode()


def plan_from_toml(text: str) -> Plan:
    """Parse a plan; FormatError says what was expected, what came and where."""
    try:
        raw = msgspec.toml.decode(text)
        version = raw.get("version", VERSION)
        if version != VERSION:  # another version may have other keys
            raise FormatError(f"version {VERSION} of a plan", version, "version")
        return msgspec.convert(raw, Plan)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
