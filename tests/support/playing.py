"""Jobs of an instance, as a test submits and watches them: with what they do, and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from flux_trio.broker import Handle
from flux_trio.formats import Event, Jobspec, parse_dependency_uri, parse_event, parse_eventlog
from flux_trio.instance import Instance
from flux_trio.messages import FluxError, topics
from flux_trio.testing import simulated_instance

GUEST = 2000
PATIENCE_S = 100_000.0  # of the virtual clock


class Jobs:
    """Jobs that one peer submits; `call` asks in its name."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.call = handle.call

    async def submit(
        self,
        *dependencies: str,
        seconds: float = 1.0,
        status: int = 0,
        urgency: int = 16,
        attributes: dict[str, Any] | None = None,
        **resources: Any,
    ) -> int:
        """The id of a job that pretends to run for `seconds` and end with wait status `status`."""
        test = {"run_duration": seconds, "wait_status": status}
        system = {"system.exec.test": test} | (attributes or {})
        if dependencies:
            system["system.dependencies"] = [parse_dependency_uri(each) for each in dependencies]
        jobspec = Jobspec.from_command(["true"], attributes=system, **resources).to_json()
        payload = {"jobspec": jobspec, "urgency": urgency}
        return int((await self._handle.call(topics.INGEST_SUBMIT, payload))["id"])

    async def refused(self, *dependencies: str, **options: Any) -> str:
        """Why a job like this is not taken."""
        try:
            jobid = await self.submit(*dependencies, **options)
        except FluxError as error:
            return error.text
        raise AssertionError(f"job {jobid} was taken")

    async def cancel(self, jobid: int) -> None:
        """End it."""
        payload = {"id": jobid, "severity": 0, "type": "cancel"}
        await self._handle.call(topics.JOB_RAISE, payload)

    async def update(self, jobid: int, **values: Any) -> str:
        """Change attributes of the system's; why not, or ""."""
        updates = {f"attributes.system.{key}": value for key, value in values.items()}
        try:
            await self._handle.call(topics.JOB_UPDATE, {"id": jobid, "updates": updates})
        except FluxError as error:
            return error.text
        return ""

    async def so_far(self, jobid: int) -> list[Event]:
        """The events that are stored."""
        payload = {"id": jobid, "keys": ["eventlog"]}
        return parse_eventlog((await self._handle.call(topics.INFO_LOOKUP, payload))["eventlog"])

    async def events(self, jobid: int, until: str = "clean") -> list[Event]:
        """Its events up to the first one called `until`."""
        found: list[Event] = []
        with trio.move_on_after(PATIENCE_S):
            async with self._handle.stream(topics.INFO_WATCH, {"id": jobid}) as responses:
                async for response in responses:
                    found.append(parse_event(response["event"]))
                    if found[-1].name == until:
                        return found
        raise AssertionError(f"job {jobid} had no event {until}: {names(found)}")


def names(events: list[Event]) -> list[str]:
    """What happened, in order."""
    return [event.name for event in events]


def when(events: list[Event], name: str) -> float:
    """The time of the first event of that name."""
    return next(event.timestamp for event in events if event.name == name)


def context(events: list[Event], name: str) -> dict[str, Any]:
    """The context of the first event of that name."""
    return next(event.context or {} for event in events if event.name == name)


class OwnJobs(Jobs):
    """Jobs of the owner of an instance."""

    def __init__(self, instance: Instance, handle: Handle) -> None:
        super().__init__(handle)
        self.instance = instance


@asynccontextmanager
async def simulated_jobs(**given: Any) -> AsyncIterator[OwnJobs]:
    """Jobs of the owner of a simulated instance; `given` is for `simulated_instance`."""
    async with simulated_instance(**given) as instance, instance.connect() as client:
        yield OwnJobs(instance, client)


@asynccontextmanager
async def guest_of(instance: Instance, userid: int = GUEST) -> AsyncIterator[Jobs]:
    """Jobs of somebody who does not own the instance."""
    async with instance.connect("guest", userid=userid) as handle:
        yield Jobs(handle)
