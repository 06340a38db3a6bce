"""Scenarios: short stories of a real instance in simulated time, and the traces they leave.

A scenario is an async function of a `Stage`, registered with `scenario(...)`; those of a subject
are in a file of tests/judge/scenarios. Its trace goes from the start of the instance to the
end of the function, when everything has come to rest; the taking down is not in it. A trace that
no instance of ours can be made to leave is made by hand and registered with `made_scenario`. Where
a clause says how to meet a mistake of others, a scenario makes it and is marked `breaking(...)`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config, ExecConfig
from flux_trio.formats import Idset, Jobspec, ResourceSet
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.messages import topics
from flux_trio.sim import make_machine, run_world
from flux_trio.testing import EPOCH, USERID
from flux_trio.trace import Record

SEED = 1
SETTLE_S = 1.0
"""Longer than anything of ours waits before it acts, shorter than a job of a scenario."""
MOMENT_S = 0.001


class Stage:
    """An instance, and a client of it."""

    def __init__(self, instance: Instance, client: Handle, records: list[Record]) -> None:
        self.instance = instance
        self.client = client
        self.records = records

    async def call(self, topic: str, **payload: Any) -> dict[str, Any]:
        """The client asks and waits for the answer. Raises FluxError."""
        return await self.client.call(topic, payload or None)

    async def submit(
        self, run_s: float = 10.0, *, urgency: int = 16, duration: float = 0.0, **resources: Any
    ) -> int:
        """Submit a job that pretends to run for `run_s`; its id. `resources` as in from_command."""
        test = {"run_duration": run_s}
        return await self.submit_test(test, urgency=urgency, duration=duration, **resources)

    async def submit_test(
        self,
        test: Mapping[str, Any],
        *,
        urgency: int = 16,
        duration: float = 0.0,
        user: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        **resources: Any,
    ) -> int:
        """Submit a job with this `attributes.system.exec.test` and `attributes.user`; its id.

        `attributes` are more of them, as in from_command.
        """
        attributes = {
            "system.exec.test": dict(test),
            "system.duration": duration,
            **(attributes or {}),
        }
        attributes |= {f"user.{key}": value for key, value in (user or {}).items()}
        jobspec = Jobspec.from_command(["true"], attributes=attributes, **resources)
        return await self.submit_jobspec(jobspec.to_json(), urgency)

    async def submit_jobspec(self, jobspec: Mapping[str, Any], urgency: int = 16) -> int:
        """Submit a jobspec as it is; the job's id. Raises FluxError."""
        answer = await self.call(topics.INGEST_SUBMIT, jobspec=jobspec, urgency=urgency)
        return int(answer["id"])

    async def cancel(self, jobid: int) -> None:
        """The client cancels a job."""
        await self.call(topics.JOB_RAISE, id=jobid, type="cancel", severity=0)

    async def set_urgency(self, jobid: int, urgency: int) -> None:
        """The client changes a job's urgency."""
        await self.call(topics.JOB_URGENCY, id=jobid, urgency=urgency)

    async def load(self, name: str) -> None:
        """Load a module and let it find its place."""
        await self.instance.supervisor.load(name)
        await self.settle()

    async def remove(self, name: str) -> None:
        """Remove a module and let the others notice."""
        await self.instance.supervisor.remove(name)
        await self.settle()

    async def reload(self, name: str) -> None:
        """Remove and load."""
        await self.remove(name)
        await self.load(name)

    async def settle(self, seconds: float = SETTLE_S) -> None:
        """Let everything happen that is about to."""
        await trio.sleep(seconds)
        await trio.sleep(MOMENT_S)  # a world's clock goes on when nothing else does


Play = Callable[[Stage], Awaitable[None]]
T = TypeVar("T", bound=Callable[..., Any])

_made: dict[str, Callable[[], list[Record]]] = {}
_breaks: dict[str, frozenset[str]] = {}


def scenario(
    *,
    machine: ResourceSet | None = None,
    config: Config | None = None,
    exclude: str = "",
    plugins: Iterable[Plugin] = (),
    modules: tuple[str, ...] = MODULES,
) -> Callable[[Play], Play]:
    """Register the decorated function; `machine` is two nodes of two cores unless given."""

    def register(play: Play) -> Play:
        given = Surroundings(
            inventory=machine or make_machine(nnodes=2, cores_per_node=2),
            userid=USERID,
            epoch=EPOCH,
            exclude=Idset.parse(exclude),
            plugins=plugins,
            modules=modules,
        )
        settings = config or Config(exec=ExecConfig(simulate=True))
        _add(play.__name__, functools.partial(_perform, play, settings, given))
        return play

    return register


def made_scenario(make: Callable[[], list[Record]]) -> Callable[[], list[Record]]:
    """Register a function that makes a clean trace by hand."""
    _add(make.__name__, make)
    return make


def scenario_names() -> list[str]:
    """All scenarios there are."""
    _load()
    return sorted(_made)


def breaking(*clauses: str) -> Callable[[T], T]:
    """Mark the decorated scenario: it breaks these clauses on purpose."""

    def mark(scenario: T) -> T:
        _breaks[scenario.__name__] = frozenset(clauses)
        return scenario

    return mark


def breaks_of(name: str) -> frozenset[str]:
    """The clauses that a scenario breaks on purpose."""
    return _breaks.get(name, frozenset())


@functools.cache
def _trace(name: str) -> tuple[Record, ...]:
    _load()
    return tuple(_made[name]())


def trace_of(name: str) -> list[Record]:
    """The clean trace of a scenario; it is played once."""
    return list(_trace(name))


def _add(name: str, make: Callable[[], list[Record]]) -> None:
    assert name not in _made, f"two scenarios are named {name}"
    _made[name] = make


@functools.cache
def _load() -> None:
    package = importlib.import_module("tests.judge.scenarios")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def play_on(
    play: Play, config: Config, seed: int, machine: ResourceSet, plugins: Iterable[Plugin] = ()
) -> list[Record]:
    """The trace of a story that is not among the scenarios."""
    given = Surroundings(inventory=machine, userid=USERID, epoch=EPOCH, plugins=plugins)
    return run_world(functools.partial(_on_stage, play, config, given), seed)


def _perform(play: Play, config: Config, given: Surroundings) -> list[Record]:
    return run_world(functools.partial(_on_stage, play, config, given), SEED)


async def _on_stage(play: Play, config: Config, given: Surroundings) -> list[Record]:
    records: list[Record] = []
    given = Surroundings(**{**vars(given), "sinks": (records.append,)})
    async with open_instance(config, given) as instance, instance.connect("client") as client:
        stage = Stage(instance, client, records)
        await stage.settle()
        await play(stage)
        await stage.settle()
        return list(records)
