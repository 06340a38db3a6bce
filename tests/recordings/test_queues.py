"""Queues of real flux-core against ours: eventlogs, jobspecs, what is printed, and every refusal.

What differs, and why: 0.88 applies defaults and constraints before the job manager sees a job,
where here they are a `jobspec-update` (RFC 33, Initial Assignment of Job to Queue); its `requires`
is a list of properties, where RFC 33 has a constraint; its named queues begin stopped, which
`started = false` asks for here; and it rounds what it prints. 34 is not compared: virtual queues
are of the current edition of RFC 33, and the classic one has none.
"""

from __future__ import annotations

import shlex
from collections import deque
from dataclasses import replace
from typing import Any

import click.testing
import msgspec
import pytest
import trio

from flux_trio.cli import main
from flux_trio.cli.admin.queue_status import status_lines, statuses_and_counts
from flux_trio.cores.job_manager.calls import User
from flux_trio.formats import apply_update
from flux_trio.instance import open_instance
from flux_trio.messages import FluxError, topics
from flux_trio.protocols import URGENCY_DEFAULT
from tests.support.comparing import comparable, given_of, our_config
from tests.support.recordings import Player, Recording, StepInfo, load_recording

# What our commands say before they ask; tests of the command show it.
SAID_BY_THE_COMMAND = "Named queues are defined. Specify queues or use --all."


# 61 minutes are not an hour: rounded, the refusal contradicts itself.
NOT_ROUNDED = {
    "requested duration (1h) exceeds policy limit of 1h for queue batch": (
        "requested duration (61m) exceeds policy limit of 1h for queue batch"
    )
}


class Steps:
    """Plays submissions and queue commands as they were typed; `said` has pairs: theirs, ours."""

    def __init__(self, recording: Recording) -> None:
        self.said: list[tuple[str, str]] = []
        self._urgencies = {job.label: job.urgency for job in recording.jobs}
        self._infos: dict[str, deque[StepInfo]] = {}
        for step, info in zip(recording.steps, recording.step_info, strict=True):
            self._infos.setdefault(step, deque()).append(info)

    def special(self) -> dict[str, Any]:
        """For the player, by the steps' texts."""
        return {step: self._play(step) for step in self._infos if self._is_ours(step)}

    def _is_ours(self, step: str) -> bool:
        return step.startswith(("flux submit", "flux queue", "#"))

    def _play(self, step: str) -> Any:
        async def play(player: Player) -> None:
            info = self._infos[step].popleft()
            match shlex.split(step, comments=True):
                case ["flux", "submit", *options]:
                    await self._submit(player, options, info)
                case ["flux", "queue", "status", "-v"]:
                    lines = await statuses_and_counts(player.client, None, True, status_lines)  # type: ignore[arg-type]  # it has call
                    self.said.append((info.stdout, "\n".join(lines)))
                case ["flux", "queue", verb, *options]:
                    await self._change(player, verb, options, info)

        return play

    async def _submit(self, player: Player, options: list[str], info: StepInfo) -> None:
        typed = click.testing.CliRunner().invoke(main, ["submit", "--dry-run", *options])
        urgency = self._urgencies.get(info.label, URGENCY_DEFAULT)
        payload = {"jobspec": msgspec.json.decode(typed.stdout), "urgency": urgency}
        try:
            answer = await player.client.call(topics.INGEST_SUBMIT, payload)
        except FluxError as error:
            self.said.append((info.stderr.partition("] ")[2], error.text))
        else:
            player.ids[info.label] = answer["id"]

    async def _change(self, player: Player, verb: str, options: list[str], info: StepInfo) -> None:
        if info.stderr.endswith(SAID_BY_THE_COMMAND):
            return
        submits = verb in ("enable", "disable")
        payload: dict[str, Any] = {"enable" if submits else "start": verb in ("enable", "start")}
        words = iter(options)
        for word in words:
            match word:
                case "--all":
                    payload["all"] = True
                case "-m":
                    payload["reason"] = next(words)
                case _:
                    payload["name"] = word
        topic = topics.JOB_QUEUE_ENABLE if submits else topics.JOB_QUEUE_START
        await player.client.call(topic, payload)


async def our_events(player: Player, label: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A job's events but for what its queue added to the jobspec; and that."""
    added: dict[str, Any] = {}
    events = []
    for event in await player.eventlog(label):
        if event["name"] == "jobspec-update":
            added |= event["context"]
        else:
            events.append(event)
    return events, added


@pytest.mark.parametrize("name", ["31", "32", "33", "35"])
async def test_queues_are_those_of_flux_core(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    """33.validation.1, 33.validation.2, 33.limits.2-6: refused word for word."""
    recording = load_recording(name)
    jobs, config = list(recording.jobs), our_config(recording.config)
    steps = Steps(recording)
    async with open_instance(config, given_of(recording)) as instance, instance.connect() as client:
        player = Player(recording, lambda jobspec: jobspec, steps.special())
        with trio.fail_after(1000):
            await player.play(instance, client)
        assert steps.said
        for theirs, ours in steps.said:
            assert ours == NOT_ROUNDED.get(theirs, theirs)
        for job in jobs:
            events, added = await our_events(player, job.label)
            assert comparable(events) == comparable(job.eventlog), job.label
            payload = {"id": player.ids[job.label], "keys": ["jobspec"]}
            answer = await client.call(topics.INFO_LOOKUP, payload)
            stored = msgspec.json.decode(answer["jobspec"])
            for path, value in added.items():
                stored = apply_update(stored, path, value)
            for key in ("queue", "duration", "constraints"):
                theirs = job.jobspec["attributes"]["system"].get(key)
                assert stored["attributes"]["system"].get(key) == theirs, (job.label, key)


async def test_access_is_enforced_where_flux_core_does_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """36, 33.access.1, 33.impl.5: 0.88 takes the jobs of owner and guest; RFC 33 has both refused.

    0.88 takes two queues without a default queue without a word.
    """
    recording = load_recording("36")
    theirs = recording.config | {"policy": {"jobspec": {"defaults": {"system": {"queue": "open"}}}}}

    async def users(userid: int) -> User:
        return User({0: "root", 5000: "guest"}[userid])

    given = replace(given_of(recording), users=users)
    async with open_instance(our_config(theirs), given) as instance:
        for userid, who in ((0, "root"), (5000, "guest")):
            async with instance.connect(userid=userid) as client:
                closed = recording.jobs[0].jobspec
                with pytest.raises(FluxError) as error:
                    await client.call(topics.INGEST_SUBMIT, {"jobspec": closed})
                assert error.value.text == f"user {who} has no access to queue closed"
                opened = apply_update(closed, "attributes.system.queue", "open")
                await client.call(topics.INGEST_SUBMIT, {"jobspec": opened})
