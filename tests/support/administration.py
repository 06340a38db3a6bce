"""An administrator who does anything: an hour of virtual time that is drawn from one seed.

Queues come, go and change with each configuration that is loaded; they are stopped, disabled and
opened again; jobs are moved between them; nodes are drained, excluded and lost; services are
reloaded; other execution services and schedulers take over and leave, and some of them answer what
no RFC has. Those that lie have names of their own (`LIARS`), so that a test can tell what the judge
says of them from what it says of the others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import trio

from flux_trio.config import Config, read_config
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Errno, FluxError, topics
from tests.support.scenarios import Stage
from tests.support.strange_services import (
    EXEC_LIES,
    RUNS_S,
    SCHED_LIES,
    ExecutionService,
    acquiring,
    schedule_badly,
)

HOUR_S: Final = 3600.0
END_S: Final = 20_000.0
"""Longer than all jobs that are left at the end take."""
PAUSES_S: Final = (0.0, 0.0, 0.001, 0.3, 1.0, 5.0, 20.0, 60.0)
NNODES, CORES = 4, 2
PROPERTIES: Final = {"fast": Idset.parse("0-1"), "big": Idset.parse("1-3")}
QUEUES: Final = ("batch", "debug", "night")
VIRTUAL: Final = "small"
REQUIRES: Final = ("fast", "big", "^fast")
CONSTRAINTS: Final[tuple[dict[str, Any], ...]] = (
    {"properties": ["fast"]},
    {"properties": ["^big"]},
    {"ranks": ["0,2"]},
    {"not": [{"hostlist": ["node3"]}]},
)
MODULES: Final = ("sched", "sched", "job-exec", "job-manager", "resource", "job-ingest")

BAD_EXEC, BAD_SCHED = "bad-exec", "bad-sched"
HONEST, INTRUDER = "other-exec", "intruder"
LIARS: Final = (BAD_EXEC, BAD_SCHED)
"""What the names of those who lie begin with; the broker numbers a name that comes again."""


def machine() -> ResourceSet:
    """Return the machine of the hour: four nodes of two cores, with properties."""
    entries = [(rank, (1 << CORES) - 1, 0) for rank in range(NNODES)]
    return ResourceSet.build(entries, "node{}".format, properties=PROPERTIES)


def draw_tables(draw: random.Random) -> dict[str, Any]:
    """Draw a configuration as JSON, with any queues."""
    names = [name for name in QUEUES if draw.random() < 0.6]
    tables: dict[str, Any] = {"exec": {"simulate": True}}
    tables["queues"] = {name: _draw_queue(draw) for name in names}
    if names:
        system = {"queue": draw.choice(names)}
        tables["policy"] = {"jobspec": {"defaults": {"system": system}}}
    if names and draw.random() < 0.4:
        virtual = {key: value for key, value in _draw_queue(draw).items() if key != "requires"}
        tables["queues"][VIRTUAL] = {**virtual, "parent": draw.choice(names)}
    if draw.random() < 0.1:
        tables["job-manager"] = {"stop-queues-on-restart": True}
    return tables


def _draw_queue(draw: random.Random) -> dict[str, Any]:
    queue: dict[str, Any] = {}
    if draw.random() < 0.5:
        properties = [draw.choice(REQUIRES)]
        queue["requires"] = draw.choice(({"properties": properties}, properties))
    if draw.random() < 0.3:
        queue["started"] = False
    if draw.random() < 0.3:
        queue["policy"] = {"limits": {"job-size": {"max": {"nnodes": draw.choice((1, 3))}}}}
    return queue


def draw_config(draw: random.Random) -> Config:
    """Draw the configuration at the start, with a scheduler of any kind."""
    if draw.random() < 0.6:
        sched: dict[str, Any] = {"policy": draw.choice(("fifo", "easy", "conservative"))}
    else:
        sched = {"mode": "limited", "limit": draw.choice((1, 2, 4))}
    return read_config({**draw_tables(draw), "sched": sched})


class Administrator:
    """What happens in the hour, step by step."""

    lasts_s = HOUR_S
    pauses_s: tuple[float, ...] = PAUSES_S
    runs_s: tuple[float, ...] = RUNS_S
    durations_s: tuple[float, ...] = (0.0, 10.0, 100.0)

    def __init__(self, stage: Stage, draw: random.Random, edition: Edition = CLASSIC) -> None:
        self.stage = stage
        self.edition = edition
        self.random = draw
        self.jobs: list[int] = []
        self.queues: list[str] = []  # that may be there: those of the last configuration
        self.done: Counter[str] = Counter()
        self._others: AsyncExitStack | None = None  # the execution service that has taken over
        self._nursery: trio.Nursery
        self.steps: dict[Callable[[], Awaitable[None]], int] = {  # how often, in proportion
            self.submit: 20,
            self.submit_many: 8,
            self.cancel: 4,
            self.set_urgency: 4,
            self.move: 12,
            self.set_duration: 3,
            self.load_configuration: 8,
            self.stop_queues: 4,
            self.start_queues: 4,
            self.disable_queues: 2,
            self.enable_queues: 3,
            self.drain: 3,
            self.undrain: 3,
            self.lose_node: 2,
            self.exclude: 2,
            self.reload: 4,
            self.override_execution: 4,
            self.end_override: 4,
            self.lie_about_execution: 2,
            self.lie_about_resources: 2,
            self.acquire_again: 1,
        }

    async def work(self) -> None:
        """Do anything for an hour; then put everything right, and let all jobs end."""
        async with trio.open_nursery() as self._nursery:
            end = trio.current_time() + self.lasts_s
            while trio.current_time() < end:
                await trio.sleep(self.random.choice(self.pauses_s))
                (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
                try:
                    await step()
                except FluxError:
                    continue  # what a service refuses, or one that is not there
                self.done[step.__name__] += 1
            await self.put_everything_right()
            await self.stage.settle(END_S)
            self._nursery.cancel_scope.cancel()

    async def put_everything_right(self) -> None:
        """The services are as they were, and nothing keeps a job from running."""
        await self.end_override()
        await self.stage.call(topics.CONFIG_LOAD, config={"exec": {"simulate": True}})
        for name in ("sched", "job-exec"):
            await self.reload(name)
        await self.open_everything()

    async def open_everything(self) -> None:
        """No queue is stopped, no node is down, drained or excluded, and no job is held."""
        for jobid in self.jobs:
            try:
                await self.stage.set_urgency(jobid, 16)
            except FluxError:
                continue
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets="")
        status = await self.stage.call(topics.RESOURCE_STATUS)
        if status["offline"]:
            await self.stage.call(topics.RESOURCE_UP, targets=status["offline"])
        for targets in status["drained"]:
            await self.stage.call(topics.RESOURCE_UNDRAIN, targets=targets)
        await self.stage.call(topics.JOB_QUEUE_ENABLE, all=True, enable=True)
        await self.stage.call(topics.JOB_QUEUE_START, all=True, start=True)

    # --- users

    async def submit(self, urgency: int | None = None) -> None:
        """A job of any size, in any queue."""
        draw = self.random
        attributes: dict[str, Any] = {}
        if draw.random() < 0.3:
            attributes["system.constraints"] = draw.choice(CONSTRAINTS)
        if draw.random() < 0.5:
            attributes["system.queue"] = self.any_queue()
        shapes: tuple[dict[str, Any], ...] = (
            {"ntasks": draw.choice((1, 1, 2, 4))},
            {"nnodes": draw.choice((1, 2, 4))},
        )
        jobid = await self.stage.submit_test(
            {"run_duration": draw.choice(self.runs_s)},
            urgency=draw.choice((0, 5, 16, 16, 30)) if urgency is None else urgency,
            duration=draw.choice(self.durations_s),
            attributes=attributes,
            **draw.choice(shapes),
        )
        self.jobs.append(jobid)

    async def submit_many(self) -> None:
        for _ in range(6):
            await self.submit()

    async def cancel(self) -> None:
        await self.stage.cancel(self.any_job())

    async def set_urgency(self) -> None:
        await self.stage.set_urgency(self.any_job(), self.random.choice((0, 1, 16, 20, 31)))

    async def move(self) -> None:
        """A job that has no resources goes to another queue."""
        queue = self.any_queue()
        asked = {"max_entries": 100, "attrs": ["queue"], "constraint": {"states": ["pending"]}}
        pending = (await self.stage.call(topics.LIST_LIST, **asked))["jobs"]
        others = [each["id"] for each in pending if each.get("queue") != queue]
        if not others:
            raise FluxError(Errno.ENOENT, "no job waits in another queue")
        updates = {"attributes.system.queue": queue}
        jobid = self.random.choice(others)
        await self.stage.call(topics.JOB_UPDATE, id=jobid, updates=updates)

    async def set_duration(self) -> None:
        updates = {"attributes.system.duration": self.random.choice((5.0, 50.0))}
        await self.stage.call(topics.JOB_UPDATE, id=self.any_job(), updates=updates)

    def any_job(self) -> int:
        """One of the later jobs, of which many wait or run."""
        if not self.jobs:
            raise FluxError(Errno.ENOENT, "no job yet")
        return self.random.choice(self.jobs[-12:])

    def any_queue(self) -> str:
        """Mostly one that is there."""
        return self.random.choice([*self.queues * 3, *QUEUES, VIRTUAL])

    # --- queues

    async def load_configuration(self) -> None:
        tables = draw_tables(self.random)
        await self.stage.call(topics.CONFIG_LOAD, config=tables)
        self.queues = list(tables["queues"])

    async def stop_queues(self) -> None:
        await self._tell_queues(topics.JOB_QUEUE_START, start=False)

    async def start_queues(self) -> None:
        await self._tell_queues(topics.JOB_QUEUE_START, start=True)

    async def disable_queues(self) -> None:
        await self._tell_queues(topics.JOB_QUEUE_ENABLE, enable=False, reason="closed")

    async def enable_queues(self) -> None:
        await self._tell_queues(topics.JOB_QUEUE_ENABLE, enable=True)

    async def _tell_queues(self, topic: str, **what: Any) -> None:
        which: dict[str, Any] = {"all": True} if self.random.random() < 0.4 else {}
        named = which or {"name": self.random.choice((*QUEUES, VIRTUAL))}
        kept = {"nocheckpoint": True} if self.random.random() < 0.3 else {}
        await self.stage.call(topic, **what, **named, **kept)

    # --- nodes

    async def drain(self) -> None:
        await self.stage.call(topics.RESOURCE_DRAIN, targets=self._rank())

    async def undrain(self) -> None:
        await self.stage.call(topics.RESOURCE_UNDRAIN, targets=self._rank())

    async def lose_node(self) -> None:
        rank = self._rank()
        await self.stage.call(topics.RESOURCE_DOWN, targets=rank)
        await self.pause()
        await self.stage.call(topics.RESOURCE_UP, targets=rank)

    async def exclude(self) -> None:
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets=self._rank())
        await self.pause()
        await self.stage.call(topics.RESOURCE_EXCLUDE, targets="")

    def _rank(self) -> str:
        return str(self.random.randrange(NNODES))

    # --- services

    async def reload(self, name: str = "") -> None:
        name = name or self.random.choice(MODULES)
        supervisor = self.stage.instance.supervisor
        if name in supervisor:
            await supervisor.remove(name)
            await self.pause()
        await supervisor.load(name)

    async def pause(self) -> None:
        await trio.sleep(self.random.choice((0.0, 0.01, 1.0, 10.0)))

    async def override_execution(self) -> None:
        """Another execution service takes over, if it may; or job-exec is removed for it."""
        await self.end_override()
        if self.random.random() < 0.7 and topics.JOB_EXEC in self.stage.instance.supervisor:
            await self.stage.instance.supervisor.remove(topics.JOB_EXEC)
            await self.pause()
        await self._attach(HONEST)

    async def end_override(self) -> None:
        """It leaves, and jobs may still run; job-exec is there or comes back."""
        if self._others is not None:
            others, self._others = self._others, None
            await others.aclose()
        if topics.JOB_EXEC not in self.stage.instance.supervisor:
            await self.pause()
            await self.stage.instance.supervisor.load(topics.JOB_EXEC)
        elif self.random.random() < 0.5:
            await self.reload(topics.JOB_EXEC)

    async def lie_about_execution(self) -> None:
        """An execution service takes over, and answers the next start as no RFC has it."""
        await self.end_override()
        if topics.JOB_EXEC in self.stage.instance.supervisor:
            await self.stage.instance.supervisor.remove(topics.JOB_EXEC)
        await self._attach(BAD_EXEC)
        await self.submit()
        await trio.sleep(self.random.choice((0.5, 30.0)))
        if self.random.random() < 0.5:  # the next one comes before it has left
            await self.stage.instance.supervisor.load(topics.JOB_EXEC)
            await self.pause()
        await self.end_override()

    async def _attach(self, name: str) -> None:
        self._others = others = AsyncExitStack()
        handle = await others.enter_async_context(self.stage.instance.connect(name))
        lie = self.random.choice(EXEC_LIES) if name == BAD_EXEC else None
        service = ExecutionService(handle, name, self.random, lie, self.edition)
        scope = trio.CancelScope()
        others.callback(scope.cancel)
        self._nursery.start_soon(service.run, scope)
        try:
            await service.hello()
        except FluxError:
            self._others = None
            await others.aclose()
            raise

    async def lie_about_resources(self) -> None:
        """A scheduler takes over that answers the first request as no RFC has it."""
        await self.stage.instance.supervisor.remove("sched")
        await self.pause()
        async with self.stage.instance.connect(BAD_SCHED) as handle:
            with trio.move_on_after(self.random.choice((0.5, 10.0))):
                await schedule_badly(handle, self.random.choice(SCHED_LIES), self.edition)
        await self.pause()
        await self.stage.instance.supervisor.load("sched")

    async def acquire_again(self) -> None:
        """Somebody acquires what the scheduler has; he is refused, and leaves."""
        async with self.stage.instance.connect(INTRUDER) as handle:
            async with handle.stream(topics.RESOURCE_ACQUIRE, acquiring(self.edition)) as told:
                async for _ in told:
                    break
            await self.pause()
