"""Violations of RFC 31: what a job gets does not match its constraints."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.messages import topics
from tests.support.judged import Trace, edit_payload, find_all
from tests.support.planted import Planted

PLANTED = Planted()


def elsewhere(clause: str, job: int, what: str = "node1", **constraint: Any) -> None:
    """`clause` is broken: the job, which may have another constraint, gets node1."""

    def change(trace: Trace) -> Trace:
        if constraint:
            asked = find_all(trace, topics.SCHED_ALLOC, "request")[job]
            jobspec = msgspec.json.decode(msgspec.json.encode(asked.message.payload["jobspec"]))
            jobspec["attributes"]["system"]["constraints"] = constraint
            trace = edit_payload(trace, asked, jobspec=jobspec)
        commit = find_all(trace, topics.KVS_COMMIT, "request", party="sched")[job]
        ((how, key, text),) = commit.message.payload["ops"]
        resources = msgspec.json.decode(text)
        execution = resources["execution"]
        execution["R_lite"] = [{"rank": "1", "children": {"core": "0"}}]
        execution["nodelist"], execution["properties"] = ["node1"], {"big": "1"}
        other = msgspec.json.encode(resources).decode()
        return edit_payload(trace, commit, ops=[[how, key, other]])[: commit.n]

    change.__name__ = f"{clause}: gets {what}"
    PLANTED.violation(clause, "constrained", cut=True)(change)


FAST, HOST, RANK, NOT, OR, AND = range(6)  # the jobs of the scenario

elsewhere("31.constraints.2", FAST)
elsewhere("31.constraints.3", NOT, "what it excludes", properties=["^big"])
elsewhere("31.constraints.4", HOST)
elsewhere("31.constraints.5", RANK)
elsewhere("31.constraints.6", NOT)
elsewhere("31.constraints.6", NOT, "a target where none will do", **{"not": []})
elsewhere("31.constraints.7", OR)
elsewhere("31.constraints.8", AND)
