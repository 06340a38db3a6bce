"""A plan: the jobs, the users' requests and the faults of a world. Plain values, kept as TOML.

A plan and its seed decide everything that happens, so a plan is the lasting record of a story.
Times are in seconds since the start of the world.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.formats import FormatError

VERSION: Final = 1

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Module = Literal["resource", "job-manager", "job-exec", "sched", "job-ingest", "job-list"]
Action = Literal["cancel", "urgency", "drain", "undrain", "down", "up", "queue-stop", "queue-start"]


class JobPlan(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job: it is submitted at `at`, runs for `run` seconds and is ended after `limit`.

    It asks for a core on each of `nnodes` nodes, or if that is 0 for `ntasks` cores anywhere.
    """

    at: Seconds = 0.0
    ntasks: Count = 1
    nnodes: Annotated[int, msgspec.Meta(ge=0)] = 0
    run: Seconds = 1.0
    limit: Seconds = 0.0  # 0: none
    urgency: Annotated[int, msgspec.Meta(ge=0, le=31)] = 16


class Do(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of the owner at `at`.

    `job` is the place of a job in the plan, for cancel and urgency; `rank` is a target, for drain,
    is made again.
    """

    at: Seconds
    what: Action
    job: Annotated[int, msgspec.Meta(ge=0)] = 0
    rank: Annotated[int, msgspec.Meta(ge=0)] = 0
    value: Annotated[int, msgspec.Meta(ge=0, le=31)] = 16


class When(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The moment after the `nth` message of `topic` (a glob) was sent or received."""

    topic: str
    nth: Count = 1
    side: Literal["send", "recv"] = "recv"
    type: Literal["request", "response", "event"] = "request"


class Crash(msgspec.Struct, frozen=True, tag="crash", forbid_unknown_fields=True):
    """The module ends with an error `when` (a number: at that step); loaded again after `back`."""

    module: Module
    when: When | Count
    back: Seconds = 0.0


class Unload(msgspec.Struct, frozen=True, tag="unload", forbid_unknown_fields=True):
    """The module is removed in order; it is loaded again after `back` seconds."""

    module: Module
    when: When | Count
    back: Seconds = 0.0


class Linger(msgspec.Struct, frozen=True, tag="linger", forbid_unknown_fields=True):
    """The module takes nothing in, and none of its timers fires, for `seconds`."""

    module: Module
    when: When | Count
    seconds: Seconds = 1.0


class ClockJump(msgspec.Struct, frozen=True, tag="clock-jump", forbid_unknown_fields=True):
    """The wall clock is set `by` seconds ahead, or back if `by` is negative."""

    when: When | Count
    by: float


Fault = Crash | Unload | Linger | ClockJump


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
        plan = msgspec.toml.decode(text, type=Plan)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
    if plan.version != VERSION:
        raise FormatError(f"version {VERSION} of a plan", plan.version, "version")
    return plan
