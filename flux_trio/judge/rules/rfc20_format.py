"""RFC 20, R Format: each resource set that a trace shows is one, clause by clause.

A part that is missing or of another type breaks the clause of that part; the clauses of its
contents are then not exercised. Properties, times and scheduling are in rfc20_values, consumers of
R in rfc20_use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flux_trio.judge.checks.r_checks import CHECKS, Found, each_r, optional, wanted
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import topic_of
from flux_trio.judge.engine.view import Seen, view
from flux_trio.judge.rules.other_allocations import WANTED, Wanted
from flux_trio.judge.views.resource_sets import (
    ALLOCATING,
    HOSTS,
    LOOKUPS,
    R_RECORDS,
    allocated,
    children,
    entries,
    execution,
    found_in,
    hosts_by_target,
    hosts_of,
    is_hostlist,
    names_targets,
    pieces_of,
    targets_of,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()


def _each_entry(r: Any, check: Callable[[dict[str, Any]], Found]) -> Found:
    kept: Found = None
    for place, entry in enumerate(entries(r)):
        found = check(entry)
        if isinstance(found, str):
            return f"execution.R_lite[{place}]: {found}"
        kept = kept or found
    return kept


def _ids(owner: dict[str, Any], key: str, what: str) -> Found:
    expected = f"an idset (RFC 22) of at least one {what}"
    return bool(idset_of(owner.get(key))) or f"{key}: {wanted(expected, owner.get(key))}"


# --- the object, execution and R_lite


@each_r(RULES, "20.overview.1")
def names_resources(r: Any, _t: float) -> Found:
    def named(entry: dict[str, Any]) -> Found:
        counts = {k: v for k, v in children(entry).items() if isinstance(v, (int, float))}
        return (
            f"children: expected names of resources, got counts {counts!r:.80}" if counts else True
        )

    return _each_entry(r, named)


@each_r(RULES, "20.format.1")
def is_an_object(r: Any, _t: float) -> Found:
    return isinstance(r, dict) or wanted("a JSON object", r)


@each_r(RULES, "20.format.2")
def has_version_1(r: Any, _t: float) -> Found:
    if not isinstance(r, dict):
        return None
    version = r.get("version")
    return (type(version) is int and version == 1) or f"version: {wanted('the integer 1', version)}"


@each_r(RULES, "20.format.3")
def has_execution(r: Any, _t: float) -> Found:
    if not isinstance(r, dict):
        return None
    found = r.get("execution")
    return isinstance(found, dict) or f"execution: {wanted('an object', found)}"


@each_r(RULES, "20.format.4")
def has_r_lite(r: Any, _t: float) -> Found:
    if not execution(r):
        return None
    found = execution(r).get("R_lite")
    fits = isinstance(found, list) and bool(found) and all(isinstance(e, dict) for e in found)
    return fits or f"execution.R_lite: {wanted('an array of at least one object', found)}"


@each_r(RULES, "20.format.6")
def entries_have_ranks(r: Any, _t: float) -> Found:
    return _each_entry(r, lambda entry: _ids(entry, "rank", "target"))


@each_r(RULES, "20.format.7")
def entries_have_children(r: Any, _t: float) -> Found:
    def has_children(entry: dict[str, Any]) -> Found:
        found = entry.get("children")
        return isinstance(found, dict) or f"children: {wanted('an object', found)}"

    return _each_entry(r, has_children)


@each_r(RULES, "20.format.8")
def children_have_cores(r: Any, _t: float) -> Found:
    def has_cores(entry: dict[str, Any]) -> Found:
        found = entry.get("children")
        return _ids(found, "core", "core") if isinstance(found, dict) else None

    return _each_entry(r, has_cores)


@each_r(RULES, "20.format.9")
def gpus_are_an_idset(r: Any, _t: float) -> Found:
    def has_gpus(entry: dict[str, Any]) -> Found:
        return _ids(children(entry), "gpu", "gpu") if "gpu" in children(entry) else None

    return _each_entry(r, has_gpus)


@each_r(RULES, "20.format.10")
def nothing_is_listed_twice(r: Any, _t: float) -> Found:
    pieces = pieces_of(r)
    for place, piece in enumerate(pieces):
        for other in pieces[:place]:
            ranks = piece.ranks & other.ranks
            if ranks and (piece.cores & other.cores or piece.gpus & other.gpus):
                return f"execution.R_lite lists a core or gpu of target {ranks} twice"
    return True if pieces else None


# --- nodelist and nslots


@each_r(RULES, "20.nodelist.1")
def has_a_nodelist(r: Any, _t: float) -> Found:
    if not execution(r):
        return None
    found = execution(r).get("nodelist")
    fits = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return fits or f"execution.nodelist: {wanted('an array of strings', found)}"


@each_r(RULES, "20.nodelist.2")
def nodelist_is_of_hostlists(r: Any, _t: float) -> Found:
    found = execution(r).get("nodelist")
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    for text in texts:
        if not is_hostlist(text):
            return f"execution.nodelist: {wanted('a hostname or hostlist (RFC 29)', text)}"
    return True if texts else None


def has_a_host_for_each_target(r: Any, _t: float) -> Found:
    hosts, targets = hosts_of(r), targets_of(r)
    if hosts is None or not targets:
        return None
    if len(hosts) == len(targets):
        return True
    return f"execution.nodelist: expected a host for each of {len(targets)} targets, got {hosts}"


CHECKS.append(has_a_host_for_each_target)


@RULES.judge("20.nodelist.3", R_RECORDS, views=[LOOKUPS, HOSTS])
def hosts_go_by_ascending_target(record: Record, seen: Seen) -> Finding:
    """The hosts of an R stand in the order of ascending targets. Within one instance a target is
    always the same host, whoever writes the R.
    """
    names, kept = hosts_by_target(seen), None
    for r in found_in(record, seen):
        if names_targets(r.value, seen):
            kept = True
            continue
        found = has_a_host_for_each_target(r.value, record.t)
        if isinstance(found, str):
            return Broken(f"{r.what}: {found}")
        targets, hosts = list(targets_of(r.value) or ()), hosts_of(r.value) or []
        kept = kept or found
        if hosts == [names.get(target) for target in targets]:
            continue
        for target, host in zip(targets, hosts, strict=False):
            if names.get(target, host) != host:
                text = f"{r.what}: execution.nodelist: target {target} is {names[target]}"
                return Broken(f"{text}, got {host}: hosts go by ascending target")
    return kept


def _nslots(r: Any) -> int | None:
    found = execution(r).get("nslots")
    return found if type(found) is int else None


def nslots_is_an_integer(r: Any, _t: float) -> Found:
    return optional(execution(r), "nslots", int, "an integer")


CHECKS.append(nslots_is_an_integer)


@RULES.judge("20.nslots.1", R_RECORDS, views=[LOOKUPS, WANTED])
def nslots_is_the_number_of_slots(record: Record, seen: Seen) -> Finding:
    """The key nslots of an R is an integer. Of a new allocation it is the number of slots that the
    jobspec in sched.alloc requests.
    """
    kept = None
    is_new = topic_of(record) in (*topics.COMMITS, topics.SCHED_ALLOC)
    for r in found_in(record, seen):
        found = nslots_is_an_integer(r.value, record.t)
        if isinstance(found, str):
            return Broken(f"{r.what}: {found}", job=r.jobid)
        requested: Wanted | None = seen.at(WANTED, r.jobid) if is_new else None
        nslots = _nslots(r.value) or 0
        if requested is not None and requested.slots and 0 < nslots != requested.slots:
            text = f"expected the {requested.slots} slots of the jobspec, got {nslots}"
            return Broken(f"{r.what}: execution.nslots: {text}", (requested.n,), job=r.jobid)
        kept = kept or found
    return kept


@each_r(RULES, "20.nslots.2", "inventory")
def an_inventory_has_no_nslots(r: Any, _t: float) -> Found:
    if not execution(r):
        return None
    return "nslots" not in execution(r) or "execution.nslots: only an allocation has it"


def _counting(record: Record, _seen: Seen) -> list[tuple[str, bool]]:
    return [(record.party, True) for r in allocated(record) if _nslots(r.value)]


COUNTING: Final = view(
    "writes nslots", ALLOCATING, parts=_counting, fold=lambda _old, counts, _record, _seen: counts
)
"""By scheduler: whether any R that it has written had the key nslots."""


@RULES.judge("20.nslots.3", ALLOCATING, views=[COUNTING])
def an_allocation_has_nslots(record: Record, seen: Seen) -> Finding:
    """An R of an allocation has nslots. This is judged of schedulers that have written nslots
    before; others may follow an older RFC (readings: R layout).
    """
    kept = None
    for r in allocated(record):
        if not execution(r.value):
            continue
        if "nslots" not in execution(r.value):
            if seen.at(COUNTING, record.party):
                return Broken(f"{r.what}: execution.nslots: expected as in others; it is missing")
            continue
        kept = True
    return kept


@each_r(RULES, "20.nslots.4")
def nslots_is_positive(r: Any, _t: float) -> Found:
    nslots = _nslots(r)
    if nslots is None:
        return None
    return nslots > 0 or f"execution.nslots: {wanted('more than 0', nslots)}"
