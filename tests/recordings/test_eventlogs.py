"""The eventlogs of real flux-core against ours: same jobs, same events, same order, same contexts.

What may differ is in `tests.support.comparing`. 04, where a program cannot be started, needs the
real executor; those about queues are in `test_queues.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from flux_trio.config import Config, ExecConfig, JobManagerConfig, PerilogConfig
from flux_trio.formats import ResourceSet
from flux_trio.instance import Surroundings, open_instance
from flux_trio.store.stores import MemoryStore
from tests.support.comparing import EPOCH, SIMULATED, comparable, compare, given_of, pretend
from tests.support.perilog import Acting
from tests.support.recordings import Player, Special, load_recording
from tests.support.specials import Background, nothing, rpcs, specials

# --- the comparison

SCENARIOS = [f"{n:02}" for n in (1, 2, 3, *range(5, 31), 37, 38, 40, 44, 45)]
# Steps that are not played in a scenario.
UNPLAYED: dict[str, dict[str, Special]] = {
    # frees wait for the next scheduler (readings: No scheduler, job ends), so A is not clean yet
    "15": {"flux job wait-event -t 15 {A} clean": nothing}
}
# Jobs of a scenario whose eventlogs differ for a reason of their own.
DIFFERENT = {
    # 0.88's default executor cannot reattach to a running job; this one can
    "24": frozenset("B")
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_eventlogs_equal_those_of_flux_core(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    recording = load_recording(name)
    jobs = list(recording.jobs)
    async with (
        open_instance(SIMULATED, given_of(recording)) as instance,
        instance.connect() as client,
        AsyncExitStack() as stack,
    ):
        background = Background(stack)
        special = specials(background) | rpcs(recording) | UNPLAYED.get(name, {})
        player = Player(recording, pretend, special)
        with trio.fail_after(1000):
            await player.play(instance, client)
        await compare(player, jobs, DIFFERENT.get(name, frozenset()))
        if name == "27":
            first, *others = background.hellos
            assert "outstanding" in first  # EINVAL, as 0.88 says
            assert others == ["ok", "ok"]


async def test_expiration_beyond_the_instance_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """41; 0.88's scheduler was told to refuse, ours does for an instance that ends in a minute."""
    recording = load_recording("41")
    given = given_of(recording)
    ends = given.inventory.with_times(0.0, EPOCH + 60)
    jobs = list(recording.jobs)
    short = Surroundings(inventory=ends, userid=0, epoch=EPOCH)
    async with open_instance(SIMULATED, short) as instance, instance.connect() as client:
        player = Player(recording, pretend, specials(Background(AsyncExitStack())))
        await player.play(instance, client)
        await compare(player, jobs)


@pytest.mark.parametrize(
    ("name", "but"),
    [
        ("42", frozenset()),
        # 0.88 cancels running jobs at an orderly end of the instance; here they go on
        ("43", frozenset("A")),
    ],
)
async def test_eventlogs_over_a_restart_of_the_instance(
    name: str, but: frozenset[str], autojump_clock: trio.testing.MockClock
) -> None:
    recording = load_recording(name)
    jobs = list(recording.jobs)
    store = MemoryStore()
    player = Player(recording, pretend, specials(Background(AsyncExitStack())))
    given = given_of(recording, store)
    async with open_instance(SIMULATED, given) as instance, instance.connect() as client:
        await player.play(instance, client, until="# shut the instance down")
    again = Surroundings(
        inventory=given.inventory, userid=0, epoch=EPOCH + trio.current_time(), store=lambda: store
    )
    async with open_instance(SIMULATED, again) as instance, instance.connect() as client:
        await player.play(instance, client)
        await compare(player, jobs, but)


async def test_prologs_and_epilogs(autojump_clock: trio.testing.MockClock) -> None:
    """39. After B's prolog has failed, 0.88 posts epilog-start ahead of the exception, loses
    epilog-finish, and names no node.
    """
    recording = load_recording("39")
    jobs = list(recording.jobs)
    plugin = Acting({"seconds": 0.3}, {"seconds": 0.3})

    def prolog(status: int) -> Special:
        async def act(_player: Player) -> None:
            plugin.parts["prolog"] = {"seconds": 0.3, "status": status}

        return act

    special = {
        "touch /tmp/rec-fail-prolog": prolog(1 << 8),
        "rm -f /tmp/rec-fail-prolog": prolog(0),
        "flux resource drain": nothing,
        "flux resource undrain 0-1": nothing,  # nothing was drained
    }
    command = PerilogConfig(["prolog or epilog"])
    config = Config(
        exec=ExecConfig(simulate=True), job_manager=JobManagerConfig([], command, command)
    )
    given = replace(given_of(recording), plugins=[plugin])
    async with open_instance(config, given) as instance, instance.connect() as client:
        player = Player(recording, pretend, special)
        await player.play(instance, client)
        await compare(player, jobs, frozenset("B"))
        assert comparable(await player.eventlog("B"))[5:] == [
            ("prolog-start", {"description": "job-manager.prolog"}),
            (
                "exception",
                {
                    "type": "prolog",
                    "severity": 0,
                    "note": "prolog exited with code=1 on node0 (rank 0)",
                    "userid": 0,
                },
            ),
            ("epilog-start", {"description": "job-manager.epilog"}),
            ("prolog-finish", {"description": "job-manager.prolog", "status": 256}),
            ("epilog-finish", {"description": "job-manager.epilog", "status": 0}),
            ("free", {}),
            ("clean", {}),
        ]


@pytest.mark.real
async def test_eventlog_of_a_command_that_is_not_there(tmp_path: Path) -> None:
    recording = load_recording("04")
    jobs = list(recording.jobs)
    inventory = ResourceSet.parse(recording.resources)
    given = Surroundings(inventory=inventory, userid=0, epoch=EPOCH, statedir=tmp_path)
    with trio.fail_after(300):
        async with open_instance(Config(), given) as instance, instance.connect() as client:
            player = Player(recording, lambda jobspec: jobspec)
            await player.play(instance, client)
            await compare(player, jobs)
