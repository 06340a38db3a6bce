"""Violations of RFC 14 and 25 on what a job gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import Trace, edit_payload, find_all
from tests.support.planted import Planted

PLANTED = Planted()

Edit = Callable[[dict[str, Any]], None]


def commits(trace: Trace) -> list[Record]:
    """The commits of the scheduler, each of one R."""
    return find_all(trace, topics.KVS_COMMIT, "request", party="sched")


def otherwise(clause: str, scenario: str, nth: int) -> Callable[[Edit], Edit]:
    """`clause` is broken when the decorated function edits `execution` of the R stored then."""

    def register(edit: Edit) -> Edit:
        def change(trace: Trace) -> Trace:
            commit = commits(trace)[nth]
            ((how, key, text),) = commit.message.payload["ops"]
            resources = msgspec.json.decode(text)
            edit(resources["execution"])
            other = msgspec.json.encode(resources).decode()
            return edit_payload(trace, commit, ops=[[how, key, other]])[: commit.n]

        change.__name__ = edit.__name__
        PLANTED.violation(clause, scenario, cut=True)(change)
        return edit

    return register


PLAIN, NODES, WHOLE = range(3)  # of the scenario jobspecs


@otherwise("25.resources.7", "jobspecs", PLAIN)
def a_core_too_few(execution: dict[str, Any]) -> None:
    execution["R_lite"] = [{"rank": "0", "children": {"core": "0"}}]


@otherwise("14.vertex.6", "jobspecs", PLAIN)
def a_slot_on_two_targets(execution: dict[str, Any]) -> None:
    execution["R_lite"] = [{"rank": "0-1", "children": {"core": "0"}}]
    execution["nodelist"] = ["node[0-1]"]


@otherwise("14.vertex.1", "jobspecs", NODES)
def a_node_too_few(execution: dict[str, Any]) -> None:
    execution["R_lite"] = [{"rank": "0", "children": {"core": "0-1"}}]
    execution["nodelist"] = ["node0"]


@otherwise("14.vertex.3", "jobspecs", WHOLE)
def a_part_of_an_exclusive_node(execution: dict[str, Any]) -> None:
    execution["R_lite"] = [{"rank": "0", "children": {"core": "0"}}]
    execution["nodelist"] = ["node0"]


@otherwise("14.attributes.2", "jobspecs", PLAIN)
def an_end_before_the_duration_is_over(execution: dict[str, Any]) -> None:
    execution["expiration"] = execution["starttime"] + 10


@otherwise("14.attributes.3", "instance_ends", 0)
def an_end_after_that_of_the_instance(execution: dict[str, Any]) -> None:
    execution["expiration"] = execution["starttime"] + 2000


@otherwise("14.attributes.3", "instance_ends", 0)
def no_end_though_the_instance_has_one(execution: dict[str, Any]) -> None:
    execution["expiration"] = 0
