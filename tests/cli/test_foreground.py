"""The command that an instance in the foreground runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from flux_trio.broker import ModuleCrashed
from flux_trio.cli.instance.foreground import _run_command
from flux_trio.instance import Instance, open_instance
from flux_trio.messages import Flag, Request
from flux_trio.process.groups import unwrapping
from tests.test_instance import CONFIG, DiesLater, surroundings


@pytest.mark.real
async def test_command_has_ended_before_an_instance_that_has_crashed(tmp_path: Path) -> None:
    up, ended = tmp_path / "up", tmp_path / "ended"
    ending = f"sleep 0.3; touch {ended}; exit"
    command = ("sh", "-c", f"trap '{ending}' TERM; touch {up}; while :; do sleep 0.01; done")

    async def run(instance: Instance) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            await _run_command(instance, command, {}, signals, cancels=False)

    async def crash_when_up(instance: Instance) -> None:
        while not up.exists():  # noqa: ASYNC110 - a file has no event
            await trio.sleep(0.01)
        async with instance.connect() as handle:
            handle.send(Request("kvs.lookup", {"key": "bad"}, 99, int(Flag.NONE)))
            await trio.sleep_forever()

    async def run_until_it_crashes() -> None:
        async with (
            open_instance(CONFIG, surroundings(store=DiesLater)) as instance,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(run, instance)
            await crash_when_up(instance)

    with pytest.raises(ModuleCrashed), unwrapping(ModuleCrashed):
        await run_until_it_crashes()
    assert ended.exists()
