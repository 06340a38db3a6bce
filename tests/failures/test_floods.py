"""A client that floods the instance is bounded and told so; to the others little changes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.broker import connections
from flux_trio.client import Client, find_instance, open_client
from flux_trio.config import Config, ExecConfig
from flux_trio.instance import Instance, Surroundings, durable_store, open_instance
from flux_trio.messages import Level, topics
from flux_trio.sim import make_machine
from tests.support.instance import DEADLINE_S, environment

pytestmark = pytest.mark.real

PINGS = 200
PAUSE_S = 0.003
NOISE_S = 0.001  # of the measurement itself


@asynccontextmanager
async def flooded(statedir: Path) -> AsyncIterator[tuple[Instance, Client]]:
    """An instance at a real socket, and a client of it that minds."""
    config = Config(exec=ExecConfig(simulate=True))
    given = Surroundings(
        inventory=make_machine(nnodes=1, cores_per_node=2),
        userid=statedir.stat().st_uid,  # noqa: ASYNC240 - a test
        epoch=1e9,
        statedir=statedir,
        listen=True,
        store=durable_store(config, statedir),
    )
    with trio.fail_after(DEADLINE_S):
        async with (
            open_instance(config, given) as instance,
            open_client(*find_instance({"FLUX_TRIO_STATEDIR": str(statedir)})) as client,
        ):
            yield instance, client


async def pings(client: Client, count: int = PINGS) -> list[float]:
    """How long calls take, in seconds."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await client.call(topics.JOB_QUEUE_STATUS, {})
        took.append(time.perf_counter() - began)
        await trio.sleep(PAUSE_S)
    return took


async def flood(client: Client, statedir: Path, what: str) -> tuple[dict[str, Any], list[float]]:
    """How it ended for whoever floods, and how long calls of `client` took meanwhile."""
    took: list[float] = []
    ended: list[dict[str, Any]] = []
    command = [sys.executable, "-m", "tests.support.flooder", str(statedir / "local"), what]

    async with trio.open_nursery() as nursery:

        async def run() -> None:
            done = await trio.run_process(
                command, capture_stdout=True, env=environment(), stdin=subprocess.DEVNULL
            )
            ended.append(json.loads(done.stdout))
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        while True:
            took += await pings(client, 1)
    return ended[0], took


async def assert_little_changed(client: Client, before: list[float], during: list[float]) -> None:
    """Half of the calls took at most twice as long as without a flood."""
    calm = max(statistics.median(before), statistics.median(await pings(client)))
    assert statistics.median(during) <= 2 * calm + NOISE_S


async def test_client_that_submits_and_does_not_read_is_held_up_and_then_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BEHIND_S_MAX", 1.0)
    async with flooded(tmp_path) as (instance, client):
        before = await pings(client)
        ended, during = await flood(client, tmp_path, "submit")
        reason = "it sends, and has not read its answers for 1 s"
        (entry,) = [str(entry) for entry in instance.log if entry.level <= Level.ERR]
        assert entry == f"owner-2.err: dropped: {reason}"
        assert ended["reason"] in (reason, None)  # it may have read too late even for the goodbye
        await assert_little_changed(client, before, during)
        submitted = (await client.call(topics.JOB_STATS))["states"]["sched"]
        assert 0 < submitted < 20_000


async def test_client_that_opens_ten_thousand_streams_has_what_one_may_have(
    tmp_path: Path,
) -> None:
    async with flooded(tmp_path) as (_, client):
        before = await pings(client)
        ended, during = await flood(client, tmp_path, "streams")
        text = "4096 requests of this connection are open: let some of them end"
        assert ended["errors"] == {text: 10_000 - 4096}
        await assert_little_changed(client, before, during)
        assert (await client.call(topics.stats_of(topics.KVS)))["watches"] == 0  # it has gone


async def test_a_frame_of_100_megabytes_ends_its_connection(tmp_path: Path) -> None:
    async with flooded(tmp_path) as (_, client):
        before = await pings(client)
        ended, during = await flood(client, tmp_path, "frame")
        assert ended["code"] == 1009
        assert ended["reason"] == "Exceeded maximum message size: 16777216 bytes"
        await assert_little_changed(client, before, during)


async def test_100_megabytes_in_frames_are_taken_one_by_one(tmp_path: Path) -> None:
    async with flooded(tmp_path) as (_, client):
        before = await pings(client)
        ended, during = await flood(client, tmp_path, "frames")
        assert ended["errors"] == {}
        await assert_little_changed(client, before, during)
