"""The eventlogs of real flux-core against ours: same jobs, same events, same order, same contexts.

What may differ is in `PERMITTED`, each with its reason, once. Programs do not run here: a job
pretends to do what its command does (`BEHAVIOUR`). 04, where a program cannot be started, needs the
real executor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.config import Config, ExecConfig
from flux_trio.formats import ResourceSet
from flux_trio.instance import Surroundings, open_instance
from tests.support.recordings import Player, load_recording

Entry = tuple[str, dict[str, Any]]

# What each command of the scenarios does when it really runs: seconds, and the wait(2) status.
BEHAVIOUR: dict[tuple[str, ...], tuple[float, int]] = {
    ("true",): (0.02, 0),
    ("sh", "-c", "exit 3"): (0.02, 3 << 8),
    ("sleep", "60"): (60.0, 0),
    ("sh", "-c", "kill -SEGV $$"): (0.02, 11),
}


def pretend(jobspec: dict[str, Any]) -> dict[str, Any]:
    """The jobspec with the test attributes that make it behave as its command would."""
    system = jobspec["attributes"]["system"]
    if "exec" in system:
        return jobspec
    seconds, status = BEHAVIOUR[tuple(jobspec["tasks"][0]["command"])]
    test = {"run_duration": seconds, "wait_status": status}
    attributes = {"system": system | {"exec": {"test": test}}}
    return jobspec | {"attributes": attributes}


def ranks_of_release(entry: Entry) -> Entry:
    """0.88 writes "all"; RFC 32 has an idset (editions.md: release; flux-core-notes.md, RFC 32)."""
    name, context = entry
    if name != "release":
        return entry
    assert context["ranks"] in ("all", "0")
    return name, context | {"ranks": "0"}


def wait_status(entry: Entry) -> Entry:
    """0.88 writes a signal as exit code 128+n; RFC 21 has a wait(2) status (readings.md 15)."""
    name, context = entry
    if name != "finish":
        return entry
    code = context["status"] >> 8
    return name, {"status": code - 128 if code > 128 else context["status"]}


PERMITTED: list[Callable[[Entry], Entry]] = [ranks_of_release, wait_status]


def comparable(event: dict[str, Any]) -> Entry:
    """Name and context of an event after what may differ has been made the same."""
    entry = (event["name"], event.get("context", {}))
    for permit in PERMITTED:
        entry = permit(entry)
    return entry


async def play_and_compare(name: str, given: Surroundings, config: Config, adapt: Any) -> None:
    recording = load_recording(name)
    async with open_instance(config, given) as instance, instance.connect() as client:
        player = Player(client, recording, adapt)
        await player.play()
        for job in recording.jobs:
            ours = [comparable(event) for event in await player.eventlog(job.label)]
            assert ours == [comparable(event) for event in job.eventlog], job.label


@pytest.mark.parametrize("name", ["01", "02", "03", "05", "06", "12"])
async def test_eventlogs_equal_those_of_flux_core(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    inventory = ResourceSet.parse(load_recording(name).resources)
    given = Surroundings(inventory=inventory, userid=0, epoch=1_000_000.0)
    await play_and_compare(name, given, Config(exec=ExecConfig(simulate=True)), pretend)


@pytest.mark.real
async def test_eventlog_of_a_command_that_is_not_there(tmp_path: Path) -> None:
    inventory = ResourceSet.parse(load_recording("04").resources)
    given = Surroundings(inventory=inventory, userid=0, epoch=1_000_000.0, statedir=tmp_path)
    with trio.fail_after(30):
        await play_and_compare("04", given, Config(), lambda jobspec: jobspec)
