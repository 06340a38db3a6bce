"""Our scheduler at a broker of flux-core, here a scripted one at a real socket."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.attach import sched
from flux_trio.attach.handle import open_flux
from flux_trio.broker import ServiceExit
from flux_trio.formats import job_key, treeobj
from flux_trio.messages import Errno, FluxError, Request, Response, topics
from flux_trio.process.groups import unwrapping
from flux_trio.transports import EndOfConnection
from tests.support.flux_peer import Broker, broker
from tests.support.sched_script import jobspec
from tests.support.scheduling import machine

R: dict[str, Any] = machine(2, 2).to_json()
HELD = machine(1, 2).to_json()
MANAGER = ("job-manager", "broker")
ANSWERS: dict[str, Any] = {
    "module.list": {"mods": [{"name": "connector-local"}, {"name": "resource", "services": []}]},
    "config.get": {},
    "resource.acquire": [{"resources": R, "up": "0-1"}],
    "job-manager.sched-hello": [],  # it is answered by hand
    "job-manager.sched-ready": {"count": 0},
    "kvs.lookup": {"val": treeobj.val(json.dumps(HELD))},
    "kvs.commit": {"rootref": "sha1-0", "rootseq": 1},
}


class Served:
    """A scheduler that serves at `peer`."""

    def __init__(self, peer: Broker) -> None:
        self.peer = peer
        self.ready: list[int] = []  # how many jobs held resources then

    async def greet(self, *held: dict[str, Any]) -> Request:
        """Answer hello with the jobs that hold resources; return the request."""
        hello: Request = await self.peer.until(topics.SCHED_HELLO)
        for payload in held:
            self.peer.send(Response(hello.topic, payload, 0, hello.matchtag, hello.flags))
        self.peer.send(Response(hello.topic, None, Errno.ENODATA, hello.matchtag, hello.flags))
        return hello

    def ask(self, topic: str, payload: Any = None, matchtag: int = 0) -> None:
        """Send a request of the job manager."""
        self.peer.send(Request(topic, payload, matchtag, userid=0, rolemask=5, routes=MANAGER))

    async def answer(self, topic: str = topics.SCHED_ALLOC) -> Response:
        """Return the next answer to the job manager."""
        answer: Response = await self.peer.until(topic)
        assert answer.routes == MANAGER
        return answer


@asynccontextmanager
async def serving(path: Path, answers: dict[str, Any] | None = None) -> AsyncIterator[Served]:
    """A scheduler at a broker that answers as in ANSWERS, or else as in `answers`."""
    with unwrapping(FluxError, ServiceExit, EndOfConnection):
        async with (
            broker(path / "local", ANSWERS | (answers or {})) as peer,
            open_flux(peer.uri, "sched") as flux,
            trio.open_nursery() as nursery,
        ):
            served = Served(peer)
            await nursery.start(partial(sched.run, flux, "fifo", served.ready.append))
            yield served
            nursery.cancel_scope.cancel()


def held(jobid: int, **more: Any) -> dict[str, Any]:
    return {"id": jobid, "priority": 16, "userid": 0, "t_submit": 1.0, **more}


def alloc(jobid: int, spec: Any) -> dict[str, Any]:
    return {**held(jobid), "jobspec": spec}


async def test_grants_are_in_the_kvs_before_success_and_leave_out_what_jobs_hold(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        assert (await served.peer.until(topics.RESOURCE_ACQUIRE)).payload is None
        hello = await served.greet(held(7))
        assert (hello.payload, hello.is_streaming) == ({"partial-ok": True}, True)
        assert (await served.peer.until(topics.KVS_LOOKUP)).payload["key"] == job_key(7, "R")
        assert (await served.peer.until(topics.SCHED_READY)).payload == {"mode": "unlimited"}
        served.ask(topics.SCHED_ALLOC, alloc(8, jobspec(2)))
        commit = await served.peer.until(topics.KVS_COMMIT)
        success = await served.answer()
        (op,) = commit.payload["ops"]
        assert op["key"] == job_key(8, "R")
        assert isinstance(success.payload, dict)
        assert (success.payload["id"], success.payload["type"], success.errnum) == (8, 0, 0)
        assert json.loads(base64.b64decode(op["dirent"]["data"])) == success.payload["R"]
        assert success.payload["R"]["execution"]["R_lite"] == [
            {"rank": "1", "children": {"core": "0-1"}}
        ]
        assert served.ready == [1]


async def test_success_waits_for_the_commit(tmp_path: Path) -> None:
    async with serving(tmp_path, {"kvs.commit": []}) as served:
        await served.greet()
        await served.peer.until(topics.SCHED_READY)
        served.ask(topics.SCHED_ALLOC, alloc(8, jobspec(2)))
        commit = await served.peer.until(topics.KVS_COMMIT)
        served.ask(topics.stats_of(topics.SCHED), {}, 9)
        stats = await served.answer(topics.stats_of(topics.SCHED))
        assert isinstance(stats.payload, dict)
        assert (stats.payload["granting"], stats.payload["allocated"]) == (1, 0)
        said = [getattr(each, "topic", "") for each in served.peer.came]  # and not asked for yet
        assert topics.SCHED_ALLOC not in said
        served.peer.send(Response(commit.topic, {"rootseq": 1}, 0, commit.matchtag))
        assert (await served.answer()).topic == topics.SCHED_ALLOC


async def test_other_methods_are_answered_as_modules_do(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.greet()
        await served.peer.until(topics.SCHED_READY)
        served.ask("sched.ping", {"seq": 3, "pad": ""}, 1)
        pong = (await served.answer("sched.ping")).payload
        who = {"userid": 0, "rolemask": 5, "rank": 0}
        assert pong == {"seq": 3, "pad": "", "route": "job-mana!broker", **who}
        served.ask("sched.rusage", None, 2)
        used = (await served.answer("sched.rusage")).payload
        assert isinstance(used, dict)
        assert {"utime", "stime", "maxrss", "nivcsw"} <= used.keys()
        served.ask("feasibility.check", {"jobspec": jobspec(5)}, 3)
        assert (await served.answer("feasibility.check")).errnum == Errno.EOVERFLOW
        served.ask("sched.expiration", {"id": 3, "expiration": 9.0}, 4)
        assert (await served.answer("sched.expiration")).errnum == Errno.ENOENT
        served.ask("sched.nosuch", None, 5)
        assert (await served.answer("sched.nosuch")).errnum == Errno.ENOSYS


async def test_job_manager_that_returns_is_greeted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """readings: Job manager gone."""
    monkeypatch.setattr(sched, "SEEK_MANAGER_S", 0.001)
    async with serving(tmp_path) as served:
        await served.greet()
        await served.peer.until(topics.SCHED_READY)
        served.ask(topics.SCHED_ALLOC, alloc(8, jobspec(4)))
        await served.answer()
        served.peer.answers[topics.SCHED_HELLO] = (Errno.ENOSYS, None)
        served.ask("sched.disconnect")
        await served.peer.until(topics.SCHED_HELLO)
        await served.peer.until("job-manager.ping")
        served.peer.answers |= {topics.SCHED_HELLO: [], "job-manager.ping": {}}
        await served.greet(held(7))
        await served.peer.until(topics.SCHED_READY)
        served.ask(topics.SCHED_ALLOC, alloc(9, jobspec(2)))
        assert (await served.answer()).payload["id"] == 9  # type: ignore[index]
    assert served.ready == [0, 1]


@pytest.mark.parametrize(
    ("modules", "text"),
    [
        (
            {"name": "sched-simple", "services": ["feasibility", "sched"]},
            "the module sched-simple serves sched; unload it first: flux module remove sched-simp",
        ),
        (
            {"name": "connector-local", "services": ["sched"]},
            "another program at this broker serves sched; end it first",
        ),
    ],
)
async def test_second_scheduler_is_refused_with_the_way_out(
    tmp_path: Path, modules: Any, text: str
) -> None:
    with pytest.raises(FluxError, match=text) as raised:
        async with serving(tmp_path, {"module.list": {"mods": [modules]}}):
            pass
    assert raised.value.errnum == Errno.EEXIST


async def ended(
    path: Path, answers: dict[str, Any], *told: dict[str, Any], leaves: bool = False
) -> str:
    """Return why a scheduler ends by itself; the broker may leave after hello."""
    try:
        async with serving(path, answers) as served:
            if told:
                await served.greet(*told)
            if leaves:
                assert served.peer.connection is not None
                await served.peer.connection.aclose()
            await trio.sleep_forever()
    except (FluxError, ServiceExit, EndOfConnection) as error:
        return str(error)
    raise AssertionError("it waits for ever")


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"service.add": (Errno.EEXIST, None)}, "service.add: sched: File exists"),
        ({"module.list": {"mods": [{}]}}, "module.list: payload: Object missing required field"),
        ({"config.get": {"queues": []}}, "config.get: payload: Expected `object`, got `array`"),
        (
            {"resource.acquire": (Errno.ECANCELED, "the resource module was unloaded")},
            "resource.acquire: the resource module was unloaded",
        ),
        ({"resource.acquire": [{"resources": R, "up": "0-"}]}, "resource.acquire: up: expected"),
    ],
)
async def test_answer_that_is_not_what_it_says_ends_with_its_topic_and_key(
    tmp_path: Path, answers: dict[str, Any], text: str
) -> None:
    assert (await ended(tmp_path, answers)).startswith(text)


@pytest.mark.parametrize(
    ("answers", "told", "text"),
    [
        ({}, {"id": 7}, "job-manager.sched-hello: payload: Object missing required field"),
        ({}, held(7, free="x"), "job-manager.sched-hello: free: expected"),
        (
            {"kvs.lookup": {"val": {"type": "dir"}}},
            held(7),
            f"store.lookup-all: {job_key(7, 'R')}: kvs.lookup: payload.val: "
            "expected a treeobj of type val",
        ),
        ({"job-manager.sched-ready": (Errno.EPROTO, "no")}, held(7), "job-manager.sched-ready: no"),
    ],
)
async def test_wrong_greeting_ends_with_its_topic_and_key(
    tmp_path: Path, answers: dict[str, Any], told: dict[str, Any], text: str
) -> None:
    assert (await ended(tmp_path, answers, told)).startswith(text)


async def test_end_of_the_broker_ends_the_scheduler(tmp_path: Path) -> None:
    assert await ended(tmp_path, {}, held(7), leaves=True) == "the connection was closed"
