"""What is done at the end of a world, so that everything in it must come to rest.

All that faults and requests have taken away is given back: modules are loaded again if they are
away, or if a fault makes them lie (send what breaks a clause); nodes are brought up, undrained and
included; queues are started and enabled; jobs that are held go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from flux_trio.lab.catalogue import Fault, PluginFault
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import OwnerRequest
from flux_trio.lab.stories.owner import Owner
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics
from flux_trio.protocols import JobState
from flux_trio.protocols.hooks import STATE_TOPICS

URGENCY: Final = 17
"""The urgency that jobs get when everything is put right. No plan draws it, because plugins are
asked again only about an urgency that has changed."""

_HOLDING_RESOURCES: Final = (STATE_TOPICS[JobState.RUN], STATE_TOPICS[JobState.CLEANUP])
"""Hooks about jobs that may have resources. No new urgency lets a job go on that a plugin holds
there, but a job manager that is loaded again asks about it once more."""


def load_all_modules_again(world: CoresWorld, struck: Iterable[Fault]) -> None:
    """Load each module that is away, and load again those that lie.

    The job manager is loaded again, too, if a plugin holds jobs that may have resources: the next
    one asks about them once more.
    """
    for name in list(world.liars):
        world.unload(name)
    if any(isinstance(each, PluginFault) and each.hook in _HOLDING_RESOURCES for each in struck):
        world.unload(topics.JOB_MANAGER)
    for name in world.modules:
        world.load(name)


def lacks_a_module(world: CoresWorld) -> bool:
    """Return whether a module has ended by itself, since another one was not ready for it."""
    return any(name not in world.stations for name in world.modules)


def owner_who_puts_right(plan: Plan, active: list[int]) -> Owner:
    """Return a client that brings nodes back, starts queues and releases the `active` jobs."""
    queues = (OwnerRequest(0.0, "queue-start"), OwnerRequest(0.0, "queue-enable"))
    asked = (*queues, *requests_for_all_nodes(plan), *requests_for_held_jobs(active))
    return Owner((), asked, dict(enumerate(active)))


def owner_who_releases(jobs: list[int]) -> Owner:
    """Return a client that releases jobs that came after everything was put right."""
    return Owner((), requests_for_held_jobs(jobs), dict(enumerate(jobs)))


def requests_for_held_jobs(jobs: list[int]) -> tuple[OwnerRequest, ...]:
    """Return requests that give jobs an urgency; they name a job by its place in `jobs`."""
    return tuple(
        OwnerRequest(0.0, "urgency", job=place, value=URGENCY) for place in range(len(jobs))
    )


def requests_for_all_nodes(plan: Plan) -> Iterator[OwnerRequest]:
    """Yield requests that bring back each node which the plan may have taken away."""
    ranks = {each.rank for each in plan.actions}
    for fault in plan.faults:
        ranks.update(fault.unfit_ranks(plan))
    for rank in sorted(ranks):
        for what in ("up", "undrain"):
            yield OwnerRequest(0.0, what, rank=rank)
    is_excluding = any(each.what == "exclude" for each in plan.actions)
    if is_excluding or any(each.may_exclude for each in plan.faults):
        yield OwnerRequest(0.0, "include")
