"""A whole instance whose scheduler or execution service a test plays itself.

`FakeScheduler` and `FakeExec` are modules like any other: they speak through a Handle and are
loaded by the supervisor in place of ours. They do nothing of themselves but what the RFCs make them
do first; the rest is what the test tells them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import trio
import trio.testing

from flux_trio.broker import Handle, ModuleMain, ModuleSpec
from flux_trio.config import Config, ExecConfig
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import Jobspec, ResourceSet, format_fluid, parse_eventlog
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.messages import Level, Message, Request, Response, topics
from flux_trio.sim import make_machine
from flux_trio.trace import Kind, Record
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
        return parse_eventlog((await self.call(topics.KVS_LOOKUP, {"key": key}))["value"])

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


RETURN = object()  # posted to a fake: return early
ENDS = ("raises", "returns", "removed")


class _Fake:
    """Takes what comes; ends as it is told."""

    def __init__(self) -> None:
        self.handle: Handle
        self.came: list[Message] = []  # everything, in order

    async def _receive(self) -> bool:
        """Whether to go on."""
        for item in await self.handle.receive():
            if item is RETURN:
                return False
            if isinstance(item, Exception):
                raise item
            self.came.append(item)
            self.take(item)
        return True

    def take(self, message: Message) -> None:
        """Answer at once what the test does not answer itself."""

    def asked(self, topic: str) -> list[Any]:
        """The ids, or pairs, of the requests of a topic so far."""
        payloads: list[Any] = [
            m.payload for m in self.came if isinstance(m, Request) and m.topic == topic
        ]
        return [payload.get("id", payload.get("jobs")) for payload in payloads]


class FakeScheduler(_Fake):
    """Says hello and ready, `limit` None being unlimited; `frees` says whether it answers frees."""

    def __init__(self, limit: int | None = None, *, frees: bool = True) -> None:
        super().__init__()
        self.mode = {"mode": "unlimited"} if limit is None else {"mode": "limited", "limit": limit}
        self.frees = frees
        self.told: list[int] = []  # by hello
        self._places: dict[int, int] = {}  # job id → which core of the machine, when none was asked

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """RFC 27; RFC 28 as far as the first answer."""
        self.handle = handle
        handle.register(topics.SCHED)
        task_status.started()
        async with handle.stream(topics.RESOURCE_ACQUIRE, {"group": "default"}) as resources:
            await anext(resources)
            async with handle.stream(topics.SCHED_HELLO) as jobs:
                self.told = [job["id"] async for job in jobs]
            await handle.call(topics.SCHED_READY, self.mode)
            while await self._receive():
                pass

    def take(self, message: Message) -> None:
        """Answer a free."""
        if isinstance(message, Request) and message.topic == topics.SCHED_FREE:
            assert isinstance(message.payload, dict)
            jobid = message.payload["id"]
            self._places.pop(jobid, None)
            if self.frees:
                self.say(topics.SCHED_FREE, {"id": jobid})

    def say(self, topic: str, payload: Any, errnum: int = 0) -> None:
        """Answer the job manager."""
        self.handle.send(Response(topic, payload, errnum, routes=(topics.JOB_MANAGER,)))

    def answer(self, jobid: int, kind: AllocType, **more: Any) -> None:
        """Answer sched.alloc."""
        self.say(topics.SCHED_ALLOC, {"id": jobid, "type": int(kind), **more})

    async def write(self, jobid: int, cores: dict[int, int] | None = None) -> None:
        """Write R of so many cores on each rank, from core 0 on, or else of one that is free."""
        if cores is None:
            free = (place for place in count() if place not in self._places.values())
            self._places[jobid] = place = next(free)
            bits = {place // NCORES: 1 << place % NCORES}
        else:
            bits = {rank: (1 << n) - 1 for rank, n in cores.items()}
        text = r_of(bits, self.handle.now())
        key = f"{format_fluid(jobid, 'kvs')}.R"
        await self.handle.call(topics.KVS_COMMIT, {"ops": [["put", key, text]]})

    async def grant(self, jobid: int, cores: dict[int, int] | None = None) -> None:
        """Write R, then SUCCESS."""
        await self.write(jobid, cores)
        self.answer(jobid, AllocType.SUCCESS)
        await settle()


def r_of(cores: dict[int, int], now: float) -> str:
    """R of these cores, as bit sets, of each rank, granted at `now`."""
    entries = [(rank, bits, 0) for rank, bits in cores.items()]
    r = ResourceSet.build(entries, lambda rank: f"node{rank}", starttime=now)
    return msgspec.json.encode(r.to_json()).decode()


class FakeExec(_Fake):
    """Says hello, and takes starts; answers none by itself."""

    def __init__(self) -> None:
        super().__init__()

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """RFC 32."""
        self.handle = handle
        handle.register(topics.JOB_EXEC)
        task_status.started()
        await handle.call(topics.EXEC_HELLO, {"service": topics.JOB_EXEC})
        while await self._receive():
            pass

    def starts(self) -> list[tuple[int, bool]]:
        """Of each start request so far: id, reattach."""
        payloads: list[Any] = [
            m.payload for m in self.came if isinstance(m, Request) and m.topic == "job-exec.start"
        ]
        return [(payload["id"], payload["reattach"]) for payload in payloads]

    def say(self, payload: Any, errnum: int = 0) -> None:
        """Answer the job manager."""
        self.handle.send(Response("job-exec.start", payload, errnum, routes=(topics.JOB_MANAGER,)))

    def tell(self, jobid: int, *kinds: str) -> None:
        """Answer a start: start, finish, release (final), exception."""
        data: dict[str, dict[str, Any]] = {
            "start": {},
            "finish": {"status": 0},
            "release": {"ranks": "0", "final": True},
            "exception": {"severity": 0, "type": "exec", "note": "as asked"},
        }
        for kind in kinds:
            self.say({"id": jobid, "type": kind, "data": data[kind]})
