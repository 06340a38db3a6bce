"""A whole instance whose scheduler or execution service a test plays itself.

The test loads a `FakeScheduler` or a `FakeExec` of `flux_trio.testing` in place of ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from flux_trio.broker import Handle, ModuleMain, ModuleSpec
from flux_trio.config import Config, ExecConfig
from flux_trio.formats import Jobspec, format_fluid, parse_eventlog
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.messages import Level, topics
from flux_trio.sim import make_machine
from flux_trio.testing.fakes import RETURN, FakeExec, FakeScheduler
from flux_trio.trace import Kind, Record
from tests.support.kvs_words import lookup_of, value_of
from tests.support.tracing import recorded

EPOCH = 1_000_000.0
OWNER = 1000
CONFIG = Config(exec=ExecConfig(simulate=True))
NCORES = 2  # of each of the two nodes
HOUR = 3600.0
WAIT_S_MAX = 3 * HOUR  # no job of these tests lasts longer
RECOVERY_S = 2.0  # whoever needs another service looks for it at least that often


async def settle() -> None:
    """Until nothing more happens without the clock."""
    await trio.testing.wait_all_tasks_blocked()


class Scene:
    """An instance, and somebody in it who submits jobs and looks around."""

    def __init__(self, instance: Instance, handle: Handle, records: list[Record]) -> None:
        self.instance = instance
        self.records = records  # what it has traced so far
        self.supervisor = instance.supervisor
        self.router = instance.router
        self.handle = handle
        self.call = handle.call

    async def submit(self, run_s: float = 1.0, ncores: int = 1, urgency: int = 16) -> int:
        """A job that pretends to run; its id."""
        attributes = {"system.exec.test.run_duration": run_s}
        jobspec = Jobspec.from_command(["true"], ntasks=ncores, attributes=attributes)
        payload = {"jobspec": jobspec.to_json(), "urgency": urgency}
        jobid = int((await self.call(topics.INGEST_SUBMIT, payload))["id"])
        await settle()
        return jobid

    async def cancel(self, jobid: int) -> None:
        """The owner cancels a job."""
        payload = {"id": jobid, "severity": 0, "type": "cancel"}
        await self.call(topics.JOB_RAISE, payload)
        await settle()

    async def urgency(self, jobid: int, urgency: int) -> None:
        """The owner changes a job's urgency."""
        await self.call(topics.JOB_URGENCY, {"id": jobid, "urgency": urgency})
        await settle()

    async def wait(self, jobid: int, name: str = "clean") -> None:
        """Until the job's eventlog has the event."""
        with trio.fail_after(WAIT_S_MAX):
            async with self.handle.stream(topics.INFO_WATCH, {"id": jobid}) as lines:
                async for line in lines:
                    if f'"name":"{name}"' in line["event"]:
                        return
        raise AssertionError(f"no {name}")

    async def eventlog(self, jobid: int) -> list[Any]:
        """The job's events."""
        key = f"{format_fluid(jobid, 'kvs')}.eventlog"
        return parse_eventlog(value_of(await self.call(topics.KVS_LOOKUP, lookup_of(key))))

    async def events(self, jobid: int) -> list[str]:
        """Their names."""
        return [event.name for event in await self.eventlog(jobid)]

    async def status(self) -> dict[str, Any]:
        """What queue-status says."""
        return await self.call(topics.JOB_QUEUE_STATUS)

    async def stats(self) -> dict[str, Any]:
        """What the job manager's stats-get says."""
        return await self.call(topics.JOB_STATS)

    def log(self, level: int = Level.ERR) -> list[str]:
        """What the log has that is as bad as `level`, or worse."""
        return [str(entry) for entry in self.instance.log if entry.level <= level]

    def drops(self, topic: str) -> list[str]:
        """Why messages of `topic` reached nobody, as the trace has it."""
        return [
            str((record.data or {})["reason"])
            for record in self.records
            if record.kind == Kind.DROP and getattr(record.message, "topic", "") == topic
        ]

    async def load(self, name: str, module: Any) -> None:
        """`module.run` from now on is the module `name`; it has done its first steps."""
        self.supervisor.specs[name] = ModuleSpec(name, module.run)
        await self.supervisor.load(name)
        await settle()

    async def make_mortal(self, name: str) -> Mortal:
        """Load the module `name` anew, as itself, so that `end` can end it."""
        mortal = Mortal(self.supervisor.specs[name].main)
        await self.supervisor.remove(name)
        await self.load(name, mortal)
        await trio.sleep(RECOVERY_S)
        await settle()
        return mortal

    async def end(self, name: str, how: str, module: Any) -> None:
        """The fake or mortal `module`, loaded as `name`, raises, returns or is removed."""
        if how == "removed":
            await self.supervisor.remove(name)
        elif isinstance(module, Mortal):
            module.end(how)
        else:
            module.handle.post(ZeroDivisionError("as asked") if how == "raises" else RETURN)
        await settle()
        assert name not in self.supervisor


@asynccontextmanager
async def scene(
    without: tuple[str, ...] = (), config: Config = CONFIG, **more: Any
) -> AsyncIterator[Scene]:
    """An instance with all modules but `without`; two nodes of two cores; memory for a store."""
    given = {
        "inventory": make_machine(nnodes=2, cores_per_node=NCORES),
        "userid": OWNER,
        "epoch": EPOCH,
        "modules": tuple(name for name in MODULES if name not in without),
        **more,
    }
    with recorded() as records:
        async with (
            open_instance(config, Surroundings(**given)) as instance,
            instance.connect() as handle,
        ):
            yield Scene(instance, handle, records)


class Mortal:
    """A module of ours, as it is, but that it raises, returns or hangs when the test says so."""

    def __init__(self, main: ModuleMain) -> None:
        self._main = main
        self._scope = trio.CancelScope()
        self._end = "returns"

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until `end`."""
        with self._scope:
            await self._main(handle, task_status=task_status)
        if self._end == "raises":
            raise ZeroDivisionError("as asked")
        if self._end == "hangs":
            await trio.sleep_forever()

    def end(self, how: str) -> None:
        """Raise, return, or hang: alive, with its names, and silent."""
        self._end = how
        self._scope.cancel()

    def again(self) -> Mortal:
        """The next one."""
        return Mortal(self._main)


ENDS = ("raises", "returns", "removed")

WITHOUT = ("sched", "job-exec")  # a test that plays both


async def both(s: Scene) -> tuple[FakeScheduler, FakeExec]:
    """Load fakes of both."""
    sched, execution = FakeScheduler(), FakeExec()
    await s.load("sched", sched)
    await s.load("job-exec", execution)
    return sched, execution


async def allocated(s: Scene, sched: FakeScheduler) -> int:
    """A job that has its resources; its id."""
    jobid = await s.submit()
    await sched.grant(jobid)
    return jobid
