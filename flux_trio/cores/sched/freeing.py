"""What sched.free gives back: all that a job holds, or in the current edition a part of it (R).

With the last free, `final`, the job manager says that the job holds nothing more, so that what it
has not named is free as well. A node that it freed twice or never is an error of the job manager.
"""

from __future__ import annotations

from flux_trio.cores.sched.context import Context
from flux_trio.editions.rfc27 import Free
from flux_trio.formats import Idset
from flux_trio.policies import Allocation


def give_back(context: Context, freed: Free) -> int:
    """Give the resources back to the pool; log ranks of R that are wrong.

    Returns the ranks, as a bit set, that were shrunk before and that no job holds any more.
    """
    grant = context.schedule.state.grants.get(freed.id)
    if grant is None:
        return 0  # its R could not be marked as allocated, which was said then
    if freed.R is None:
        return context.schedule.free(freed.id) or 0
    part = freed.R.groups
    if strange := Allocation.of(freed.R).without(grant.allocation.groups).ranks:
        held = f"R: expected resources that the job holds, on {_named(grant.allocation.ranks)}"
        _complain(context, freed, f"{held}, got also others, on {_named(strange)}")
    if not freed.final:
        return context.schedule.free_part(freed.id, part) or 0
    if left := grant.allocation.without(part).ranks:
        _complain(
            context,
            freed,
            f"R: expected all that the job holds yet; {_named(left)} was never freed",
        )
    return context.schedule.free(freed.id) or 0


def _complain(context: Context, freed: Free, text: str) -> None:
    context.log_error(f"sched.free of job {freed.id}: {text}")


def _named(ranks: int) -> str:
    return f"rank {Idset.from_bits(ranks)}" if ranks else "no rank"
