"""Violations of RFC 14, 25 and 26 on jobspecs."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    drop,
    edit,
    edit_payload,
    find,
    find_all,
    find_event,
)
from tests.support.planted import Planted

PLANTED = Planted()


def asked(trace: Trace, nth: int = 0) -> Record:
    """A sched.alloc request."""
    return find(trace, topics.SCHED_ALLOC, "request", nth=nth)


def edited(jobspec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path; numbers are places in lists."""
    other = copy.deepcopy(jobspec)
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = other
    for key in parents:
        place = place[key]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return other


def bad(clause: str, path: str, *values: Any, nth: int = 0) -> None:
    """One violation a value: so it is stored, and the trace ends as the job manager sends it."""
    for value in values:

        def change(trace: Trace, value: Any = value) -> Trace:
            request = asked(trace, nth)
            jobspec = edited(request.message.payload["jobspec"], path, value)
            stored = find_all(trace, topics.KVS_COMMIT, "request", party="job-ingest")[nth]
            (how, key, _), *ops = stored.message.payload["ops"]
            text = msgspec.json.encode(jobspec).decode()
            same = edit_payload(trace, stored, ops=[[how, key, text], *ops])
            return edit_payload(same, same[request.n - 1], jobspec=jobspec)[: request.n]

        text = f"without {path}" if value is REMOVED else f"{path} {value!r:.50}"
        change.__name__ = f"{clause}: {text}"
        PLANTED.violation(clause, "jobspecs", cut=True)(change)


# the jobs of the scenario, in order
PLAIN, NODES, _WHOLE, DEPENDS, RESERVED, CONSTRAINED = range(6)
SLOT, CORE = "resources.0", "resources.0.with.0"
TASK, SYSTEM = "tasks.0", "attributes.system"

task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
core = {"type": "core", "count": 2}
bad("25.top.1", "tasks", [{**task}, {**task}])
bad("25.top.2", "version", REMOVED, 2, "1")
bad("25.top.2", "attributes", REMOVED)
bad("25.resources.1", "resources", [], [core])
bad("25.resources.2", f"{SLOT}.name", "s")
bad("25.resources.2", f"{SLOT}.exclusive", 1)
bad("25.resources.2", f"{CORE}.exclusive", True)
bad("25.resources.2", f"{CORE}.unit", 1)
bad("25.resources.3", f"{CORE}.type", "socket")
bad("25.resources.4", f"{SLOT}.count", 0, "1", 1.5, {"min": 1})
bad("25.resources.5", f"{CORE}.type", "gpu")
bad("25.resources.6", f"{SLOT}.with", [core, core], [core, {"type": "node", "count": 1}])
bad("25.tasks.1", f"{TASK}.name", "t")
bad("25.tasks.1", "tasks", [])
bad("25.tasks.2", f"{TASK}.count", {}, {"per_slot": 1, "total": 1}, 1)
bad("25.tasks.3", f"{TASK}.count.per_slot", 2, "1")
bad("25.tasks.4", f"{TASK}.count.total", 1, "2", nth=NODES)
bad("25.attributes.1", "attributes.shell", {})
bad("25.attributes.1", "attributes.user", [])
bad("25.attributes.2", f"{SYSTEM}.duration", REMOVED, -1, "1h")
bad("25.attributes.5", "version", 3)
bad("14.vertex.4", f"{CORE}.with", [], {})
bad("14.vertex.5", f"{SLOT}.label", REMOVED, 1)
bad("14.vertex.7", f"{TASK}.command", [], "true", [1])
bad("14.vertex.8", f"{TASK}.slot", "other")
bad("14.attributes.6", f"{SYSTEM}.dependencies", {}, ["after:f1"], nth=DEPENDS)
bad("26.format.3", f"{SYSTEM}.dependencies", {"scheme": "after", "value": "f1"}, nth=DEPENDS)
bad("26.format.4", f"{SYSTEM}.dependencies", [], nth=DEPENDS)
bad("26.format.1", f"{SYSTEM}.dependencies.0.scheme", REMOVED, 1, nth=DEPENDS)
bad("26.format.1", f"{SYSTEM}.dependencies.0.value", REMOVED, 1, nth=DEPENDS)
bad("26.schemes.8", f"{SYSTEM}.dependencies.0.type", REMOVED, "both", nth=RESERVED)
bad("26.schemes.8", f"{SYSTEM}.dependencies.0.scope", REMOVED, "all", nth=RESERVED)
bad("14.attributes.7", f"{SYSTEM}.constraints", "hostlist:node0", nth=CONSTRAINED)
bad("14.attributes.8", f"{SYSTEM}.preemptible-after", -1, None, nth=CONSTRAINED)


@PLANTED.violation("14.submit.1", "jobspecs")
def a_malformed_jobspec_is_accepted(trace: Trace) -> Trace:
    refusal = find(trace, topics.INGEST_SUBMIT, "response", errnum=22)
    return edit(trace, refusal, errnum=0, payload={"id": 77})


@PLANTED.violation("14.submit.4", "execution_failures")
def a_job_that_cannot_start_keeps_its_resources(trace: Trace) -> Trace:
    free = find_event(trace, "free")
    return drop(trace[: free.n], free)
