"""What the owner of a world asks for: jobs, and requests at their times.

Times are in seconds since the start of the world.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from flux_trio.lab.catalogue.places import Count, Rank, Seconds, When

SPAN_S: Final = 30.0  # in which drawn jobs are submitted and drawn requests made

Place = Annotated[int, msgspec.Meta(ge=0)]
Urgency = Annotated[int, msgspec.Meta(ge=0, le=31)]
Action = Literal[
    "cancel",
    "urgency",
    "duration",
    "watch",
    "drain",
    "undrain",
    "down",
    "up",
    "exclude",
    "include",
    "queue-stop",
    "queue-start",
    "queue-disable",
    "queue-enable",
    "queue-drain",
    "queue-idle",
    "purge",
    "history",
    "move",
    "reload-plugin",
    "subscribe",
    "backup",
]

JOB_ACTIONS: Final = ("cancel", "urgency", "duration", "watch", "move")
"""The actions that are about a job of the plan."""


NODE_ACTIONS: Final = ("drain", "undrain", "down", "up", "exclude")
"""The actions that are about a node."""


class JobPlan(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job: it is submitted at `at`, runs for `run` seconds and is ended after `limit`.

    It asks for a core on each of `nnodes` nodes, or if that is 0 for `ntasks` cores anywhere. With
    `ranks` it may run on these only. `queue` is the number of a named queue. It waits for the end
    of the job at the place `after`, if that has an id by then, at depth stack; if it `is_single`
    for that of all others that are, where there is the plugin dependency-singleton.
    """

    at: Seconds = 0.0
    ntasks: Count = 1
    nnodes: Place = 0
    run: Seconds = 1.0
    limit: Seconds = 0.0  # 0: the job has no limit
    urgency: Urgency = 16
    ranks: tuple[Rank, ...] = ()
    queue: Place | None = None
    after: Place | None = None
    is_single: bool = False


class OwnerRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of the owner: at `at`, or at the message `when` if that is given.

    `job` is the place of a job in the plan, for cancel, urgency, duration, watch and move. `value`
    is the urgency, `seconds` the new time limit (0: no limit). watch follows the job's eventlog to
    its end. `rank` is the target of drain, undrain, down, up and exclude. include empties the
    exclude group. purge removes all finished jobs, history asks for the ids of the owner's jobs.
    subscribe is not answered: from then on the owner gets every event that is published. `queue` is
    the number of a named queue: move brings a job that waits there, and other requests are about
    all queues without one. queue-drain and queue-idle wait until no job is left there, or none
    runs. reload-plugin loads the plugin number `value` of the world in place of itself, builtin
    ones of the plan first, at depth stack; without such a plugin nothing is asked. backup copies
    the state while all goes on, if the store is a file.
    """

    at: Seconds
    what: Action
    job: Place = 0
    rank: Rank = 0
    value: Urgency = 16
    seconds: Seconds = 0.0
    queue: Place | None = None
    when: When | None = None


def meant_by(action: Action) -> tuple[str, ...]:
    """Return the fields that matter for a request of this kind."""
    job = ("job",) if action in JOB_ACTIONS else ()
    node = ("rank",) if action in NODE_ACTIONS else ()
    return (*job, *node, *_VALUES.get(action, ()), "queue")


_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "urgency": ("value",),
    "reload-plugin": ("value",),
    "duration": ("seconds",),
}


def queue_name(number: int) -> str:
    """Return the name of a queue of a plan that has named queues."""
    return f"queue{number}"
