"""The resource service as Flux's own programs ask it: its journal, and what the scheduler has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle, ModuleNotStarted
from flux_trio.config import Config, ExecConfig
from flux_trio.cores.kvs_calls import commit_values, look_up, value_in, written
from flux_trio.cores.resource import EVENTLOG_KEY
from flux_trio.cores.resource.definition import RESOURCES_KEY
from flux_trio.formats import Idset, ResourceSet
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.messages import Errno, FluxError, Response, topics
from flux_trio.sim.run import make_machine
from flux_trio.testing import simulated_instance
from tests.support.asking import GUEST_USERID, OWNER_USERID
from tests.support.roles import JOB_SPEC

pytestmark = pytest.mark.usefixtures("autojump_clock")


async def pages(handle: Handle, count: int) -> list[dict[str, Any]]:
    """The first responses of the journal."""
    async with handle.stream(topics.RESOURCE_JOURNAL, {}) as responses:
        return [await anext(responses) for _ in range(count)]


def names(page: dict[str, Any]) -> list[str]:
    return [event["name"] for event in page["events"]]


async def test_the_journal_tells_what_was_and_then_what_happens() -> None:
    async with simulated_instance() as instance, instance.connect() as handle:
        await handle.call(topics.RESOURCE_DRAIN, {"targets": "1", "reason": "fan"})
        async with handle.stream(topics.RESOURCE_JOURNAL, {}) as responses:
            first, defined, since, caught_up = [await anext(responses) for _ in range(4)]
            assert names(first) == ["restart"]
            assert names(defined) == ["resource-define"]
            assert defined["R"]["execution"]["R_lite"][0]["rank"] == "0-3"
            assert names(since) == ["online", "drain"]
            assert since["events"][1]["context"]["reason"] == "fan"
            assert caught_up == {"events": []}
            await handle.call(topics.RESOURCE_UNDRAIN, {"targets": "1"})
            assert names(await anext(responses)) == ["undrain"]


async def test_the_journal_is_for_the_owner() -> None:
    async with simulated_instance() as instance, instance.connect(userid=GUEST_USERID) as guest:
        with pytest.raises(FluxError) as caught:
            await pages(guest, 1)
    assert caught.value.errnum == Errno.EPERM


async def test_a_reader_that_has_left_hears_nothing_more() -> None:
    async with simulated_instance() as instance, instance.connect() as handle:
        async with instance.connect("leaves") as leaves:
            assert len(await pages(leaves, 4)) == 4
        await trio.testing.wait_all_tasks_blocked()
        await handle.call(topics.RESOURCE_DRAIN, {"targets": "1"})
        stats = await handle.call(topics.stats_of(topics.RESOURCE))
    assert stats["requests"][topics.disconnect_of(topics.RESOURCE)] == 1


async def test_the_scheduler_has_what_is_not_excluded_and_what_jobs_hold() -> None:
    async with simulated_instance() as instance, instance.connect() as handle:
        found = await handle.call(topics.RESOURCE_SCHED_STATUS)
        assert found["allocated"]["execution"]["R_lite"] == []
        await handle.call(topics.RESOURCE_EXCLUDE, {"targets": "3"})
        await handle.call(topics.RESOURCE_DRAIN, {"targets": "2"})
        await handle.call(topics.INGEST_SUBMIT, {"jobspec": JOB_SPEC})
        await trio.sleep(1)
        found = await handle.call(topics.RESOURCE_SCHED_STATUS)
    ranks = {key: [each["rank"] for each in r["execution"]["R_lite"]] for key, r in found.items()}
    assert (ranks["all"], ranks["down"]) == (["0-2"], ["2"])
    assert ranks["allocated"] != []


async def test_counts_begin_anew() -> None:
    async with simulated_instance() as instance, instance.connect() as handle:
        await handle.call(topics.RESOURCE_STATUS)
        await handle.call(topics.stats_clear_of(topics.RESOURCE))
        stats = await handle.call(topics.stats_of(topics.RESOURCE))
        assert stats["requests"][topics.RESOURCE_STATUS] == 0
        async with instance.connect(userid=GUEST_USERID) as guest:
            with pytest.raises(FluxError, match="owner"):
                await guest.call(topics.stats_clear_of(topics.RESOURCE))


CONFIG = Config(edition="current", exec=ExecConfig(simulate=True))
KVS = CONFIG.edition_value.kvs
TWO = make_machine(nnodes=2, cores_per_node=4)
OTHER = ResourceSet.build(
    [(rank, 0b11, 0) for rank in range(3)],
    lambda rank: f"fake{rank}",
    properties={"xx": Idset.parse("0-2")},
)


@asynccontextmanager
async def instance_for_programs(tmp_path: Path) -> AsyncIterator[tuple[Instance, Handle]]:
    given = Surroundings(inventory=TWO, userid=OWNER_USERID, epoch=0.0, statedir=tmp_path)
    async with open_instance(CONFIG, given) as instance, instance.connect() as handle:
        yield instance, handle


async def stored(handle: Handle) -> Any:
    asked = written(look_up(RESOURCES_KEY), KVS)
    return json.loads(value_in(Response(asked[0], await handle.call(*asked), 0, 1)) or "")


async def put(handle: Handle, key: str, text: str) -> None:
    await handle.call(*written(commit_values([["put", key, text]]), KVS))


async def test_r_is_where_flux_programs_read_it_with_the_last_end(tmp_path: Path) -> None:
    async with instance_for_programs(tmp_path) as (instance, handle):
        assert await stored(handle) == TWO.to_json()
        await instance.set_expiration(100.0)
        assert (await stored(handle))["execution"]["expiration"] == 100.0
        await instance.supervisor.reload("resource")
        status = await handle.call(topics.RESOURCE_STATUS)
    assert status["R"]["execution"]["expiration"] == 100.0


async def test_a_module_that_is_loaded_again_takes_r_that_a_script_has_put_there(
    tmp_path: Path,
) -> None:
    async with instance_for_programs(tmp_path) as (instance, handle):
        await put(handle, RESOURCES_KEY, json.dumps(OTHER.to_json()))
        await instance.supervisor.remove("sched")
        await instance.supervisor.reload("resource")
        await instance.supervisor.load("sched")
        await handle.call(topics.INGEST_SUBMIT, {"jobspec": JOB_SPEC})
        await trio.sleep(1)
        found = await handle.call(topics.RESOURCE_SCHED_STATUS)
    assert found["all"] == OTHER.to_json()
    assert found["allocated"]["execution"]["nodelist"][0].startswith("fake")
    assert list(found["allocated"]["execution"]["properties"]) == ["xx"]


async def test_r_of_a_file_is_taken_while_no_scheduler_has_resources(tmp_path: Path) -> None:
    path = tmp_path / "R"
    path.write_text(json.dumps(OTHER.to_json()))
    asked = {"path": str(path), "xml": False, "force": True}
    async with instance_for_programs(tmp_path) as (instance, handle):
        with pytest.raises(FluxError, match=r"resources are busy \(unload scheduler\?\)"):
            await handle.call(topics.RESOURCE_RELOAD, asked)
        await instance.supervisor.remove("sched")
        await handle.call(topics.RESOURCE_RELOAD, asked)
        assert await stored(handle) == OTHER.to_json()
        with pytest.raises(FluxError, match="nosuch: No such file or directory"):
            await handle.call(topics.RESOURCE_RELOAD, {"path": "nosuch"})


async def test_an_eventlog_that_cannot_be_read_is_an_error_of_loading(tmp_path: Path) -> None:
    async with instance_for_programs(tmp_path) as (instance, handle):
        await instance.supervisor.remove("sched")
        await instance.supervisor.remove("resource")
        line = '{"timestamp":1.0,"name":"drain","context":{}}'
        await put(handle, EVENTLOG_KEY, line + "\n")
        with pytest.raises(ModuleNotStarted) as caught:
            await instance.supervisor.load("resource")
        assert "cannot read resource.eventlog: line 1" in str(caught.value)
