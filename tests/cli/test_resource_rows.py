from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from flux_trio.cli.admin.resource_rows import (
    DRAIN_FORMATS,
    LIST_FIELDS,
    LIST_FORMATS,
    STATUS_FIELDS,
    STATUS_FORMATS,
    STATUS_SHOWN,
    Resources,
    drain_rows,
    list_rows,
    status_rows,
)
from flux_trio.cli.terminal.columns import Layout
from flux_trio.formats import Idset, ResourceSet


def r(ranks: str, nodelist: str, cores: str, **more: Any) -> dict[str, Any]:
    execution = {
        "R_lite": [{"rank": ranks, "children": {"core": cores}}],
        "starttime": 0.0,
        "expiration": 0.0,
        "nodelist": [nodelist],
        **more,
    }
    return {"version": 1, "execution": execution}


def status(**more: Any) -> dict[str, Any]:
    """The resource.status response of four nodes of four cores."""
    offline = more.get("offline", "")
    down = {offline: {"timestamp": 7.0, "by": "operator", "reason": "psu"}} if offline else {}
    told = {"R": r("0-3", "n[0-3]", "0-3"), "drained": {}, "offline": "", "exclude": ""}
    return {**told, "down": down, **more}


def held(ranks: str, nodelist: str, cores: str) -> ResourceSet:
    return ResourceSet.parse(r(ranks, nodelist, cores, nslots=1))


def read(told: dict[str, Any], *jobs: ResourceSet) -> Resources:
    return Resources.read(told, reduce(ResourceSet.union, jobs).to_json() if jobs else None)


def listed(told: dict[str, Any], *jobs: ResourceSet, form: str = "", **how: Any) -> list[str]:
    layout = Layout(form or LIST_FORMATS["default"].format, LIST_FIELDS)
    rows = list_rows(read(told, *jobs), fields=layout.fields, **how)
    return list(layout.lines(rows))


def shown(
    told: dict[str, Any], *jobs: ResourceSet, states: Any = STATUS_SHOWN, **how: Any
) -> list[str]:
    layout = Layout(STATUS_FORMATS["default"].format, STATUS_FIELDS)
    how = {"skip_empty": True, **how}
    rows = status_rows(read(told, *jobs), states, layout.fields, **how)
    return list(layout.lines(rows))[1:]


def test_an_idle_machine_is_free() -> None:
    assert listed(status()) == [
        "     STATE NNODES NCORES NODELIST",
        "      free      4     16 n[0-3]",
        " allocated      0      0",
        "      down      0      0",
    ]


def test_what_jobs_hold_is_allocated_core_by_core() -> None:
    jobs = [held("0", "n0", "0-1"), held("0-1", "n[0-1]", "2-3")]
    assert listed(status(), *jobs)[1:3] == [
        "      free      3     10 n[1-3]",
        " allocated      2      6 n[0-1]",
    ]


def test_drained_and_offline_nodes_are_down_and_excluded_ones_nowhere() -> None:
    drained = {"1": {"timestamp": 1.0, "reason": ""}}
    told = status(drained=drained, offline="2", exclude="3")
    assert listed(told, held("1", "n1", "0"))[1:] == [
        "      free      1      4 n0",
        " allocated      1      1 n1",
        "      down      2      8 n[1-2]",
    ]


def test_nodes_of_different_properties_have_rows_of_their_own() -> None:
    told = status(R=r("0-3", "n[0-3]", "0-3", properties={"big": "0-1", "fast": "1"}))
    assert listed(told)[:4] == [
        "     STATE PROPERTIES NNODES NCORES NODELIST",
        "      free big             1      4 n0",
        "      free big,fast        1      4 n1",
        "      free                 2      8 n[2-3]",
    ]


def test_a_drained_node_with_a_job_is_draining() -> None:
    told = status(drained={"0-1": {"timestamp": 1.0, "reason": "bad"}})
    rows = drain_rows(read(told, held("1", "n1", "0")))
    assert [(row["state"], row["nodelist"], row["reason"]) for row in rows] == [
        ("draining", "n1", "bad"),
        ("drained", "n0", "bad"),
    ]
    header, *lines = Layout(DRAIN_FORMATS["default"].format, STATUS_FIELDS).lines(rows)
    assert header == "TIME         STATE    REASON                         NODELIST"
    assert lines[1].endswith(" drained  bad                            n0")


def test_nodes_share_a_row_when_a_format_shows_no_difference() -> None:
    told = status(R=r("0-3", "n[0-3]", "0-3", properties={"big": "0-1"}))
    assert listed(told, form="{state} {nnodes}") == [
        "STATE NNODES",
        "free 4",
        "allocated 0",
        "down 0",
    ]
    assert listed(told, form="{nnodes}", states=("free", "down")) == ["NNODES", "4"]
    assert listed(told, form="{state} {ranks}", states=("all", "up"), skip_empty=True) == [
        "STATE RANKS",
        "all 0-3",
        "up 0-3",
    ]


def test_status_has_a_row_for_each_state_and_those_offline() -> None:
    drained = {"1": {"timestamp": 1.0, "reason": "a"}, "2": {"timestamp": 2.0, "reason": "b"}}
    told = status(drained=drained, offline="0,2", exclude="3")
    assert shown(told, held("1", "n1", "0")) == [
        "      avail*  ✗      1 n0",
        "     exclude  ✔      1 n3",
        "    draining  ✔      1 n1",
        "    drained*  ✗      1 n2",
    ]
    assert shown(status(), states=("avail", "drained"), skip_empty=False) == [
        "       avail  ✔      4 n[0-3]",
        "     drained  ✔      0",
    ]
    assert shown(told, states=("offline",)) == [
        "      avail*  ✗      1 n0",
        "    drained*  ✗      1 n2",
    ]
    assert shown(told, held("1", "n1", "0"), states=("allocated", "online")) == [
        "   allocated  ✔      1 n1"
    ]


def test_resources_can_be_narrowed_to_ranks_or_hosts() -> None:
    drained = {"1": {"timestamp": 1.0, "reason": "a"}}
    resources = read(status(drained=drained, offline="2"), held("3", "n3", "0"))
    for targets in ("1-3", "n[1-3]"):
        some = resources.restrict(targets)
        assert [row["ranks"] for row in list_rows(some)] == ["3", "3", "1-2"]
        assert [row["ranks"] for row in drain_rows(some)] == ["1"]
    assert drain_rows(resources.restrict("n0")) == []


def test_queues_have_columns_and_can_be_looked_at_alone() -> None:
    told = status(R=r("0-3", "n[0-3]", "0-3", properties={"batch": "0-1", "big": "1"}))
    queues = {"batch": Idset.parse("0-1"), "all": Idset.parse("0-3")}
    resources = replace(read(told), queues=queues)
    layout = Layout(LIST_FORMATS["default"].format, LIST_FIELDS)

    def shown(what: Resources) -> list[list[str]]:
        rows = list_rows(what, fields=layout.fields, skip_empty=True)
        return [line.split() for line in layout.lines(rows)]

    assert shown(resources) == [
        ["STATE", "QUEUE", "PROPERTIES", "NNODES", "NCORES", "NODELIST"],
        ["free", "batch,all", "1", "4", "n0"],
        ["free", "batch,all", "big", "1", "4", "n1"],
        ["free", "all", "2", "8", "n[2-3]"],
    ]
    assert shown(resources.of_queues(["batch"]))[1:] == [
        ["free", "batch", "1", "4", "n0"],
        ["free", "batch", "big", "1", "4", "n1"],
    ]
    with pytest.raises(ValueError, match="nosuch: no such queue"):
        resources.of_queues(["nosuch"])
