"""Resource sets (RFC 20) as a trace shows them: in commits of job.<id>.R, in lookups of it by the
scheduler, in responses to acquire, and, in the current edition, in SUCCESS, start and free.

They are read by code of their own: our parser would accept its own mistakes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet
from flux_trio.judge.checks.shapes import idset_of, members, part
from flux_trio.judge.engine.selector import (
    LOOKUP_TOPICS,
    errnum,
    once,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Seen, seen_once, view
from flux_trio.judge.views.acquiring import change_of
from flux_trio.judge.views.calls import call_key
from flux_trio.judge.views.kvs import commit_ops, keys_asked, values_answered
from flux_trio.judge.views.traits import BY_SCHEDULER, CARRIES_R, WITH_R
from flux_trio.messages import Request, topics
from flux_trio.trace import Record
from flux_trio.trace.kvs import job_with

LATEST_MAX: Final = 512

T = TypeVar("T")

RANKS_MAX: Final = 1 << 18
"""The most ranks that are read of an R that is not valid; a valid one has no more hosts."""
UNREADABLE: Final = -1
"""Takes the place of a job id that is not an integer."""


class SeenR(NamedTuple):
    """An R as a message has it: a text that says where, its JSON value, its job (None for an
    inventory), and when.
    """

    what: str
    value: Any
    t: float
    jobid: int | None = None


@once
def committed(record: Record) -> list[tuple[int, SeenR | None]]:
    """Return each job whose R a kvs.commit writes, with the R; None for an R that it removes."""
    return [
        (jobid, _of_job(jobid, text, record.t) if op == "put" else None)
        for op, key, text in commit_ops(record)
        if (jobid := job_with(key, "R")) is not None
    ]


def _of_job(jobid: int, text: Any, t: float) -> SeenR:
    return SeenR(f"R of job {jobid}", _decoded(text) if isinstance(text, str) else text, t, jobid)


@functools.lru_cache(maxsize=LATEST_MAX)
def _decoded(text: str) -> Any:
    """Return the JSON value of a text; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decoded_slowly(text)


def _decoded_slowly(text: str) -> Any:
    """Also what JSON can say and UTF-8 cannot."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_once(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache the results for the latest values, because many rules read the same value in turn."""
    latest: dict[int, tuple[Any, T]] = {}

    def cached(value: Any) -> T:
        found = latest.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        if len(latest) >= LATEST_MAX:
            latest.clear()
        result = read(value)
        latest[id(value)] = (value, result)
        return result

    return functools.wraps(read)(cached)


def _fold_lookup(
    _jobs: tuple[int | None, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[int | None, ...] | None:
    if not isinstance(record.message, Request):
        return None
    return tuple([job_with(key, "R") for key in keys_asked(record)])


LOOKUPS: Final = view(
    "lookups of R",
    sent("request", *LOOKUP_TOPICS),
    received("response", *LOOKUP_TOPICS),
    key=call_key,
    fold=_fold_lookup,
)
"""By client and matchtag: the jobs whose R is being looked up, None for another key."""

ALLOCATING: Final = (
    *sent("request", *topics.COMMITS, mark=WITH_R),
    *sent("response", topics.SCHED_ALLOC, mark=CARRIES_R),
)
"""The records in which a scheduler says what it allocates."""

R_RECORDS: Final = (
    *ALLOCATING,
    *sent("request", "<exec>.start", topics.SCHED_FREE, mark=CARRIES_R),
    *received("response", *LOOKUP_TOPICS, mark=BY_SCHEDULER),
    *sent("response", topics.RESOURCE_ACQUIRE),
)


def carried(record: Record) -> Any:
    """Return the R in the payload of a message about a job; None if it has none."""
    return None if errnum(record) else payload(record).get("R")


def is_part(record: Record) -> bool:
    """Whether a sched.free is of the current edition, and more of the job's R is freed later."""
    return carried(record) is not None and payload(record).get("final") is not True


@once
def allocated(record: Record) -> list[SeenR]:
    """Return the R of each job in a record of ALLOCATING."""
    if topic_of(record) in topics.COMMITS:
        return [each for _, each in committed(record) if each is not None]
    return carried_by(record)


def carried_by(record: Record) -> list[SeenR]:
    """Return the R in a message about a job, with its job. The list is empty if there is none, or
    if the message is an answer to sched.alloc other than SUCCESS.
    """
    r, jobid = carried(record), payload(record).get("id")
    is_absent = errnum(record) or "R" not in payload(record)
    if is_absent or (payload(record).get("type") and topic_of(record) == topics.SCHED_ALLOC):
        return []
    jobid = jobid if type(jobid) is int else UNREADABLE
    return [SeenR(f"R of job {jobid} in {topic_of(record)}", r, record.t, jobid)]


@seen_once
def found_in(record: Record, seen: Seen) -> list[SeenR]:
    """Return the resource sets in a record of R_RECORDS.

    Lookups of others than the scheduler are left out, since they show what a commit has shown.
    """
    topic = topic_of(record)
    if topic in topics.COMMITS:
        return allocated(record)
    if topic in LOOKUP_TOPICS:
        if record.party != seen.facts.scheduler or errnum(record):
            return []
        pairs = zip(seen.at(LOOKUPS, call_key(record)) or (), values_answered(record), strict=False)
        return [
            _of_job(jobid, text, record.t) for jobid, text in pairs if None not in (jobid, text)
        ]
    if topic != topics.RESOURCE_ACQUIRE:
        return carried_by(record)
    grown = None if errnum(record) else change_of(payload(record)).resources
    return [] if grown is None else [SeenR("resources in resource.acquire", grown, record.t)]


# --- reading an R of which nothing is certain


def execution(r: Any) -> dict[str, Any]:
    """Return the execution object of an R; {} when it has none."""
    found: dict[str, Any] = part(r, "execution", dict)
    return found


@read_once
def entries(r: Any) -> list[dict[str, Any]]:
    """Return the entries of R_lite that are objects."""
    return members(execution(r).get("R_lite"))


def children(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the children object of an entry of R_lite; {} when it has none."""
    found: dict[str, Any] = part(entry, "children", dict)
    return found


@read_once
def targets_of(r: Any) -> Idset | None:
    """Return all targets in R_lite; None when some cannot be read."""
    found = Idset()
    for entry in entries(r):
        ranks = idset_of(entry.get("rank"))
        if ranks is None:
            return None
        found |= ranks
    return found


class Piece(NamedTuple):
    """One entry of R_lite: these targets, and these cores and gpus of each of them."""

    ranks: Idset
    cores: Idset
    gpus: Idset


@read_once
def pieces_of(r: Any) -> tuple[Piece, ...]:
    """Return the entries of R_lite. What cannot be read of an entry is empty."""
    empty = Idset()
    return tuple(
        Piece(
            idset_of(entry.get("rank")) or empty,
            idset_of(children(entry).get("core")) or empty,
            idset_of(children(entry).get("gpu")) or empty,
        )
        for entry in entries(r)
    )


@read_once
def hosts_of(r: Any) -> list[str] | None:
    """Return the hosts of nodelist in order; None when it cannot be read."""
    found = execution(r).get("nodelist")
    if not isinstance(found, list):
        return None
    lists = [hostlist_of(each) for each in found]
    return None if None in lists else [host for each in lists if each for host in each]


def hostlist_of(value: Any) -> Hostlist | None:
    """Return the hostlist in a string; None for any other value."""
    return _parsed_hostlist(value) if isinstance(value, str) else None


_ONE: Final = re.compile(r"[!-+\--Z\\^-~]+(?:\[([0-9,-]+)\])?")


def is_hostlist(text: str) -> bool:
    """Whether a text is a hostlist. Usual texts, one name or one name with an idset in brackets,
    are checked without parsing.
    """
    found = _ONE.fullmatch(text)
    if found is not None and (found[1] is None or idset_of(found[1])):
        return True
    return hostlist_of(text) is not None


@functools.lru_cache(maxsize=64)
def _parsed_hostlist(text: str) -> Hostlist | None:
    try:
        return Hostlist.parse(text)
    except FormatError:
        return None


def number_of(r: Any, key: str) -> float:
    """Return a time of the execution object; 0, which means unset, when it is absent or not a
    number.
    """
    found = execution(r).get(key)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else 0


def properties_of(r: Any) -> dict[str, Idset]:
    """Return the properties of an R whose targets can be read."""
    found = part(execution(r), "properties", dict)
    sets = ((name, idset_of(text)) for name, text in found.items())
    return {name: targets for name, targets in sets if targets is not None}


@read_once
def resources_in(r: Any) -> ResourceSet | None:
    """Return the R of a JSON value; None if the value is not an R."""
    try:
        return None if r is None else ResourceSet.parse(r)
    except FormatError:
        return None


@read_once
def booked_in(r: Any) -> ResourceSet | None:
    """Return the cores and gpus that a JSON value names, also if it is not a valid R.

    None if it names none, or very many. What is wrong with it does not hide what it takes.
    """
    found = resources_in(r)
    if found is not None or r is None:
        return found
    pieces = pieces_of(r)
    if sum(len(piece.ranks) for piece in pieces) > RANKS_MAX:
        return None
    entries = [
        (rank, piece.cores.bits, piece.gpus.bits) for piece in pieces for rank in piece.ranks
    ]
    return ResourceSet.build(entries, lambda _rank: "") if entries else None


# --- the inventory


def inventory_in(record: Record) -> Any:
    """Return the R in a response to resource.status, or in one to resource.acquire that grows; None
    for another record.
    """
    content = payload(record)
    return (
        content.get("R") if topic_of(record) == topics.RESOURCE_STATUS else content.get("resources")
    )


INVENTORY_RECORDS: Final = tuple(sent("response", topics.RESOURCE_STATUS, topics.RESOURCE_ACQUIRE))


def _fold_hosts(old: Any, r: Any, _record: Record, _seen: Seen) -> Any:
    targets, hosts = targets_of(r), hosts_of(r)
    if not targets or hosts is None or len(hosts) != len(targets):
        return old
    return tuple(sorted((dict(old or ()) | dict(zip(targets, hosts, strict=True))).items()))


HOSTS: Final = view(
    "hosts",
    INVENTORY_RECORDS,
    parts=lambda record, _seen: [((), inventory_in(record))],
    fold=_fold_hosts,
)
"""A single state: the pairs of target and host of the inventory."""


@read_once
def _by_target(pairs: Any) -> dict[int, str]:
    return dict(pairs)


def hosts_by_target(seen: Seen) -> dict[int, str]:
    """Return the host of each target of the inventory, as HOSTS has it."""
    return _by_target(seen.at(HOSTS) or ())


@read_once
def _prefix(pairs: Any) -> str | None:
    """What all hosts are called before the number of their target; None when they are not."""
    prefixes = {host.removesuffix(str(target)) for target, host in pairs}
    return prefixes.pop() if len(prefixes) == 1 else None


def names_targets(r: Any, seen: Seen) -> bool:
    """Whether the nodelist of an R spells its targets, in an instance where hosts are numbered so.

    True says that hosts and targets agree; False says nothing.
    """
    prefix, targets = _prefix(seen.at(HOSTS) or ()), targets_of(r)
    if prefix is None or not targets:
        return False
    found = entries(r)
    text = found[0]["rank"] if len(found) == 1 else str(targets)  # an idset, since it was read
    spelled = f"{prefix}{text}" if len(targets) == 1 else f"{prefix}[{text}]"
    return execution(r).get("nodelist") == [spelled]
