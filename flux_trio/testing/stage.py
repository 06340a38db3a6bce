"""The surroundings of the job manager in the plugin harness: a scheduler and an execution service
that act only on request, and clients of any user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import User
from flux_trio.editions.kvs import CommitValues
from flux_trio.editions.rfc27 import AllocAnswer, AllocType
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Jobspec, ResourceSet, format_fluid, format_r, job_key
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.messages import Errno, Event, Payload, Request, Response, respond_error, topics
from flux_trio.sim import make_machine
from flux_trio.testing.fixtures import EPOCH, USERID
from flux_trio.trace import Sink

NNODES: Final = 256
CORES: Final = 64
EXEC: Final = "job-exec"
_MODULES: Final = ("kvs", "resource", "job-manager", "job-ingest", "job-list")


class Stage:
    """The instance without the plugins."""

    def __init__(
        self,
        plugins: Iterable[Plugin],
        config: Config,
        users: Mapping[int, tuple[str, Iterable[str]]],
        sink: Sink,
    ) -> None:
        simulated = msgspec.structs.replace(config.exec, simulate=True)
        self._config = msgspec.structs.replace(config, exec=simulated)
        self._edition = config.edition_value
        self._users = users
        self._given = Surroundings(
            inventory=make_machine(NNODES, CORES),
            userid=USERID,
            epoch=EPOCH,
            plugins=plugins,
            sinks=[sink],
            modules=_MODULES,
            users=self._find_user,
        )
        self._instance: Instance
        self._peers: AsyncExitStack
        self._clients: dict[int, Handle] = {}
        self._sched: Handle
        self._exec: Handle
        self.offered: dict[int, Request] = {}  # open sched.alloc requests
        self.starts: dict[int, Request] = {}  # start requests whose job is not over
        self._granted: dict[int, list[int]] = {}  # ranks
        self._free = list(reversed(range(NNODES)))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the instance with the scheduler and the execution service attached."""
        async with (
            open_instance(self._config, self._given) as self._instance,
            AsyncExitStack() as self._peers,
            trio.open_nursery() as nursery,
        ):
            self._sched = await self._connect("sched", USERID)
            self._exec = await self._connect(EXEC, USERID)
            await self._attach()
            nursery.start_soon(self._serve_sched)
            nursery.start_soon(self._serve_exec)
            yield
            nursery.cancel_scope.cancel()

    def log_lines(self) -> list[str]:
        return [str(entry) for entry in list(self._instance.log)]

    # --- clients

    async def request(
        self, topic: str, payload: dict[str, Any], userid: int | None = None
    ) -> dict[str, Any]:
        """Send a request as the owner or as another user. Raises FluxError."""
        client = await self._client(USERID if userid is None else userid)
        return await client.call(topic, payload)

    async def submit(self, userid: int, jobspec: dict[str, Any], urgency: int) -> int:
        """Submit a job, and return its id. Raises FluxError."""
        payload = {"jobspec": jobspec, "urgency": urgency}
        answer = await self.request(topics.INGEST_SUBMIT, payload, userid)
        jobid: int = answer["id"]
        return jobid

    async def _client(self, userid: int) -> Handle:
        if userid not in self._clients:
            self._clients[userid] = await self._connect(f"user-{userid}", userid)
        return self._clients[userid]

    async def _connect(self, name: str, userid: int) -> Handle:
        return await self._peers.enter_async_context(self._instance.connect(name, userid=userid))

    async def _find_user(self, userid: int) -> User:
        if userid not in self._users:
            return User()
        name, groups = self._users[userid]
        return User(name, frozenset(groups))

    # --- the scheduler

    async def _attach(self) -> None:
        self._sched.register(topics.SCHED)
        async with self._sched.stream(topics.SCHED_HELLO) as jobs:
            async for _ in jobs:
                pass
        await self._sched.call(topics.SCHED_READY, {"mode": "unlimited"})
        self._exec.register(EXEC)
        self._exec.subscribe(topics.JOB_EXCEPTION_EVENT)
        await self._exec.call(topics.EXEC_HELLO, {"service": EXEC})

    async def _serve_sched(self) -> None:
        while True:
            for message in await self._sched.receive():
                if isinstance(message, Request) and isinstance(message.payload, dict):
                    self._scheduled(message, message.payload)

    def _scheduled(self, request: Request, payload: dict[str, Any]) -> None:
        match request.topic:
            case topics.SCHED_ALLOC:
                self.offered[payload["id"]] = request
            case topics.SCHED_CANCEL:
                self._answer(payload["id"], AllocType.CANCEL)
            case topics.SCHED_FREE:
                self._free += self._granted.pop(payload["id"], [])
                if self._edition.free_answer is not None:
                    self._sched.send(_response(request, {"id": payload["id"]}))
            case topics.SCHED_EXPIRATION:
                self._sched.send(_response(request, {}))
            case topics.SCHED_EXPLAIN:
                refusal = respond_error(request, Errno.ENOSYS, "the test schedules")
                assert refusal is not None
                self._sched.send(refusal)

    async def grant(self, jobid: int) -> None:
        """Allocate whole nodes to a job with an open alloc request."""
        payload = _expect(self.offered, jobid, "it is not offered to the scheduler").payload
        assert isinstance(payload, dict)
        nnodes = Jobspec.parse_general(payload["jobspec"]).nnodes or 1
        if nnodes > len(self._free):
            raise AssertionError(
                f"job {format_fluid(jobid, 'f58')}: it needs {nnodes} nodes, and "
                f"{len(self._free)} of the {NNODES} nodes of the plugin harness are free"
            )
        ranks = sorted(self._free.pop() for _ in range(nnodes))
        self._granted[jobid] = ranks
        resources = ResourceSet.build(
            ((rank, (1 << CORES) - 1, 0) for rank in ranks),
            "node{}".format,
            starttime=EPOCH + trio.current_time(),
        )
        key = job_key(jobid, "R")
        text = format_r(resources)
        put = CommitValues([["put", key, text]])
        await self._sched.call(topics.KVS_COMMIT, self._edition.kvs.commit(put))
        granted = AllocAnswer(jobid, AllocType.SUCCESS, R=resources)
        request = self.offered.pop(jobid)
        self._sched.send(_response(request, self._edition.alloc_answer.write(granted)))

    async def deny(self, jobid: int, note: str) -> None:
        self._answer(jobid, AllocType.DENY, note=note)

    def _answer(self, jobid: int, kind: AllocType, **more: Any) -> None:
        request = self.offered.pop(jobid, None)
        if request is not None:
            self._sched.send(_response(request, {"id": jobid, "type": int(kind), **more}))

    # --- the execution service

    async def _serve_exec(self) -> None:
        while True:
            for message in await self._exec.receive():
                payload = message.payload
                if isinstance(message, Request) and message.topic == f"{EXEC}.start":
                    self.starts[payload["id"]] = message
                elif isinstance(message, Event):
                    await self._excepted(payload["id"], payload["severity"])

    async def _excepted(self, jobid: int, severity: int) -> None:
        """End the processes of a job at once after a fatal exception."""
        if severity == 0 and jobid in self.starts:
            await self.executed(jobid, StartType.RELEASE)

    async def executed(self, jobid: int, kind: StartType, **data: Any) -> None:
        """Send a response of the execution service to a job's start request."""
        request = _expect(self.starts, jobid, "the execution service is not asked to start it")
        if kind == StartType.RELEASE:
            ranks = ",".join(map(str, self._granted.get(jobid, [])))
            data = {"ranks": ranks, "final": True}
            del self.starts[jobid]
        self._exec.send(_response(request, {"id": jobid, "type": kind, "data": data}))


def _expect(requests: Mapping[int, Request], jobid: int, why_not: str) -> Request:
    """Return the request of a job. Raises AssertionError with `why_not` if there is none."""
    if jobid not in requests:
        raise AssertionError(f"job {format_fluid(jobid, 'f58')}: {why_not}")
    return requests[jobid]


def _response(request: Request, payload: Payload) -> Response:
    return Response(request.topic, payload, matchtag=request.matchtag, routes=request.routes)
