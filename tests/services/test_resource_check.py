"""The check command of the resource service, as real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.clock import Durations
from flux_trio.config import CheckConfig, ResourceEntry
from flux_trio.cores.resource import inventory_from_config
from flux_trio.cores.resource.checks import Checked, NotChecked, RunCheck
from flux_trio.formats import Idset
from flux_trio.services import kvs, resource
from flux_trio.services.resource import CheckRunner
from flux_trio.store.stores import MemoryStore
from tests.support.leaks import children
from tests.support.serving import World

pytestmark = pytest.mark.real

DEADLINE_S = 300.0  # only what hangs takes so long, however busy the machine is


async def run_checks(
    script: str, *targets: int, command: list[str] | None = None, **config: Any
) -> list[Checked | NotChecked]:
    """What a shell script, or `command`, has found of targets; then no process is left."""
    to_take, results = trio.open_memory_channel[Checked | NotChecked](len(targets))
    check = CheckConfig(command or ["sh", "-c", script], **config)
    runner = CheckRunner(check, to_take.send_nowait, Durations.of(trio.current_time))
    before = children()
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.serve)
            for target in targets:
                runner.run_nowait(RunCheck(target, f"node{target}"))
            found = [await results.receive() for _ in targets]
            nursery.cancel_scope.cancel()
    assert children() == before
    return sorted(found, key=lambda each: each.target)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 0", None),
        ("echo much to say; exit 0", None),
        ("echo; echo no fan; echo more; exit 1", "no fan"),
        ("echo no fan >&2; exit 1", "no fan"),
        ("echo err >&2; echo out; exit 1", "out"),
        ("exit 3", "check exited with code 3"),
        ("kill -9 $$", "check was killed by signal 9"),
        ("head -c 5000 /dev/zero | tr '\\0' x; exit 1", "x" * 200),
    ],
)
async def test_end_of_the_command_says_how_the_target_is(script: str, problem: str | None) -> None:
    assert await run_checks(script, 3) == [Checked(3, problem)]


async def test_command_is_told_which_target_to_look_at() -> None:
    found = await run_checks('echo "$FLUX_TRIO_RANK $FLUX_TRIO_HOST"; exit 1', 0, 2)
    assert found == [Checked(0, "0 node0"), Checked(2, "2 node2")]


async def test_command_that_hangs_means_that_the_target_is_down_and_is_ended() -> None:
    assert await run_checks("sleep 1000", 1, timeout="50ms") == [
        Checked(1, "check timed out after 50ms")
    ]


async def test_command_that_is_not_there_says_nothing_of_the_target() -> None:
    assert await run_checks("", 1, command=["/no/such/check"]) == [
        NotChecked(1, "/no/such/check: No such file or directory")
    ]


async def test_no_more_checks_run_at_once_than_configured(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/one || exit 1; sleep 0.01; rmdir {tmp_path}/one"
    found = await run_checks(script, *range(8), max_running=1)
    assert found == [Checked(target, None) for target in range(8)]


async def test_targets_follow_the_check_of_a_service(tmp_path: Path) -> None:
    """A file tells the check that a target is ill."""
    inventory = inventory_from_config([ResourceEntry("node[0-1]", cores="0")])
    script = f"[ ! -e {tmp_path}/$FLUX_TRIO_HOST ] || {{ echo ill; exit 1; }}"
    check = CheckConfig(["sh", "-c", script], interval="10ms")
    world, store = World(), MemoryStore()
    sched = world.client("sched")

    async def serve_kvs(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await kvs.run(handle, lambda: store, task_status=task_status)

    async def serve(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await resource.run(handle, inventory, Idset(), check=check, task_status=task_status)

    with trio.fail_after(DEADLINE_S):
        async with world.serving("kvs", serve_kvs), world.serving("resource", serve):
            stream = sched.send("resource.acquire", {"group": "default"}, streaming=True)
            assert (await sched.answer(stream)).payload["online"] == "0-1"
            (tmp_path / "node1").touch()
            assert (await sched.answer(stream)).payload == {"type": "offline", "targets": "1"}
            (down,) = (await sched.ask("resource.status"))["down"].values()
            assert (down["by"], down["reason"]) == ("check", "ill")
            (tmp_path / "node1").unlink()
            assert (await sched.answer(stream)).payload == {"type": "online", "targets": "1"}
