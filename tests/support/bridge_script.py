"""Our execution service's core and its bridge to flux-core as a script; the kvs answers at once."""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import Any

from flux_trio.attach.exec.bridge import ExecBridge, Instance
from flux_trio.attach.exec.run import OUTPUT_BYTES, SERVICE
from flux_trio.config import ExecConfig
from flux_trio.cores.exec.calls import POLL
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput, ShellConnected, ToShell
from flux_trio.cores.turns import Exit, Log, TimerFired
from flux_trio.editions import CURRENT
from flux_trio.formats import ResourceSet, format_event, format_eventlog, job_key, parse_eventlog
from flux_trio.messages import ROLE_OWNER, Event, Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.shell.protocol import Attach, Done, Start, Started, TaskSize, Unknown
from tests.support.asking import OWNER_USERID
from tests.support.eventlogs import event
from tests.support.exec_script import jobspec, resources
from tests.support.flux_kvs import FluxKvs

NOW = 110.0
MANAGER = ("broker", "job-manager")
START = f"{SERVICE}.start"
KNOWN = {"kvs.lookup", "kvs.commit", "kvs.namespace-create", "kvs.namespace-remove"}
KNOWN |= {"kvs.namespace-list", "kvs.getroot"}
INSTANCE = Instance(OWNER_USERID, 0, "sha1-empty", "/", "f58")


def j(spec: dict[str, Any], environment: dict[str, str] | None = None) -> str:
    """The signed jobspec that flux-core keeps."""
    signed = json.loads(json.dumps(spec))
    signed["attributes"]["system"]["environment"] = environment or {"PATH": "/bin"}
    parts = [b"version\0i1\0", json.dumps(signed).encode()]
    return ".".join([*(base64.b64encode(part).decode() for part in parts), "none"])


class BridgeScript:
    """A core that has said hello over a bridge. `files` has what tasks have written.

    `told` are the answers to start requests, `sent` the other messages to the broker, `shell` the
    requests to the shell host, `logs` the lines for the log, in order.
    """

    def __init__(self, kvs: FluxKvs | None = None, *, backlog_first: bool = False) -> None:
        self._begin(kvs)
        self.answer(self.pop(topics.EXEC_HELLO))
        self.journal = self.pop(topics.JOB_EVENTS)
        if not backlog_first:
            self.tell_journal(-1)
        self.kvs.requests.clear()

    @classmethod
    def refused(cls, errnum: int, text: str | None) -> BridgeScript:
        """A script whose hello flux-core refuses."""
        script = cls.__new__(cls)
        script._begin(None)
        script.answer(script.pop(topics.EXEC_HELLO), text, errnum)
        return script

    @classmethod
    def looking(cls, kvs: FluxKvs) -> BridgeScript:
        """A script that knows which namespaces are left; the kvs holds what it asks about them."""
        script = cls.__new__(cls)
        script._begin(kvs)
        script.hold()
        script.answer(script.pop(topics.EXEC_HELLO))
        script.journal = script.pop(topics.JOB_EVENTS)
        script.tell_journal(-1)
        assert script.held is not None
        script._ask_kvs(script.held.pop(0))
        return script

    def _begin(self, kvs: FluxKvs | None) -> None:
        config = ExecConfig(output_limit=str(OUTPUT_BYTES))
        guests = GuestSettings(root=INSTANCE.empty_root, is_stored=True, leader=INSTANCE.rank)
        self.core = ExecCore(
            config, has_shell=True, service=SERVICE, edition=CURRENT, guests=guests
        )
        self.kvs = kvs or FluxKvs()
        self.files: dict[tuple[int, int, str], bytes] = {}
        self.told: list[Response] = []
        self.sent: list[Any] = []
        self.shell: list[Any] = []
        self.logs: list[str] = []
        self.exits: list[str] = []
        self.end = ""
        self.held: list[Request] | None = None
        self.is_ready = False
        self.bridge = ExecBridge(SERVICE, INSTANCE, self._ready)
        self._actions(self.core.start(NOW))
        self.core_gets(ShellConnected())

    def _ready(self) -> None:
        self.is_ready = True

    # What happens

    def start(self, jobid: int = 7, spec: Any = None, *, reattach: bool = False) -> None:
        """flux-core asks for a job, whose R and J it has stored."""
        spec = spec or jobspec("true")
        r = resources()
        self.store(jobid, spec, r)
        payload = {"id": jobid, "userid": OWNER_USERID, "jobspec": spec, "reattach": reattach}
        self.broker_says(
            Request(
                START,
                payload | {"R": r.to_json()},
                userid=OWNER_USERID,
                rolemask=ROLE_OWNER,
                routes=MANAGER,
            )
        )

    def store(self, jobid: int, spec: Any, r: ResourceSet, *more: Any) -> None:
        primary = self.kvs.spaces["primary"]
        primary[job_key(jobid, "R")] = json.dumps(r.to_json())
        primary.setdefault(job_key(jobid, "J"), j(spec))
        submit = event("submit", userid=OWNER_USERID, urgency=16, flags=0, version=1)
        primary.setdefault(job_key(jobid, "jobspec"), json.dumps(spec))
        primary.setdefault(job_key(jobid, "eventlog"), format_eventlog([submit, *more]))

    def launched(self, jobid: int = 7) -> None:
        """The shell host has launched what it was asked for."""
        assert isinstance(self.shell[-1], Start | Attach)
        self.core_gets(Started(jobid))

    def ended(self, status: int = 0, jobid: int = 7) -> None:
        """All tasks have ended."""
        sizes: dict[int, dict[str, int]] = {}
        for (job, task, stream), data in self.files.items():
            if job == jobid:
                sizes.setdefault(task, {"stdout": 0, "stderr": 0})[stream] = len(data)
        tasks = [TaskSize(task, **size) for task, size in sizes.items()]
        self.core_gets(Done(jobid, status, 1, sizes=tasks))

    def unknown(self, jobid: int = 7) -> None:
        """The shell host does not know the job."""
        self.core_gets(Unknown(jobid))

    def poll(self) -> None:
        """The time has come to look for more output."""
        self.core_gets(TimerFired(POLL))

    def broker_says(self, message: Any) -> None:
        self._carry(self.bridge.from_broker(message))

    def signal(self, jobid: int, signum: Any, rolemask: int = ROLE_OWNER) -> None:
        self.broker_says(Event(f"shell-{jobid}.kill", {"signum": signum}, rolemask=rolemask))

    def tell_journal(self, jobid: int, *events: Any) -> None:
        payload = {"id": jobid, "events": [json.loads(format_event(each)) for each in events]}
        self.answer(self.journal, payload)

    def hold(self) -> None:
        """Let the kvs answer nothing until `let_go`."""
        self.held = []

    def let_go(self) -> None:
        held, self.held = self.held or [], None
        for request in held:
            self._ask_kvs(request)

    def answer(self, request: Request, payload: Any = None, errnum: int = 0) -> None:
        flags = 0 if errnum else request.flags & STREAMING
        self.broker_says(Response(request.topic, payload, errnum, request.matchtag, flags))

    # What is there

    def pop(self, topic: str) -> Any:
        """The first message of `topic` that was sent; it is forgotten."""
        found = next(each for each in self.sent if each.topic == topic)
        self.sent.remove(found)
        return found

    def answers(self) -> list[tuple[str, Any]]:
        """What flux-core was told of jobs, as type and data."""
        payloads: list[Any] = [each.payload for each in self.told]
        return [(each["type"], each["data"]) for each in payloads]

    def text(self, name: str, jobid: int = 7) -> str:
        """What a reader finds in the room of a job, wherever it is."""
        payload = {"key": job_key(jobid, f"guest.{name}"), "namespace": "primary", "flags": 0}
        answer = self.kvs.answer(Request("kvs.lookup", payload))
        found: Any = answer and answer.payload
        return base64.b64decode(found["val"]["data"]).decode() if found else ""

    def events(self, jobid: int = 7) -> list[str]:
        return [each.name for each in parse_eventlog(self.text("exec.eventlog", jobid))]

    def output(self, jobid: int = 7) -> dict[str, str]:
        """The output in the room, by stream; "eof" has the streams that have ended."""
        streams = {"stdout": "", "stderr": "", "eof": ""}
        for each in parse_eventlog(self.text("output", jobid)):
            context: Any = each.context
            if each.name == "data":
                streams[context["stream"]] += context.get("data", "")
                streams["eof"] += context["stream"] if context.get("eof") else ""
        return streams

    # Carrying

    def core_gets(self, *inputs: Any) -> None:
        self._actions(self.core.turn(NOW, list(inputs)))

    def _actions(self, actions: Any) -> None:
        waiting = deque(actions)
        while waiting:
            match waiting.popleft():
                case Request() | Response() | Event() as message:
                    self._carry(self.bridge.from_core(message))
                case ToShell(request):
                    self.shell.append(request)
                case Exit(reason):
                    self.exits.append(reason)
                case Log(_, text):
                    self.logs.append(text)
                case ReadOutput() as read:
                    waiting.extend(self.core.turn(NOW, [self._read(read)]))

    def _carry(self, sent: Any) -> None:
        self.logs += [text for _, text in sent.logs]
        self.end = sent.end
        if sent.to_core:
            self.core_gets(*sent.to_core)
        for message in sent.to_broker:
            if isinstance(message, Request) and message.topic in KNOWN and self.held is not None:
                self.held.append(message)
            elif isinstance(message, Request) and message.topic in KNOWN:
                self._ask_kvs(message)
            elif isinstance(message, Response) and message.topic == START:
                assert (message.routes, message.errnum, message.matchtag) == (MANAGER, 0, 0)
                self.told.append(message)
            else:
                self.sent.append(message)

    def _ask_kvs(self, request: Request) -> None:
        answer = self.kvs.answer(request)
        if answer is not None:
            self.broker_says(answer)

    def _read(self, read: ReadOutput) -> OutputRead:
        chunks = []
        for part in read.parts:
            written = self.files.get((read.id, part.taskid, part.stream), b"")
            data = written[part.offset : part.offset + part.nbytes]
            if data:
                chunks.append(Chunk(part.taskid, part.stream, part.offset, data))
        return OutputRead(read.number, read.id, tuple(chunks))
