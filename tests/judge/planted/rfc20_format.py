"""Violations of RFC 20, R Format: an R as it should not be written."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import Trace, edit_payload, find, find_all
from tests.support.planted import Planted, Violation

PLANTED = Planted()

Change = Callable[[dict[str, Any]], Any]
"""Changes R in place, or returns what is there instead."""


def commits_of_r(trace: Trace) -> list[tuple[Record, int]]:
    """Each commit of an R, and which op of it that is."""
    return [
        (record, place)
        for record in find_all(trace, topics.KVS_COMMIT, "request")
        for place, op in enumerate(record.message.payload["ops"])
        if op[0] == "put" and op[1].endswith(".R")
    ]


def with_r(trace: Trace, change: Change, nth: int = 0) -> Trace:
    """The nth R that is written is changed."""
    record, place = commits_of_r(trace)[nth]
    ops = [list(op) for op in record.message.payload["ops"]]
    r = json.loads(ops[place][2])
    instead = change(r)
    ops[place][2] = json.dumps(r if instead is None else instead)
    return edit_payload(trace, record, ops=ops)


def with_grown(trace: Trace, change: Change, nth: int = 0) -> Trace:
    """The R of the nth grow response is changed."""
    grow = find(trace, topics.RESOURCE_ACQUIRE, "response", type="grow", nth=nth)
    r = json.loads(json.dumps(grow.message.payload["resources"]))
    instead = change(r)
    return edit_payload(trace, grow, resources=r if instead is None else instead)


def bad_r(clause: str, what: str, change: Change, nth: int = 0) -> None:
    """A job's R is written in such a way."""
    how = functools.partial(with_r, change=change, nth=nth)
    PLANTED.all.append(Violation(f"{clause}: {what}", clause, "everyday", how))


def in_entry(**keys: Any) -> Change:
    """The first R_lite entry has these keys."""

    def change(r: dict[str, Any]) -> None:
        r["execution"]["R_lite"][0].update(keys)

    return change


def in_execution(**keys: Any) -> Change:
    """The execution object has these keys."""

    def change(r: dict[str, Any]) -> None:
        r["execution"].update(keys)

    return change


def in_children(**keys: Any) -> Change:
    """The first R_lite entry has these children."""

    def change(r: dict[str, Any]) -> None:
        r["execution"]["R_lite"][0]["children"].update(keys)

    return change


def without(*path: Any) -> Change:
    """R lacks the key at the end of the path."""

    def change(r: Any) -> None:
        for key in path[:-1]:
            r = r[key]
        del r[path[-1]]

    return change


def twice(r: dict[str, Any]) -> None:
    r["execution"]["R_lite"] *= 2


def later(key: str, factor: float = 1.0, seconds: float = 0.0) -> Change:
    """A time of the execution object is the starttime, multiplied and shifted."""

    def change(r: dict[str, Any]) -> None:
        r["execution"][key] = r["execution"]["starttime"] * factor + seconds

    return change


ENTRY = ("execution", "R_lite", 0)

bad_r("20.overview.1", "a count", in_children(memory=4))
bad_r("20.format.1", "an array", lambda r: [r])
bad_r("20.format.1", "JSON in a string", json.dumps)
bad_r("20.format.2", "no version", without("version"))
for version in ("1", 2, True):
    bad_r("20.format.2", f"version {version!r}", lambda r, value=version: {**r, "version": value})
bad_r("20.format.3", "no execution", without("execution"))
bad_r("20.format.4", "no R_lite", without("execution", "R_lite"))
bad_r("20.format.4", "R_lite as an object", in_execution(R_lite={"rank": "0"}))
bad_r("20.format.4", "R_lite empty", in_execution(R_lite=[]))
bad_r("20.format.6", "no rank", without(*ENTRY, "rank"))
for rank in (0, "", "a", "1-0"):
    bad_r("20.format.6", f"rank {rank!r}", in_entry(rank=rank))
bad_r("20.format.7", "no children", without(*ENTRY, "children"))
bad_r("20.format.7", "children as a string", in_entry(children="core0"))
bad_r("20.format.8", "no core", without(*ENTRY, "children", "core"))
for core in ("", "x", ["0"]):
    bad_r("20.format.8", f"core {core!r}", in_children(core=core))
for gpu in ("", "gpu0"):
    bad_r("20.format.9", f"gpu {gpu!r}", in_children(gpu=gpu))
bad_r("20.format.10", "an entry twice", twice)
bad_r("20.nodelist.1", "no nodelist", without("execution", "nodelist"))
bad_r("20.nodelist.1", "nodelist as a string", in_execution(nodelist="node0"))
bad_r("20.nodelist.2", "brackets left open", in_execution(nodelist=["node[0"]))
bad_r("20.nodelist.3", "a host too many", in_execution(nodelist=["node[0-7]"]))
bad_r("20.nodelist.3", "hosts in another order", in_execution(nodelist=["node1", "node0"]), nth=1)
bad_r("20.nslots.1", "nslots as a string", in_execution(nslots="1"))
bad_r("20.nslots.1", "a slot too many", in_execution(nslots=2))
bad_r("20.nslots.3", "no nslots", without("execution", "nslots"), nth=1)
for nslots in (0, -1):
    bad_r("20.nslots.4", f"nslots {nslots}", in_execution(nslots=nslots))
bad_r("20.properties.1", "an array of targets", in_execution(properties={"big": ["0"]}))
bad_r("20.properties.2", "a host", in_execution(properties={"big": "node0"}))
bad_r("20.properties.2", "another target", in_execution(properties={"big": "9"}))
bad_r("20.properties.4", "half a character", in_execution(properties={"\ud800": "0"}))
for name in ("a|b", "^x", "a&b", "!a", "(a)", "it's", 'say"so"', "`a`"):
    bad_r("20.properties.5", f"property {name}", in_execution(properties={name: "0"}))
bad_r("20.starttime.1", "a string", in_execution(starttime="now"))
bad_r("20.starttime.3", "milliseconds", later("starttime", 1000.0))
bad_r("20.expiration.1", "a string", in_execution(expiration="never"))
bad_r("20.expiration.4", "a duration", in_execution(starttime=0.0, expiration=60.0))
bad_r("20.expiration.5", "before starttime", later("expiration", seconds=-1.0))
bad_r("20.expiration.5", "the starttime", later("expiration"))
bad_r("20.scheduling.1", "an array", lambda r: {**r, "scheduling": []})
bad_r("20.scheduling.2", "an object", lambda r: {**r, "scheduling": {"writer": {}}})
bad_r("20.scheduling.2", "no scheme", lambda r: {**r, "scheduling": {"writer": "//here"}})
bad_r("20.scheduling.7", "by rank", lambda r: {**r, "scheduling": {"rack": {"rank": "0"}}})


@PLANTED.violation("20.nslots.2", "everyday")
def an_inventory_with_slots(trace: Trace) -> Trace:
    return with_grown(trace, in_execution(nslots=4))
