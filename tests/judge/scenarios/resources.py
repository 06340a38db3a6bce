"""Resources that come and go: drained, excluded, expiring, unusual; and schedulers that fail."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.formats import Idset, Jobspec, ResourceSet
from flux_trio.messages import Errno, Request, topics
from flux_trio.messages.types import STREAMING
from flux_trio.testing import EPOCH
from flux_trio.trace import Record
from tests.support.judged import (
    RECV,
    Trace,
    edit,
    edit_all,
    edit_payload,
    find,
    find_all,
    insert,
    made,
)
from tests.support.scenarios import Stage, breaking, made_scenario, scenario, trace_of

DURATION = "attributes.system.duration"
UNUSUAL = ResourceSet.build(
    [(0, 0b11, 0b1), (1, 0b1, 0), (2, 0b11, 0b1)],
    "host{}".format,
    properties={
        "amd": Idset.parse("0,2"),
        "amd@gpu": Idset.parse("2"),
        "großer": Idset.parse("0-1"),
    },
    scheduling={"writer": "fluxion:1", "racks": {"a": ["host0", "host1"], "b": ["host2"]}},
)
EXPIRING = ResourceSet.build(
    [(0, 0b11, 0), (1, 0b11, 0)], "node{}".format, expiration=EPOCH + 100.0
)


@scenario()
async def drains(stage: Stage) -> None:
    """Both nodes are drained one after the other, under a job and before one, and come back."""
    await stage.submit(20.0, ntasks=2)
    await stage.settle()
    await stage.call(topics.RESOURCE_DRAIN, targets="0", reason="noise")
    for _ in range(2):
        await stage.submit(2.0)
        await stage.settle(5.0)
    await stage.submit(60.0, ntasks=2)
    await stage.submit(5.0)
    await stage.settle(30.0)
    await stage.call(topics.RESOURCE_DRAIN, targets="1")
    await stage.submit(5.0)
    await stage.settle()
    await stage.call(topics.RESOURCE_UNDRAIN, targets="0")
    await stage.settle(60.0)
    await stage.call(topics.RESOURCE_UNDRAIN, targets="1")


@scenario()
async def failing_nodes(stage: Stage) -> None:
    """Both nodes go down one after the other, under jobs and before one, and come back."""
    await stage.submit(60.0, ntasks=4, nnodes=2)
    await stage.settle()
    await stage.call(topics.RESOURCE_DOWN, targets="1", reason="psu")
    await stage.submit(20.0)
    await stage.submit(2.0, ntasks=2, nnodes=2)
    await stage.settle(5.0)
    await stage.reload("job-exec")
    await stage.call(topics.RESOURCE_DOWN, targets="0")
    await stage.submit(2.0)
    await stage.settle(5.0)
    await stage.reload("sched")
    await stage.call(topics.RESOURCE_UP, targets="0")
    await stage.settle(10.0)
    await stage.call(topics.RESOURCE_UP, targets="1")


@scenario(exclude="1")
async def excludes(stage: Stage) -> None:
    """A node joins, is taken away under a job, and again while nobody uses it."""
    await stage.call(topics.RESOURCE_STATUS)
    await stage.submit(5.0)
    await stage.settle()
    await stage.reload("sched")
    await stage.call(topics.RESOURCE_EXCLUDE, targets="")
    await stage.settle(10.0)
    await stage.submit(60.0, ntasks=2, nnodes=2)
    await stage.submit(60.0, ntasks=4)
    await stage.settle()
    await stage.call(topics.RESOURCE_EXCLUDE, targets="0")
    await stage.settle(10.0)
    await stage.submit(5.0, ntasks=2)
    await stage.settle(10.0)
    await stage.call(topics.RESOURCE_EXCLUDE, targets="")
    await stage.settle()
    await stage.call(topics.RESOURCE_EXCLUDE, targets="1")
    await stage.settle()
    await stage.submit(5.0, ntasks=2)
    await stage.settle(10.0)


@scenario(exclude="1")
@breaking("unexplained.error-response")
async def two_groups(stage: Stage) -> None:
    """A client acquires the group that the scheduler has not, and one that it has."""
    async with stage.instance.connect("other") as other:
        group = {"group": "default"}
        other.send(Request(topics.RESOURCE_ACQUIRE, group, 1, STREAMING))
        other.send(Request(topics.RESOURCE_ACQUIRE, {"group": "exclude"}, 2, STREAMING))
        await stage.settle()
        await other.receive()
    await stage.settle()


@scenario()
@breaking("unexplained.error-response")
async def nothing_to_acquire(stage: Stage) -> None:
    """A scheduler that is given an error leaves."""
    await stage.call(topics.RESOURCE_EXCLUDE, targets="0-1")
    await stage.settle()
    await stage.reload("sched")
    await stage.call(topics.RESOURCE_EXCLUDE, targets="")
    await stage.settle()
    await stage.load("sched")
    await stage.submit(5.0)
    await stage.settle(10.0)


@scenario()
async def canceled_without_scheduler(stage: Stage) -> None:
    """A running job is canceled while there is no scheduler."""
    jobid = await stage.submit(60.0)
    await stage.settle()
    await stage.remove("sched")
    await stage.cancel(jobid)
    await stage.settle(10.0)
    await stage.load("sched")


@scenario(machine=UNUSUAL)
async def unusual_resources(stage: Stage) -> None:
    """Unlike nodes, gpus, properties with a suffix and without, and a scheduling key."""
    await stage.call(topics.RESOURCE_STATUS)
    await stage.submit(5.0, gpus_per_task=1)
    await _submit(stage, 5.0, **{"system.constraints": {"properties": ["amd@gpu"]}})
    await _submit(stage, 5.0, **{"system.constraints": {"properties": ["großer"]}})
    await stage.settle(20.0)
    await stage.call(topics.RESOURCE_STATUS)
    await stage.reload("sched")  # the second to acquire them
    await stage.settle(1.0)


@scenario(machine=EXPIRING)
async def expiring(stage: Stage) -> None:
    """The resources are there for a time, and jobs have times that are updated."""
    late = await stage.submit(40.0, duration=10.0)
    soon = await stage.submit(40.0, duration=60.0)
    await stage.submit(90.0)
    await stage.settle()
    await stage.call(topics.JOB_UPDATE, id=late, updates={DURATION: 30.0})
    await stage.call(topics.JOB_UPDATE, id=soon, updates={DURATION: 20.0})
    await stage.settle(60.0)


async def _submit(stage: Stage, run_s: float, **attributes: Any) -> None:
    attributes = {"system.exec.test": {"run_duration": run_s}, **attributes}
    jobspec = Jobspec.from_command(["true"], attributes=attributes)
    await stage.call(topics.INGEST_SUBMIT, jobspec=jobspec.to_json(), urgency=16)


# --- made from others: what no service of ours says


@made_scenario
def times_left_out() -> list[Record]:
    """R without starttime and expiration, in R_lite out of order."""
    trace = trace_of("everyday")
    r = {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "1", "children": {"core": "0-1"}},
                {"rank": "0", "children": {"core": "0-1"}},
            ],
            "nodelist": ["node[0-1]"],
        },
    }
    trace = edit_all(trace, find_all(trace, topics.RESOURCE_ACQUIRE, type="grow"), resources=r)
    commits = [
        each
        for each in find_all(trace, topics.KVS_COMMIT, "request")
        if any(op[0] == "put" and op[1].endswith(".R") for op in each.message.payload["ops"])
    ]
    for commit in commits:
        ops = [_untimed(op) for op in commit.message.payload["ops"]]
        trace = edit_payload(trace, trace[commit.n - 1], ops=ops)
    return trace


def _untimed(op: list[str]) -> list[str]:
    if not op[1].endswith(".R") or op[0] != "put":
        return op
    r = msgspec.json.decode(op[2])
    for key in ("starttime", "expiration"):
        r["execution"].pop(key, None)
    return [op[0], op[1], msgspec.json.encode(r).decode()]


@made_scenario
@breaking("28.release.4")
def release_refused() -> list[Record]:
    """A scheduler whose release is refused, though it is in order, leaves."""
    trace = trace_of("excludes")
    answer = find(trace, topics.RESOURCE_RELEASE, "response")
    taken_up = next(r for r in trace if r.kind == RECV and r.ref == answer.n)
    trace = [r for r in trace if r.n <= taken_up.n]
    trace = edit(trace, answer, errnum=int(Errno.EPROTO), payload="not shrunk")
    return insert(trace, trace[-1], *_farewell("resource"))


def _farewell(service: str) -> Trace:
    return made("sched", service, Request(f"{service}.disconnect", flags=4))
