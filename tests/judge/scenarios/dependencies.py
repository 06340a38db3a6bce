"""Dependencies of each scheme, by hand and by the plugins that come with the instance."""

from __future__ import annotations

import trio

from flux_trio.formats import format_fluid
from flux_trio.trace import Record
from tests.support.judged import Trace, hand_made, made_event
from tests.support.scenarios import Stage, made_scenario, scenario

WELL, BADLY, NEVER, SUITED = 1, 2, 3, 4  # jobs: how they end; the last depends on the others
UNSUITED = 5
EPOCH = 1e9


def submitted(job: int) -> list[Record]:
    """A job comes to DEPEND."""
    submit = made_event(job, "submit", userid=1000, urgency=16, flags=0, version=1)
    return [submit, made_event(job, "validate")]


def ran(job: int, status: int) -> list[Record]:
    """A job comes through its life from DEPEND on."""
    return [
        made_event(job, "depend"),
        made_event(job, "priority", priority=16),
        made_event(job, "alloc"),
        made_event(job, "start"),
        made_event(job, "finish", status=status),
        made_event(job, "release", ranks="0", final=True),
        made_event(job, "free"),
        made_event(job, "clean"),
    ]


def failed(job: int, kind: str) -> list[Record]:
    """A job ends by an exception before it was anything."""
    raised = made_event(job, "exception", type=kind, severity=0, note="")
    return [raised, made_event(job, "clean")]


def added(job: int, description: str) -> Record:
    return made_event(job, "dependency-add", description=description)


def removed(job: int, description: str) -> Record:
    return made_event(job, "dependency-remove", description=description)


@made_scenario
def dependencies() -> Trace:
    """Jobs that end well, badly and before they start; two that wait for them."""
    met = [f"after=f{WELL + 1}", f"afterany=f{BADLY + 1}", f"afterok=f{WELL + 1}"]
    met += [f"afternotok=f{BADLY + 1}", f"begin-time={EPOCH + 20}"]
    return hand_made(
        *(record for job in (WELL, BADLY, NEVER, SUITED, UNSUITED) for record in submitted(job)),
        *(added(SUITED, each) for each in met),
        added(UNSUITED, f"after=f{NEVER + 1}"),
        *ran(WELL, 0),
        *ran(BADLY, 256),
        *failed(NEVER, "cancel"),
        *(removed(SUITED, each) for each in met),
        *failed(UNSUITED, "dependency"),
        *ran(SUITED, 0),
        epoch=EPOCH,
    )


@made_scenario
def task_exit() -> Trace:
    """A task ends badly, and the job with it."""
    job = 1
    how = {"type": "exec", "severity": 0, "note": "task 0: exit 1", "wait_status": 256}
    return hand_made(
        *submitted(job), *ran(job, 256)[:4], made_event(job, "exception", **how), *ran(job, 256)[4:]
    )


@scenario()
async def jobs_wait_for_others(stage: Stage) -> None:
    """For the start, the end, the success and the failure of a job, for nothing, and for a time."""

    async def depend(scheme: str, value: int | str, run_s: float = 2.0) -> int:
        other = format_fluid(value, "f58plain") if isinstance(value, int) else value
        dependency = {"scheme": scheme, "value": other}
        attributes = {"system.dependencies": [dependency]}
        return await stage.submit_test({"run_duration": run_s}, attributes=attributes)

    good = await stage.submit(10.0)
    bad = await stage.submit_test({"run_duration": 10.0, "wait_status": 256})
    canceled = await stage.submit(10.0, ntasks=4)
    for other in (good, bad):
        for scheme in ("after", "afterany", "afterok", "afternotok"):
            await depend(scheme, other)
    for scheme in ("after", "afterany", "afternotok"):
        await depend(scheme, canceled)
    await depend("begin-time", str(trio.current_time() + 30.0))
    await stage.settle()
    await stage.cancel(canceled)
    await stage.settle(60.0)
    await depend("afterany", good)
    await stage.settle(10.0)
