from __future__ import annotations

import json
from typing import Any

from flux_trio.cli.columns import Layout
from flux_trio.cli.resource_rows import (
    DRAIN_FORMAT,
    DRAIN_HEADINGS,
    LIST_FORMAT,
    LIST_HEADINGS,
    Resources,
    drain_rows,
    list_rows,
)


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
    return {"R": r("0-3", "n[0-3]", "0-3"), "drained": {}, "offline": "", "exclude": ""} | more


def held(ranks: str, nodelist: str, cores: str) -> str:
    return json.dumps(r(ranks, nodelist, cores, nslots=1))


def listed(told: dict[str, Any], *jobs: str) -> list[str]:
    rows = list_rows(Resources.read(told, jobs))
    return list(Layout(LIST_FORMAT, LIST_HEADINGS).lines(rows))


def test_an_idle_machine_is_free() -> None:
    assert listed(status()) == [
        "     STATE NNODES NCORES NGPUS NODELIST",
        "      free      4     16     0 n[0-3]",
        " allocated      0      0     0",
        "      down      0      0     0",
    ]


def test_what_jobs_hold_is_allocated_core_by_core() -> None:
    jobs = [held("0", "n0", "0-1"), held("0-1", "n[0-1]", "2-3")]
    assert listed(status(), *jobs)[1:3] == [
        "      free      3     10     0 n[1-3]",
        " allocated      2      6     0 n[0-1]",
    ]


def test_drained_offline_and_excluded_nodes_are_down_and_not_free() -> None:
    drained = {"1": {"timestamp": 1.0, "reason": ""}}
    told = status(drained=drained, offline="2", exclude="3")
    assert listed(told, held("1", "n1", "0"))[1:] == [
        "      free      1      4     0 n0",
        " allocated      1      1     0 n1",
        "      down      3     12     0 n[1-3]",
    ]


def test_nodes_of_different_properties_have_rows_of_their_own() -> None:
    told = status(R=r("0-3", "n[0-3]", "0-3", properties={"big": "0-1", "fast": "1"}))
    assert listed(told)[:4] == [
        "     STATE PROPERTIES NNODES NCORES NGPUS NODELIST",
        "      free big             1      4     0 n0",
        "      free big,fast        1      4     0 n1",
        "      free                 2      8     0 n[2-3]",
    ]


def test_a_drained_node_with_a_job_is_draining() -> None:
    told = status(drained={"0-1": {"timestamp": 1.0, "reason": "bad"}})
    rows = drain_rows(told, Resources.read(told, [held("1", "n1", "0")]))
    assert [(row["state"], row["nodelist"], row["reason"]) for row in rows] == [
        ("draining", "n1", "bad"),
        ("drained", "n0", "bad"),
    ]
    header, *lines = Layout(DRAIN_FORMAT, DRAIN_HEADINGS).lines(rows)
    assert header == "TIME         STATE    REASON                         NODELIST"
    assert lines[1].endswith(" drained  bad                            n0")
