"""A client that floods the instance is bounded and told so; the others are served."""

from __future__ import annotations

import json
import subprocess
import sys
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


@asynccontextmanager
async def flooded(statedir: Path) -> AsyncIterator[tuple[Instance, Client]]:
    """An instance at a real socket, and a client of it that does no harm."""
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


async def flood(statedir: Path, what: str) -> dict[str, Any]:
    """How it ended for the process that floods the instance."""
    command = [sys.executable, "-m", "tests.support.flooder", str(statedir / "local"), what]
    done = await trio.run_process(
        command, capture_stdout=True, env=environment(), stdin=subprocess.DEVNULL
    )
    ended: dict[str, Any] = json.loads(done.stdout)
    return ended


async def assert_is_served(client: Client) -> None:
    """The instance still answers others."""
    assert "states" in await client.call(topics.JOB_STATS)


@pytest.mark.gate
async def test_client_that_submits_and_does_not_read_is_held_up_and_then_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BEHIND_S_MAX", 0.25)
    async with flooded(tmp_path) as (instance, client):
        ended = await flood(tmp_path, "submit")
        reason = "it sends requests and has not read its answers for 0.25 s"
        (entry,) = [str(entry) for entry in instance.log if entry.level <= Level.ERR]
        name, _, said = entry.partition(".err: ")
        assert said == f"dropped: {reason}"
        assert name.startswith("owner-")  # the number depends on who came before
        assert ended["reason"] in (reason, None)  # it may have read too late even for the goodbye
        await assert_is_served(client)
        submitted = (await client.call(topics.JOB_STATS))["states"]["sched"]
        assert 0 < submitted < 20_000


async def test_client_that_opens_ten_thousand_streams_has_what_one_may_have(tmp_path: Path) -> None:
    async with flooded(tmp_path) as (_, client):
        ended = await flood(tmp_path, "streams")
        assert ended["errors"] == {}  # the owner's programs hold one for each job
        await assert_is_served(client)
        assert (await client.call(topics.stats_of(topics.KVS)))["watches"] == 0  # it has gone


async def test_a_frame_of_100_megabytes_ends_its_connection(tmp_path: Path) -> None:
    async with flooded(tmp_path) as (_, client):
        ended = await flood(tmp_path, "frame")
        assert ended["code"] == 1009
        assert ended["reason"] == "Exceeded maximum message size: 16777216 bytes"
        await assert_is_served(client)


async def test_100_megabytes_in_frames_are_taken_one_by_one(tmp_path: Path) -> None:
    async with flooded(tmp_path) as (_, client):
        ended = await flood(tmp_path, "frames")
        assert ended["errors"] == {}
        await assert_is_served(client)
