"""A plan: the jobs, the users' requests and the faults of a world. Plain values.

A plan and its seed decide everything that happens, so a plan is the lasting record of a story.
Times are in seconds since the start of the world.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.editions import EDITIONS
from flux_trio.formats import HOSTS_MAX
from flux_trio.formats.idset import IDS_MAX
from flux_trio.lab.catalogue import Fault
from flux_trio.lab.plans.workload import JobPlan, OwnerRequest
from flux_trio.lab.world.disk import StoreKind
from flux_trio.lab.world.plugin_files import Builtin, PluginFile, builtin_files, plugin_file
from flux_trio.messages import topics

VERSION: Final = 1

Depth = Literal["cores", "stack"]
"""What a world is made of: the cores of all modules, or the whole stack under Trio."""

Edition = Literal["classic", "current"]
DEFAULT_EDITION: Final = "classic"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a world has and what happens in it: jobs, requests of the owner, and faults.

    `seed` draws the order of everything; `late` is how often time passes while messages wait.
    """

    seed: int
    nnodes: Annotated[int, msgspec.Meta(ge=1, le=HOSTS_MAX)] = 4
    cores: Annotated[int, msgspec.Meta(ge=1, le=IDS_MAX)] = 2  # on each node
    policy: str = "fifo"  # one of POLICY_NAMES, or FILE.py:Class
    limit: Annotated[int, msgspec.Meta(ge=0)] = 0  # of alloc requests at a time; 0: no limit
    late: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    jobs: tuple[JobPlan, ...] = ()
    actions: tuple[OwnerRequest, ...] = ()
    faults: tuple[Fault, ...] = ()
    depth: Depth = "cores"
    store: StoreKind = "memory"
    queues: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0  # named queues; 0: the anonymous one
    plugins: tuple[str | PluginFile, ...] = ()  # behind the builtin ones
    builtins: tuple[Builtin, ...] = ()  # beside those that each world of its depth has
    edition: Edition = DEFAULT_EDITION  # of the RFCs, which the instance speaks
    pages: Annotated[int, msgspec.Meta(ge=0)] = 0  # entries of each page; 0: as in an instance
    version: int = VERSION


def in_edition(plan: Plan, edition: Edition) -> Plan:
    """Return a plan that was drawn for the edition classic as one for `edition`.

    Moments are at messages of the same meaning.
    """
    own = EDITIONS[edition].kvs.own
    renamed = dict(zip(topics.KVS_OWN, own, strict=True))

    def spoken(value: Any) -> Any:
        if isinstance(value, list):
            return [spoken(each) for each in value]
        if not isinstance(value, dict):
            return value
        said = {key: spoken(each) for key, each in value.items()}
        is_r = value.get("topic") == topics.KVS_COMMIT and value.get("party") == topics.SCHED
        if "topic" in value and not is_r:
            said["topic"] = renamed.get(value["topic"], value["topic"])
        return said

    plan = msgspec.structs.replace(plan, edition=edition)
    if own == topics.KVS_OWN:
        return plan
    return msgspec.convert(spoken(msgspec.to_builtins(plan)), Plan)


def own_of(plan: Plan) -> topics.StoreTopics:
    """Return how the edition of a plan calls what only we have of the kvs."""
    return EDITIONS[plan.edition].kvs.own


def reloadable_of(plan: Plan) -> tuple[PluginFile, ...]:
    """Return the plugins that the owner may load again: at depth cores a world has no such request.

    The number of a plugin is its place here.
    """
    if plan.depth == "cores":
        return ()
    return (*builtin_files(plan.builtins, plan.depth), *map(plugin_file, plan.plugins))
