"""Recorded scenarios of flux-core, and playing their steps on an instance of ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.formats import format_fluid
from flux_trio.messages import topics

DATA = Path(__file__).parent.parent / "data" / "recordings"
SIGNALS = {"SIGTERM": 15}


class RecordedJob(msgspec.Struct):
    """One job of a scenario: what was submitted, and the eventlog it got."""

    label: str
    urgency: int
    jobspec: dict[str, Any]
    eventlog: list[dict[str, Any]]


class Recording(msgspec.Struct):
    """One scenario."""

    name: str
    resources: dict[str, Any]
    steps: list[str]
    jobs: list[RecordedJob]


def load_recording(name: str) -> Recording:
    """The scenario whose file name starts with `name`."""
    (path,) = DATA.glob(f"{name}-*.json")
    return msgspec.json.decode(path.read_bytes(), type=Recording)


class Player:
    """Plays a scenario's steps; `adapt` may change a jobspec before it is submitted."""

    def __init__(
        self,
        client: Handle,
        recording: Recording,
        adapt: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._client = client
        self._recording = recording
        self._adapt = adapt
        self._to_submit = list(recording.jobs)
        self.ids: dict[str, int] = {}  # label → job id

    async def play(self) -> None:
        """Every step in order. Raises for a step that this does not know."""
        for step in self._recording.steps:
            await self._play_step(shlex.split(step))

    async def eventlog(self, label: str) -> list[dict[str, Any]]:
        """The eventlog of a job, as the kvs has it."""
        key = f"{format_fluid(self.ids[label], 'kvs')}.eventlog"
        text = (await self._client.call(topics.KVS_LOOKUP, {"key": key}))["value"]
        return [msgspec.json.decode(line) for line in text.splitlines()]

    async def _play_step(self, words: list[str]) -> None:
        match words:
            case ["flux", "submit", *_]:
                await self._submit()
            case ["flux", "job", "wait-event", *_, job, event]:
                # the shell's own eventlog tells what `start` tells here
                await self._wait(job, "start" if event == "shell.start" else event)
            case ["flux", "job", "kill", signal, job]:
                signum = SIGNALS[signal.removeprefix("--signal=")]
                await self._ask(topics.EXEC_KILL, id=self._id(job), signum=signum)
            case ["flux", "cancel", *options, job]:
                note = "".join(options).removeprefix("--message=")
                await self._ask(
                    topics.JOB_RAISE, id=self._id(job), severity=0, type="cancel", note=note
                )
            case ["flux", "queue", "stop" | "start" as verb]:
                await self._ask(topics.JOB_QUEUE_START, start=verb == "start")
            case ["sleep", seconds]:
                await trio.sleep(float(seconds))
            case _:
                raise AssertionError(f"{self._recording.name}: unknown step {words}")

    async def _submit(self) -> None:
        job = self._to_submit.pop(0)
        jobspec = self._adapt(job.jobspec)
        answer = await self._ask(topics.INGEST_SUBMIT, jobspec=jobspec, urgency=job.urgency)
        self.ids[job.label] = answer["id"]

    async def _wait(self, job: str, name: str) -> None:
        payload = {"id": self._id(job), "path": "eventlog"}
        async with self._client.stream(topics.INFO_WATCH, payload) as responses:
            async for response in responses:
                if msgspec.json.decode(response["event"])["name"] == name:
                    return
        raise AssertionError(f"{self._recording.name}: no event {name} in the eventlog of {job}")

    async def _ask(self, topic: str, **payload: Any) -> dict[str, Any]:
        return await self._client.call(topic, payload)

    def _id(self, label: str) -> int:
        return self.ids[re.sub(r"[{}]", "", label)]
