"""What is stored of a guest's active jobs is one account: jobspecs and guest namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.config import AccessConfig, Config, ExecConfig, JobManagerConfig, UserLimitsConfig
from flux_trio.cores.kvs.namespaces import EMPTY_ROOT
from flux_trio.formats import Jobspec
from flux_trio.formats.treeobj import val
from flux_trio.instance import Surroundings, durable_store, open_instance
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.sim import make_machine

OWNER = os.getuid()
GUEST = OWNER + 1
SPEC = Jobspec.from_command(
    ["true"], environment={"X": 50_000 * "x"}, attributes={"system.exec.test.run_duration": 3600.0}
).to_json()


def configured(stored_bytes: int) -> Config:
    return Config(
        edition="current",
        access=AccessConfig(allow_guest_user=True),
        exec=ExecConfig(simulate=True),
        job_manager=JobManagerConfig(user_limits=UserLimitsConfig(stored_bytes=stored_bytes)),
    )


async def submit(guest: Handle) -> int:
    return int((await guest.call(topics.INGEST_SUBMIT, {"jobspec": SPEC}))["id"])


async def write(guest: Handle, jobid: int, nbytes: int) -> None:
    ops = [{"key": "a", "flags": 0, "dirent": val(nbytes * "x")}]
    await guest.call(topics.KVS_COMMIT, {"namespace": f"job-{jobid}", "flags": 0, "ops": ops})


async def test_a_guest_reaches_the_bound_once_and_a_new_configuration_moves_it(
    tmp_path: Path,
) -> None:
    config = configured(150_000)
    given = Surroundings(
        inventory=make_machine(nnodes=1, cores_per_node=4),
        userid=OWNER,
        epoch=trio.current_time(),
        statedir=tmp_path,
        store=durable_store(config, tmp_path),
    )
    async with (
        open_instance(config, given) as instance,
        instance.connect("owner") as owner,
        instance.connect("guest", userid=GUEST) as guest,
    ):
        jobid = await submit(guest)
        named = {"namespace": f"job-{jobid}", "rootref": EMPTY_ROOT, "owner": GUEST, "flags": 0}
        await owner.call(topics.KVS_NAMESPACE_CREATE, named)
        await write(guest, jobid, 60_000)
        with pytest.raises(FluxError, match=r"exceed user-limits\.stored-bytes, 150000"):
            await submit(guest)
        with pytest.raises(FluxError, match=r"exceed user-limits\.stored-bytes, 150000") as refused:
            await write(guest, jobid, 60_000)
        assert refused.value.errnum == Errno.ENOSPC
        wider = configured(300_000).to_json()
        assert "refusal" not in await owner.call(topics.CONFIG_LOAD, {"config": wider})
        await write(guest, jobid, 60_000)
        await submit(guest)
        with pytest.raises(FluxError, match=r"exceed user-limits\.stored-bytes, 300000"):
            await write(guest, jobid, 90_000)
