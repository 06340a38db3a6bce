"""Requests that plugins serve, and what a query tells."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.jobtap import FluxError, Plugin, PluginError, ServiceRequest, State
from flux_trio.messages import Errno
from tests.support.plugin_host import JOB, PRIORITY, Rig, handling, rig

# --- services


class Serves(Plugin):
    @jobtap.service("status", owner_only=False)
    def status(self, request: ServiceRequest) -> dict[str, Any] | None:
        return {"asked": request.payload} if request.payload else None

    @jobtap.service("slow.one")
    async def slow(self, request: ServiceRequest) -> dict[str, Any]:
        await trio.sleep(request.payload["s"])
        return {"by": request.userid}

    @jobtap.service("fails")
    def fails(self, request: ServiceRequest) -> Any:
        if "errnum" in request.payload:
            raise FluxError(request.payload["errnum"], "as asked")
        return request.payload["says"]


async def served(r: Rig, method: str, **payload: Any) -> dict[str, Any]:
    found = r.host.method(f"job-manager.serves.{method}")
    assert found is not None
    return await r.host.serve(found, ServiceRequest(method, payload, 7, is_owner=False))


async def test_plugin_answers_requests_of_its_own(autojump_clock: MockClock) -> None:
    async with rig(Serves()) as r:
        assert await served(r, "status", a=1) == {"asked": {"a": 1}}
        assert await served(r, "status") == {}
        assert await served(r, "slow.one", s=5) == {"by": 7}
        status, slow = (r.host.method(f"job-manager.serves.{n}") for n in ("status", "slow.one"))
        assert status is not None
        assert slow is not None
        assert (status.owner_only, slow.owner_only) == (False, True)


async def test_method_that_fails_is_answered_with_why(autojump_clock: MockClock) -> None:
    async with rig(Serves()) as r:
        with pytest.raises(FluxError, match="as asked") as caught:
            await served(r, "fails", errnum=Errno.ENOENT)
        assert caught.value.errnum == Errno.ENOENT
        for payload, text in [({"says": 3}, "expected a dict, got 3"), ({}, "KeyError: 'says'")]:
            with pytest.raises(FluxError) as caught:
                await served(r, "fails", **payload)
            assert caught.value.errnum == Errno.EINVAL
            assert caught.value.text == f"plugin serves failed in service fails: {text}"
        with pytest.raises(FluxError, match="no answer in 60 s"):
            await served(r, "slow.one", s=100)


async def test_methods_are_gone_with_the_plugin(autojump_clock: MockClock) -> None:
    async with rig(Serves()) as r, trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(FluxError, match="plugin serves was removed") as caught:
                await served(r, "slow.one", s=50)
            assert caught.value.errnum == Errno.ENOSYS

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await r.host.remove("serves")
        assert r.host.method("job-manager.serves.status") is None


# --- queries


async def test_query_tells_the_plugins_data_and_what_its_hooks_took() -> None:
    class Tells(Plugin):
        running = jobtap.counter(State.RUN, key=lambda job: job.userid)

        @jobtap.on("plugin.query")
        def query(self) -> dict[str, Any]:
            return {"mine": 1, "name": "overwritten"}

        @jobtap.on(PRIORITY)
        def priority(self, job: jobtap.Job) -> None:
            time.sleep(0.001)

    async with rig() as r:
        await r.host.load(Tells(), path="/a/tells.py")
        r.ask()
        r.ask()
        r.move(JOB, State.RUN)
        told = await r.host.query("tells")
        assert (told["name"], told["path"], told["mine"]) == ("tells", "/a/tells.py", 1)
        assert told["counters"] == {"running": {"1000": 1}}
        took = told["hooks"][PRIORITY]
        assert took["count"] == 2
        assert took["total"] >= 2 * 0.001
        assert took["max"] <= took["total"]


async def test_plugin_that_is_of_no_file_has_the_path_of_a_builtin_module() -> None:
    async with rig(Serves()) as r:
        assert (await r.host.query("serves"))["path"] == "builtin"


async def test_query_that_fails_says_why() -> None:
    async with rig(handling("plugin.query", lambda: 3), Serves()) as r:
        with pytest.raises(PluginError, match=r"plugin a failed in plugin\.query: expected a dict"):
            await r.host.query("a")
        with pytest.raises(PluginError, match="plugin b is not loaded"):
            await r.host.query("b")
        assert (await r.host.query("serves"))["name"] == "serves"
