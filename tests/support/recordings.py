"""Recorded scenarios of flux-core, and playing their steps on an instance of ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.cli import main
from flux_trio.formats import format_fluid, parse_duration
from flux_trio.instance import Instance
from flux_trio.messages import FluxError, topics
from tests.support.kvs_words import lookup_of, value_of

DATA = Path(__file__).parent.parent / "data" / "recordings"
SIGNALS = {"SIGTERM": 15}
MODULES = {"sched-simple": "sched", "sched-fifo": "sched"}  # flux-core's name → ours
URGENCIES = {"default": 16, "expedite": 31}

# Steps that only look, or that steer what an instance of ours has no part of.
LOOKS = (("flux", "queue", "status"), ("flux", "jobs"), ("flux", "module", "list"))


class RecordedJob(msgspec.Struct):
    """One job of a scenario: what was submitted, and the eventlog it got."""

    label: str
    id: int
    urgency: int
    jobspec: dict[str, Any]
    eventlog: list[dict[str, Any]]


class StepInfo(msgspec.Struct):
    """What became of a step: the label of the job it submitted, its exit code, what it printed."""

    label: str = ""
    rc: int = 0
    stdout: str = ""
    stderr: str = ""


class Recording(msgspec.Struct):
    """One scenario; not every one says what became of its steps."""

    name: str
    resources: dict[str, Any]
    steps: list[str]
    jobs: list[RecordedJob]
    step_info: list[StepInfo] = []
    config: dict[str, Any] = {}


def load_recording(name: str) -> Recording:
    """The scenario whose file name starts with `name`."""
    (path,) = DATA.glob(f"{name}-*.json")
    return msgspec.json.decode(path.read_bytes(), type=Recording)


Special = Callable[["Player"], Awaitable[None]]


class Player:
    """Plays a scenario's steps on `instance`.

    `adapt` may change a jobspec before it is submitted; `special` plays the steps that no command
    of a client can, by their text. What is refused is what `tests/recordings/test_steps.py` shows.
    """

    def __init__(
        self,
        recording: Recording,
        adapt: Callable[[dict[str, Any]], dict[str, Any]],
        special: Mapping[str, Special] | None = None,
    ) -> None:
        self.recording = recording
        self.instance: Instance
        self.client: Handle
        self.ids: dict[str, int] = {}  # label → job id
        self._adapt = adapt
        self._special = special or {}
        self._recorded = list(recording.jobs)
        self._to_submit = list(recording.jobs)

    async def play(self, instance: Instance, client: Handle, until: str = "") -> None:
        """The steps that are left, in order, up to the one that reads `until`.

        Raises AssertionError for a step that this does not know.
        """
        self.instance, self.client = instance, client
        while self.recording.steps:
            step = self.recording.steps.pop(0)
            info = self.recording.step_info.pop(0) if self.recording.step_info else StepInfo()
            if step == until:
                return
            if step in self._special:
                await self._special[step](self)
            else:
                await self._play_step(shlex.split(step), info)

    async def eventlog(self, label: str) -> list[dict[str, Any]]:
        """The eventlog of a job, as the kvs has it."""
        key = f"{format_fluid(self.ids[label], 'kvs')}.eventlog"
        text = value_of(await self.client.call(topics.KVS_LOOKUP, lookup_of(key)))
        return [msgspec.json.decode(line) for line in text.splitlines()]

    async def _play_step(self, words: list[str], info: StepInfo) -> None:
        match words:
            case ["flux", "submit", *options] if info.rc:
                await self._submit_in_vain(options)
            case ["flux", "submit", *options]:
                for _ in info.label.split(","):
                    await self._submit(options)
            case ["flux", "job", "wait-event", *_, job, event]:
                await self._wait(job, event)
            case ["flux", "job", "kill", signal, job]:
                signum = SIGNALS[signal.removeprefix("--signal=")]
                await self._ask(topics.EXEC_KILL, id=self._id(job), signum=signum)
            case ["flux", "cancel", *words]:
                note = "".join(word for word in words if word.startswith("-"))
                note = note.removeprefix("--message=")
                for job in (word for word in words if not word.startswith("-")):
                    await self._ask(
                        topics.JOB_RAISE, id=self._id(job), severity=0, type="cancel", note=note
                    )
            case ["flux", "update", job, change]:
                await self._update(job, change.removeprefix("duration="))
            case ["flux", "job", "urgency", job, urgency]:
                number = URGENCIES.get(urgency) or int(urgency.replace("hold", "0"))
                await self._ask(topics.JOB_URGENCY, id=self._id(job), urgency=number)
            case ["sleep", seconds]:
                await trio.sleep(float(seconds))
            case _ if not any(tuple(words[: len(look)]) == look for look in LOOKS):
                await self._administrate(words)

    async def _administrate(self, words: list[str]) -> None:
        match words:
            case ["flux", "queue", "drain"]:
                await self._ask(topics.JOB_DRAIN)
            case ["flux", "queue", "stop" | "start" as verb]:
                await self._ask(topics.JOB_QUEUE_START, start=verb == "start")
            case ["flux", "module", "remove" | "load" | "reload" as verb, module, *_]:
                await self._ask(f"{topics.MODULE}.{verb}", name=MODULES.get(module, module))
            case ["flux", "resource", "drain", targets, reason]:
                await self._ask(topics.RESOURCE_DRAIN, targets=targets, reason=reason)
            case ["flux", "resource", "undrain", targets]:
                await self._ask(topics.RESOURCE_UNDRAIN, targets=targets)
            case _:
                raise AssertionError(f"{self.recording.name}: unknown step {words}")

    async def _submit_in_vain(self, options: list[str]) -> None:
        """A submission that flux-core refused, which is no job of the recording."""
        typed = click.testing.CliRunner().invoke(main, ["submit", "--dry-run", *options])
        with suppress(FluxError):
            await self._ask(topics.INGEST_SUBMIT, jobspec=msgspec.json.decode(typed.stdout))

    async def _submit(self, options: list[str]) -> None:
        if not self._to_submit:
            return  # flux-core refused these at once, so that they are no jobs of the recording
        job = self._to_submit.pop(0)
        flags = job.eventlog[0]["context"]["flags"]
        answer = await self._ask(
            topics.INGEST_SUBMIT,
            jobspec=self._adapt(self._with_our_dependencies(job.jobspec, options)),
            urgency=job.urgency,
            flags=flags,
        )
        self.ids[job.label] = answer["id"]

    def _with_our_dependencies(self, jobspec: dict[str, Any], options: list[str]) -> dict[str, Any]:
        """The recorded jobspec with ids that our jobs have, and times by our clock."""
        system = jobspec["attributes"]["system"]
        if "dependencies" not in system:
            return jobspec
        ours = self.our_names()
        for option in options:
            if option.startswith("--begin-time=+"):
                delay = parse_duration(option.partition("+")[2])
                ours[system["dependencies"][0]["value"]] = f"{self.instance.now() + delay:.3f}"
        entries = [
            each | {"value": ours.get(each["value"], each["value"])}
            for each in system["dependencies"]
        ]
        return jobspec | {"attributes": {"system": system | {"dependencies": entries}}}

    def with_our_names(self, eventlog: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A recorded eventlog with the ids that our jobs have."""
        text = msgspec.json.encode(eventlog).decode()
        for theirs, ours in self.our_names().items():
            text = text.replace(theirs, ours)
        decoded: list[dict[str, Any]] = msgspec.json.decode(text)
        return decoded

    def our_names(self) -> dict[str, str]:
        """Spelled ids of the recorded jobs → ours."""
        return {
            format_fluid(job.id, "f58"): format_fluid(self.ids[job.label], "f58")
            for job in self._recorded
            if job.label in self.ids
        }

    async def _update(self, job: str, change: str) -> None:
        seconds = parse_duration(change.removeprefix("+"))
        if change.startswith("+"):
            told = await self._ask(topics.LIST_ID, id=self._id(job))
            seconds += told["job"]["duration"]
        with suppress(FluxError):
            updates = {"attributes.system.duration": seconds}
            await self._ask(topics.JOB_UPDATE, id=self._id(job), updates=updates)

    async def _wait(self, job: str, name: str) -> None:
        # what the shell or a debug event of flux-core tells, `start` tells here
        awaited = name if name in EVENTS else "start"
        payload = {"id": self._id(job), "path": "eventlog"}
        async with self.client.stream(topics.INFO_WATCH, payload) as responses:
            async for response in responses:
                if msgspec.json.decode(response["event"])["name"] == awaited:
                    return
        raise AssertionError(f"{self.recording.name}: no event {awaited} in the eventlog of {job}")

    async def _ask(self, topic: str, **payload: Any) -> dict[str, Any]:
        return await self.client.call(topic, payload)

    def _id(self, label: str) -> int:
        return self.ids[re.sub(r"[{}]", "", label)]


EVENTS = ("dependency-add", "priority", "alloc", "prolog-start", "start", "clean")
