"""An instance at its Unix socket: who its owner is, and what guests find there."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flux_trio.client import AccessDenied, Client, find_instance, open_client
from flux_trio.config import AccessConfig, Config, ExecConfig
from flux_trio.formats import Jobspec
from flux_trio.instance import Instance, Surroundings, durable_store, open_instance
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.sim import make_machine
from tests.support.kvs_words import words

ME = os.getuid()
SOMEBODY = ME + 1
SPEC = Jobspec.from_command(
    ["true"], attributes={"system.exec.test.run_duration": 3600.0}
).to_json()
OWNER_ONLY = AccessConfig()
OPEN_TO_ALL = AccessConfig(allow_guest_user=True)


@asynccontextmanager
async def instance_of(
    owner: int, statedir: Path, access: AccessConfig = OWNER_ONLY
) -> AsyncIterator[Instance]:
    """An instance of the user `owner`, whoever runs this."""
    config = Config(access=access, exec=ExecConfig(simulate=True))
    given = Surroundings(
        inventory=make_machine(nnodes=2, cores_per_node=2),
        userid=owner,
        epoch=1e9,
        statedir=statedir,
        listen=True,
        store=durable_store(config, statedir),
    )
    async with open_instance(config, given) as instance:
        yield instance


@asynccontextmanager
async def connected(statedir: Path) -> AsyncIterator[Client]:
    """A client of this process's user, by what its environment would say."""
    async with open_client(*find_instance({"FLUX_TRIO_STATEDIR": str(statedir)})) as client:
        yield client


async def refusal(client: Client, topic: str, payload: Any) -> int:
    with pytest.raises(FluxError) as refused:
        await client.call(topic, payload)
    return refused.value.errnum


async def test_the_owner_needs_no_token(tmp_path: Path) -> None:
    async with instance_of(ME, tmp_path), connected(tmp_path) as client:
        jobid = (await client.submit(SPEC)).id
        assert jobid > 0
        assert (await client.call(words().own.dir, {"prefix": "job"}))["keys"]
    assert not (tmp_path / "local").exists()


async def test_another_user_is_turned_away(tmp_path: Path) -> None:
    async with instance_of(SOMEBODY, tmp_path):
        assert stat.S_IMODE((tmp_path / "local").stat().st_mode) == 0o600
        with pytest.raises(AccessDenied, match=f"user {ME} has no access to this instance"):
            async with connected(tmp_path):
                pass


async def test_a_guest_has_jobs_of_their_own_and_sees_that_there_are_others(tmp_path: Path) -> None:
    async with (
        instance_of(SOMEBODY, tmp_path, OPEN_TO_ALL) as instance,
        instance.connect("owner") as owner,
    ):
        answer = await owner.call(topics.INGEST_SUBMIT, {"jobspec": SPEC})
        theirs = int(answer["id"])
        async with connected(tmp_path) as client:
            mine = (await client.submit(SPEC)).id
            jobs = (await client.call(topics.LIST_LIST, {}))["jobs"]
            assert {job["id"]: job["userid"] for job in jobs} == {theirs: SOMEBODY, mine: ME}
            cancel = {"severity": 0, "type": "cancel"}
            assert await refusal(client, topics.JOB_RAISE, {"id": theirs, **cancel}) == Errno.EPERM
            wanted = {"keys": ["jobspec"]}
            assert await refusal(client, topics.INFO_LOOKUP, {"id": theirs, **wanted}) == (
                Errno.EPERM
            )
            assert "jobspec" in await client.call(topics.INFO_LOOKUP, {"id": mine, **wanted})
            await client.call(topics.JOB_RAISE, {"id": mine, **cancel})


def modes_in(directory: Path) -> dict[str, int]:
    """The permissions of each file in `directory`, and of itself."""
    files = [*directory.iterdir(), directory]
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in files}


@pytest.mark.classic("there is no native door")
async def test_guests_get_at_the_socket_and_at_nothing_else(tmp_path: Path) -> None:
    async with instance_of(ME, tmp_path, OPEN_TO_ALL), connected(tmp_path) as client:
        await client.submit(SPEC)
        modes = modes_in(tmp_path)
    assert modes.pop(tmp_path.name) == 0o711
    assert modes.pop("local") == 0o666
    assert set(modes) >= {"state.sqlite", "state.sqlite-wal", "uri", "token", "tokens.json"}
    assert [name for name, mode in modes.items() if mode & 0o077] == []


@pytest.mark.classic("there is no native door")
async def test_an_instance_whose_socket_would_have_too_long_a_path_does_without(
    tmp_path: Path,
) -> None:
    statedir = tmp_path / ("x" * 100)
    statedir.mkdir()
    async with instance_of(ME, statedir) as instance, connected(statedir) as client:
        assert (await client.call(topics.BROKER_INFO))["userid"] == ME
        entry, _started = instance.log
    assert "no Unix socket at" in entry.text
    assert entry.text.endswith("AF_UNIX path too long")


@pytest.mark.parametrize("claimed", [None, ME])
async def test_in_the_instances_own_process_peers_may_be_anybody(
    tmp_path: Path, claimed: int | None
) -> None:
    async with instance_of(ME, tmp_path) as instance:
        async with instance.connect(userid=claimed) as owner:
            assert await owner.call(words().own.dir, {"prefix": "job"}) == {"keys": []}
        async with instance.connect(userid=SOMEBODY) as guest:
            with pytest.raises(FluxError, match="requires owner"):
                await guest.call(words().own.dir, {"prefix": "job"})
