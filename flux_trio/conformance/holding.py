"""Views of what the scheduler gave away: R of each job, and who has what of each rank.

R is read from the scheduler's commits to the KVS; a trace that does not show them tells nothing of
resources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from flux_trio.conformance.granting import TOLD, resources_in, told_of
from flux_trio.conformance.jobs import LIFE
from flux_trio.conformance.leg import (
    errnum,
    job_id,
    logged,
    message,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.conformance.scheduling import LINK, link_of
from flux_trio.conformance.view import Seen, view
from flux_trio.formats import FormatError, ResourceSet, parse_fluid
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

Rpc = tuple[str, str, int]
"""Client, topic and matchtag."""


def _rpc(record: Record) -> Rpc:
    found = message(record)
    assert isinstance(found, (Request, Response))
    return (record.party, found.topic, found.matchtag)


class Written(NamedTuple):
    """R of a job as it was put into the KVS."""

    n: int
    """The commit that was sent."""
    rpc: Rpc
    resources: ResourceSet | None
    """None for what is no R."""


def r_ops(record: Record) -> Iterable[tuple[int, str | None]]:
    """The R that a kvs.commit puts (its text) or takes away (None), by job id."""
    ops = payload(record).get("ops")
    for op in ops if isinstance(ops, list) else []:
        if isinstance(op, list) and len(op) >= 2 and isinstance(op[1], str):
            jobid = _job_of_key(op[1], ".R")
            if jobid is not None and op[0] in ("put", "unlink"):
                yield jobid, op[2] if op[0] == "put" else None


def _job_of_key(key: str, suffix: str) -> int | None:
    if not key.startswith("job.") or not key.endswith(suffix):
        return None
    try:
        return parse_fluid(key.removesuffix(suffix))
    except FormatError:
        return None


def _written(record: Record, seen: Seen) -> Iterable[tuple[int, str | None]]:
    if topic_of(record) == topics.KVS_COMMIT:
        return r_ops(record) if record.party == seen.facts.scheduler else []
    found = job_id(record)
    return [] if found is None else [(found, None)]


def _fold_written(
    before: Written | None, text: str | None, record: Record, seen: Seen
) -> Written | None:
    if text is not None:
        return Written(record.n, _rpc(record), resources_in(text))
    if topic_of(record) == topics.SCHED_FREE:
        return None if seen.at(LIFE, job_id(record)) is None else before
    told = told_of(seen, job_id(record))
    is_needed = record.kind == Kind.EVENT and (told.held or told.alloc)  # its free is on the way
    return before if is_needed else None


WRITTEN: Final = view(
    "written",
    sent("request", topics.KVS_COMMIT),
    sent("response", topics.SCHED_FREE),
    logged("clean"),
    parts=_written,
    fold=_fold_written,
    reads=(LIFE, LINK, TOLD),
)
"""By job id: R that the scheduler wrote, until the job is inactive and nobody has it any more."""


def _commits(record: Record, seen: Seen) -> Iterable[tuple[Rpc, None]]:
    return [(_rpc(record), None)] if record.party == seen.facts.scheduler else []


def _fold_commits(_n: int | None, _part: None, record: Record, _seen: Seen) -> int | None:
    return record.n if record.kind == Kind.SEND else None


COMMITS: Final = view(
    "commits",
    sent("request", topics.KVS_COMMIT),
    received("response", topics.KVS_COMMIT),
    parts=_commits,
    fold=_fold_commits,
)
"""Commits of the scheduler that were not answered."""


class Share(NamedTuple):
    """What a job has of a rank: bit sets."""

    jobid: int
    since: int
    """The SUCCESS or hello answer by which it has it."""
    cores: int
    gpus: int


Shares = tuple[Share, ...]


def shares_of(resources: ResourceSet, jobid: int, n: int) -> Iterable[tuple[int, Share]]:
    """By rank, what a job has that has these resources."""
    for group in resources.groups:
        ranks = group.ranks
        while ranks:
            lowest = ranks & -ranks
            yield lowest.bit_length() - 1, Share(jobid, n, group.cores, group.gpus)
            ranks ^= lowest


def _shares(record: Record, seen: Seen) -> Iterable[tuple[int, Share | None]]:
    """A SUCCESS or hello answer gives, a sched.free that is taken up takes, ENODATA sorts out."""
    jobid = job_id(record)
    if topic_of(record) == topics.SCHED_HELLO and errnum(record):
        return [(rank, None) for rank in seen.all(RANKS) if isinstance(rank, int)]
    if jobid is None or errnum(record):
        return []
    if topic_of(record) == topics.SCHED_ALLOC and payload(record).get("type") != 0:
        return []
    written: Written | None = seen.at(WRITTEN, jobid)
    if written is None or written.resources is None:
        return []
    return shares_of(
        written.resources, jobid, 0 if topic_of(record) == topics.SCHED_FREE else record.n
    )


def _fold_ranks(
    shares: Shares | None, share: Share | None, _record: Record, seen: Seen
) -> Shares | None:
    shares = shares or ()
    if share is None:
        hello = link_of(seen).hello_sent
        left = tuple(each for each in shares if each.since > hello)
    else:
        left = tuple(each for each in shares if each.jobid != share.jobid)
        if share.since:
            left = (*left, share)
    return left or None


RANKS: Final = view(
    "ranks",
    sent("response", topics.SCHED_ALLOC, topics.SCHED_HELLO),
    received("request", topics.SCHED_FREE),
    parts=_shares,
    fold=_fold_ranks,
    reads=(WRITTEN, LINK),
)
"""By rank: which jobs have what of it, from the scheduler's SUCCESS until it takes up the free.

When hello has ended, only what it told of is left.
"""


def overlaps(seen: Seen, jobid: int) -> list[tuple[int, Share]]:
    """(rank, share) of others in what the R of a job names."""
    written: Written | None = seen.at(WRITTEN, jobid)
    if written is None or written.resources is None:
        return []
    return [
        (rank, other)
        for rank, mine in shares_of(written.resources, jobid, 0)
        for other in seen.at(RANKS, rank) or ()
        if other.jobid != jobid and (other.cores & mine.cores or other.gpus & mine.gpus)
    ]
