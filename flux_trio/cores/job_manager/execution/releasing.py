"""The ranks of a `release` (RFC 32): what a job may still release, and what is left of it."""

from __future__ import annotations

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.editions.rfc21 import ALL_RANKS
from flux_trio.editions.rfc32 import Released
from flux_trio.formats import FormatError, Idset


def take_release(job: ActiveJob, released: Released) -> None:
    """Note the ranks that the service releases (readings: Release ranks).

    A service that gets the start again may tell all releases again, or only those that are left.
    Raises FormatError for ranks that are not those of R, that were released in answer to the same
    start, or that do not agree with `final`. Without a readable R, only their form is checked.
    """
    if released.ranks == ALL_RANKS:
        if not released.final:
            raise FormatError(f"true with ranks {ALL_RANKS!r}", released.final, "final")
        return
    try:
        ranks = Idset.parse(released.ranks)
    except FormatError as error:
        raise error.at("ranks") from None
    held = ranks if job.granted is None else job.granted.ranks
    in_answer = Idset.from_bits(job.released_in_answer)
    left = held - in_answer
    if not ranks or not ranks <= left:
        raise FormatError(f"some of the ranks {left}", released.ranks, "ranks")
    still = left - ranks
    if released.final and not still <= Idset.from_bits(job.released_ranks):
        raise FormatError(f"the ranks {left} with final true", released.ranks, "ranks")
    if not released.final and not still and job.granted is not None:
        raise FormatError("true with the last ranks", released.final, "final")
    job.released_in_answer |= ranks.bits
