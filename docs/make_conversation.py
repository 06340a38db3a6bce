"""Conversations with an instance, message by message, as JSON and as bytes.

They have happened: a simulated instance runs while they are made. The pages on writing a scheduler
and on the wire show them as samples; see `make_samples`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import cbor2
import trio
import trio.testing

from flux_trio.formats import Jobspec, job_key
from flux_trio.instance import Instance
from flux_trio.messages import ROLE_OWNER, Flag, Message, Request, Response, topics
from flux_trio.messages.codec import encode
from flux_trio.sim import make_machine
from flux_trio.testing import USERID, simulated_instance
from flux_trio.transports import Credentials, MemoryConnection, memory_pair

BYTES_MAX: Final = 120  # of a message whose bytes are shown; longer ones are JSON with bytes
WIDTH: Final = 96  # of a line
STREAMING: Final = int(Flag.STREAMING)
NORESPONSE: Final = int(Flag.NORESPONSE)
RUN_S: Final = 30.0


class Line(NamedTuple):
    """A message, whether the peer sends it, and a remark."""

    ours: bool
    message: Message
    remark: str


class Peer:
    """Sends to an instance, and notes what it sends and what it is sent."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._arrived: list[Message] = []
        self.lines: list[Line] = []

    def send(self, message: Request | Response, remark: str = "") -> None:
        self._connection.send_nowait(message)
        self.lines.append(Line(True, message, remark))

    async def receive(self, remark: str = "") -> Any:
        """Note the next message, and return it."""
        if not self._arrived:
            with trio.fail_after(RUN_S + 1):
                self._arrived += await self._connection.receive()
        message = self._arrived.pop(0)
        self.lines.append(Line(False, message, remark))
        return message


def run(talk: Callable[[Instance, Peer], Awaitable[None]]) -> list[Line]:
    """Return the lines of a conversation with a fresh instance of two nodes."""

    async def main() -> list[Line]:
        ours, theirs = memory_pair()
        peer = Peer(ours)
        machine = make_machine(nnodes=2, cores_per_node=4)
        async with simulated_instance(machine) as instance, trio.open_nursery() as nursery:
            owner = Credentials(USERID, ROLE_OWNER, "peer")
            nursery.start_soon(instance.serve, theirs, owner)
            await talk(instance, peer)
            await ours.aclose()
        return peer.lines

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def submit(instance: Instance) -> int:
    """Submit a job with a time limit of a minute; return its id."""
    jobspec = Jobspec.from_command(
        ["true"], duration=60.0, attributes={"system.exec.test.run_duration": RUN_S}
    )
    async with instance.connect("client") as client:
        answer = await client.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()})
    return int(answer["id"])


async def schedule(instance: Instance, peer: Peer) -> None:
    """Start as a scheduler, give a job resources, and free them."""
    await instance.supervisor.remove("sched")
    peer.send(Request(topics.BROKER_REGISTER, {"service": "sched"}, 1), "the service's name")
    await peer.receive("it is yours")
    acquire = Request(topics.RESOURCE_ACQUIRE, {"group": "default"}, 2, STREAMING)
    peer.send(acquire, "the machine; this stream stays open")
    grown = await peer.receive("the first grow: all nodes, and which are up")
    hello = Request(topics.SCHED_HELLO, None, 3, STREAMING)
    peer.send(hello, "which jobs have resources already?")
    await peer.receive("none, or no more: ENODATA")
    ready = Request(topics.SCHED_READY, {"mode": "unlimited"}, 4)
    peer.send(ready, "from now on requests come")
    await peer.receive("so many jobs wait")
    jobid = await submit(instance)
    remark = "a job: answer when it has resources; matchtag 0, since the id pairs them"
    asked = await peer.receive(remark)
    granted = json.dumps(_first_core(grown.payload["resources"], asked), separators=(",", ":"))
    commit = Request(topics.KVS_COMMIT, {"ops": [["put", job_key(jobid, "R"), granted]]}, 5)
    peer.send(commit, "R is stored first, and only then ...")
    await peer.receive("... when it is durable ...")
    success = Response(topics.SCHED_ALLOC, {"id": jobid, "type": 0}, routes=asked.routes)
    peer.send(success, "... comes the answer, type 0: SUCCESS")
    freed = await peer.receive("the job is over")
    answer = Response(topics.SCHED_FREE, {"id": jobid}, routes=freed.routes)
    peer.send(answer, "its cores are free")


def _first_core(machine: dict[str, Any], asked: Request) -> dict[str, Any]:
    """Return R of the first core of a machine, from now to the job's time limit."""
    starttime = asked.payload["t_submit"]
    execution = {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["node0"],
        "nslots": 1,
        "starttime": starttime,
        "expiration": starttime + asked.payload["jobspec"]["attributes"]["system"]["duration"],
    }
    return {"version": machine["version"], "execution": execution}


async def look_up(instance: Instance, peer: Peer) -> None:
    """Look up what is there, and what is not."""
    jobid = await submit(instance)
    for matchtag, key in enumerate((job_key(jobid, "R"), "job.1.R"), start=1):
        peer.send(Request(topics.KVS_LOOKUP, {"key": key}, matchtag))
        await peer.receive()


async def watch(instance: Instance, peer: Peer) -> None:
    """Watch an eventlog by a credit that does not suffice, then grant more."""
    jobid = await submit(instance)
    asked = {"id": jobid, "path": "eventlog", "credit": 2}
    peer.send(Request(topics.INFO_WATCH, asked, 7, STREAMING))
    for _ in range(2):
        await peer.receive()
    await trio.testing.wait_all_tasks_blocked()
    more = {"matchtag": 7, "credit": 1}
    peer.send(Request(topics.credit_of(topics.INFO_WATCH), more, 0, NORESPONSE))
    await peer.receive()


async def hear(instance: Instance, peer: Peer) -> None:
    """Hear of the exception of a job."""
    peer.send(Request(topics.BROKER_SUBSCRIBE, {"topic": topics.JOB_EXCEPTION_EVENT}, 1))
    await peer.receive()
    cancel = {"id": await submit(instance), "type": "cancel", "severity": 0}
    async with instance.connect("client") as client:
        await client.call(topics.JOB_RAISE, cancel)
    await peer.receive()
    del peer.lines[:-1]


def samples() -> dict[str, str]:
    """Return the conversations as Markdown, by the names of the samples."""
    return {
        "conversation": "\n\n".join(map(_block, run(schedule))),
        "wire/lookup": _fenced(run(look_up), with_bytes=True),
        "wire/credit": _fenced(run(watch)),
        "wire/event": _fenced(run(hear)),
    }


def _block(line: Line) -> str:
    way = "scheduler -> instance" if line.ours else "instance -> scheduler"
    content = encode(line.message)
    shown = json.dumps(cbor2.loads(content))
    lines = _wrapped(shown)
    lines += textwrap.wrap(content.hex(" ") if len(content) <= BYTES_MAX else "", WIDTH)
    body = "\n".join(lines)
    return f"{way}: {line.remark}\n\n```text\n{body}\n```"


def _wrapped(json: str) -> list[str]:
    return textwrap.wrap(json, WIDTH, break_on_hyphens=False, break_long_words=False)


def _fenced(lines: Sequence[Line], *, with_bytes: bool = False) -> str:
    """Return messages as JSON in comments, each with its bytes, as one block of code."""
    shown: list[str] = []
    for line in lines:
        content = encode(line.message)
        shown += [f"# {each}" for each in _wrapped(json.dumps(cbor2.loads(content)))]
        if with_bytes:
            shown += [*textwrap.wrap(content.hex(" "), WIDTH), ""]
    body = "\n".join(shown).strip()
    return f"```text\n{body}\n```"
