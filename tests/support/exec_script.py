"""The exec core as a script: inputs in, actions out, with a kvs that answers at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.vocabulary import (
    Chunk,
    OutputRead,
    ReadOutput,
    ShellConnected,
    ShellLost,
    ToShell,
)
from flux_trio.cores.stored_jobs import output_key
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import Jobspec, ResourceSet, job_key, parse_eventlog, treeobj
from flux_trio.messages import ROLE_OWNER, Errno, Event, Flag, Request, Response, service_of, topics
from flux_trio.shell.protocol import Done, Started
from flux_trio.trace.kvs import operations_of
from tests.support.asking import OWNER_USERID, asked, gone

OF_JOB = re.compile("job-([0-9]+)")
HELLO_AT = 100.0  # seconds since the Unix epoch: when the script's hello is accepted
START_AT = 110.0  # when its turns are, unless they say otherwise
MANAGER = "job-manager"
RELEASE = ("release", "0", True)
TIMEOUT = ("exception", 0, "timeout", "resource allocation expired")


def resources(
    cores: dict[int, int] | None = None, *, starttime: float = 105.0, expiration: float = 0.0
) -> ResourceSet:
    """R with so many cores on each rank, allocated after the script's hello."""
    counts = cores or {0: 1}
    entries = [(rank, (1 << count) - 1, 0) for rank, count in counts.items()]
    return ResourceSet.build(
        entries, lambda rank: f"node{rank}", starttime=starttime, expiration=expiration
    )


def jobspec(*command: str, test: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """The JSON of a version 1 jobspec; `test` makes it a simulated job."""
    if test is not None:
        options["attributes"] = {"system.exec.test": test}
    return Jobspec.from_command(command or ("true",), **options).to_json()


class ExecScript:
    """A core that has said hello. `kvs` is the content of its kvs; `errors` makes a topic fail.

    Requests with the topics `held` are answered when they are let go.
    `down` has the targets that are down, with the reason for each idset.
    """

    def __init__(
        self,
        *,
        simulate: bool = False,
        has_shell: bool = True,
        connected: bool = True,
        environment: dict[str, str] | None = None,
        kvs: dict[str, str] | None = None,
        down: dict[str, str] | None = None,
        output_limit: str = "1G",
        edition: Edition = CLASSIC,
        guests: GuestSettings | None = None,
    ) -> None:
        config = ExecConfig(simulate=simulate, output_limit=output_limit)
        self.core = ExecCore(
            config, environment=environment, has_shell=has_shell, edition=edition, guests=guests
        )
        self.kvs = {} if kvs is None else kvs
        self.down = {} if down is None else down
        self.errors: dict[str, tuple[int, str]] = {}
        self.held: set[str] = set()
        self._waiting: list[Request] = []
        self.refused_keys: set[str] = set()  # what has one of them is refused, once
        self.lookups: list[str] = []
        self.commits: list[list[list[str]]] = []
        self.journal: Request | None = None
        actions: list[Any] = self.core.start(HELLO_AT)
        if has_shell:
            actions += self.core.turn(HELLO_AT, [ShellConnected()])
        (hello,) = actions
        assert (hello.topic, hello.payload) == ("job-manager.exec-hello", {"service": "job-exec"})
        self.hello = hello
        self(Response(hello.topic, None, 0, hello.matchtag), now=HELLO_AT)
        if has_shell and not connected:
            self(ShellLost("it died"), now=HELLO_AT)

    def __call__(self, *inputs: Any, now: float = START_AT) -> list[Any]:
        """The actions of a turn, and of those that the answers of kvs and journal make."""
        left: list[Any] = []
        actions: list[Any] = self.core.turn(now, list(inputs))
        while actions:
            answers = []
            for action in actions:
                if isinstance(action, Request) and action.topic in self.held:
                    self._waiting.append(action)
                elif (
                    isinstance(action, Request) and service_of(action.topic) in topics.KVS_SERVICES
                ):
                    answers.append(self._kvs(action))
                elif isinstance(action, Request) and action.topic == topics.JOB_JOURNAL:
                    self.journal = action
                elif isinstance(action, Request) and action.topic == topics.RESOURCE_STATUS:
                    status = {"down": {t: {"reason": why} for t, why in self.down.items()}}
                    answers.append(Response(action.topic, status, 0, action.matchtag))
                else:
                    left.append(action)
            actions = self.core.turn(now, answers) if answers else []
        return left

    def let_go(self) -> list[Any]:
        """Answer the requests that were held, and hold none any more."""
        waiting, self._waiting, self.held = self._waiting, [], set()
        return self(*map(self._kvs, waiting))

    def next_manager(self) -> None:
        """The job manager is lost, and the next one accepts the hello."""
        self.accept_hello(self(gone("job-exec", MANAGER)))

    def accept_hello(self, actions: list[Any]) -> None:
        """The job manager accepts the hello among `actions`."""
        sent = [each for each in actions if isinstance(each, Request)]
        (hello,) = [each for each in sent if each.topic == topics.EXEC_HELLO]
        self(Response(hello.topic, None, 0, hello.matchtag))

    def start(
        self,
        jobid: int,
        spec: dict[str, Any],
        r: ResourceSet | None = None,
        *,
        reattach: bool = False,
        now: float = START_AT,
    ) -> list[Any]:
        """The job manager sends a start for a job whose R is in the kvs."""
        r = r or resources()
        self.put_resources(jobid, r)
        return self(start_request(jobid, spec, reattach=reattach, r=r), now=now)

    def put_resources(self, jobid: int, r: ResourceSet) -> None:
        """Write a job's R."""
        self.kvs[job_key(jobid, "R")] = r_text(r)

    def started(self, jobid: int, spec: dict[str, Any], r: ResourceSet | None = None) -> list[Any]:
        """A real job has been launched."""
        return self.start(jobid, spec, r) + self(Started(jobid))

    def fire(self, actions: list[Any], index: int = -1) -> list[Any]:
        """Let a timer of `actions` fire at its time: the last, unless `index` says otherwise."""
        timer = [action for action in actions if isinstance(action, SetTimer)][index]
        return self(TimerFired(timer.key), now=timer.at)

    def end(self, jobid: int, status: int = 0) -> list[Any]:
        """All tasks of a real job have ended without a word."""
        return self(Done(jobid, status, 1))

    def _kvs(self, request: Request) -> Response:
        assert isinstance(request.payload, dict)
        errnum = 0
        payload: dict[str, Any] | str = {}
        if request.topic in self.errors:
            errnum, payload = self.errors[request.topic]
        elif request.topic.startswith(("kvs.namespace-", "kvs.getroot")):
            errnum, payload = self._namespace(request.topic, request.payload["namespace"])
        elif request.topic == "kvs.lookup":
            key = request.payload["key"]
            if match := OF_JOB.fullmatch(request.payload.get("namespace", "")):
                key = job_key(int(match[1]), f"guest.{key}")
            self.lookups.append(key)
            if key in self.refused_keys:
                self.refused_keys.discard(key)
                errnum, payload = Errno.EIO, f"{key}: not now"
            elif key in self.kvs:
                value = self.kvs[key]
                is_flux = "flags" in request.payload
                payload = {"val": treeobj.val(value)} if is_flux else {"value": value}
            elif any(each.startswith(f"{key}.") for each in self.kvs):
                errnum, payload = Errno.EISDIR, f"{key}: is a directory"
            else:
                errnum, payload = Errno.ENOENT, f"{key}: not found"
        elif request.topic in topics.LOOKUPS:
            payload = {"values": [self.kvs.get(key) for key in request.payload["keys"]]}
        elif request.topic in ("kvs.count", "store.count"):
            below = f"{request.payload['prefix']}."
            payload = {"count": sum(key.startswith(below) for key in self.kvs)}
        else:
            ops = [
                [op, key, *filter(None, [text])] for op, key, text in operations_of(request.payload)
            ]
            refused = [op[1] for op in ops if op[1] in self.refused_keys]
            if refused:
                self.refused_keys.discard(refused[0])
                errnum, payload = Errno.EMSGSIZE, f"{refused[0]}: too long"
            else:
                self._commit(ops)
                self._keep_namespaces(request.payload.get("guests", ()))
        return Response(request.topic, payload, errnum, request.matchtag)

    def _namespace(self, topic: str, name: str) -> tuple[int, Any]:
        """What the kvs of this project says: a job's namespace is a view of its key `guest`."""
        known = f"kvs-namespace.{name}"
        if topic == "kvs.getroot":
            root = {"owner": OWNER_USERID, "rootseq": 1, "rootref": "sha1-x", "flags": 0}
            return 0, {**root, "namespace": name}
        if topic == "kvs.namespace-remove":
            self.kvs.pop(known)
        elif known in self.kvs:
            return Errno.EEXIST, ""
        else:
            self.kvs[known] = "{}"
        return 0, {}

    def _keep_namespaces(self, guests: Iterable[tuple[int, int, bool]]) -> None:
        for jobid, _, is_over in guests:
            known = f"kvs-namespace.job-{jobid}"
            self.kvs[known] = "{}"
            if is_over:
                del self.kvs[known]

    def _commit(self, ops: list[list[str]]) -> None:
        self.commits.append(ops)
        for op, key, *text in ops:
            if op == "put":
                self.kvs[key] = text[0]
            elif op == "append":
                self.kvs[key] = self.kvs.get(key, "") + text[0]
            else:
                self.kvs.pop(key, None)


def start_request(
    jobid: int,
    spec: dict[str, Any],
    *,
    reattach: bool = False,
    userid: int = OWNER_USERID,
    r: ResourceSet | None = None,
) -> Request:
    """RFC 32, Start Request; the current edition requires `r`."""
    payload = {"id": jobid, "userid": userid, "jobspec": spec, "reattach": reattach}
    if r is not None:
        payload["R"] = r.to_json()
    return asked("job-exec.start", payload, by=MANAGER, tag=0)


def r_text(r: ResourceSet) -> str:
    """R as the scheduler writes it."""
    return json.dumps(r.to_json())


def job_exception(jobid: int, kind: str = "cancel", severity: int = 0, **more: int) -> Event:
    """What the job manager publishes."""
    payload = {"id": jobid, "type": kind, "severity": severity, **more}
    return Event("job-exception", payload, rolemask=ROLE_OWNER)


def offline(targets: str, reason: str = "") -> Event:
    """The resource service publishes that targets have gone down."""
    payload = {"targets": targets, "reason": reason}
    return Event(topics.RESOURCE_OFFLINE_EVENT, payload, rolemask=ROLE_OWNER)


def online(targets: str) -> Event:
    """The resource service publishes that targets are up again."""
    return Event(topics.RESOURCE_ONLINE_EVENT, {"targets": targets}, rolemask=ROLE_OWNER)


def told(actions: list[Any]) -> list[tuple[Any, ...]]:
    """The answers to start requests, as (type, what matters of data)."""
    found: list[tuple[Any, ...]] = []
    for action in actions:
        if isinstance(action, Response) and action.topic == "job-exec.start":
            assert action.errnum == 0
            assert action.matchtag == 0
            assert action.routes == (MANAGER,)
            assert isinstance(action.payload, dict)
            assert set(action.payload) == {"id", "type", "data"}
            found.append((action.payload["type"], *action.payload["data"].values()))
    return found


def files_read(
    script: ExecScript, actions: list[Any], files: dict[tuple[int, int, str], bytes]
) -> list[Any]:
    """Answer every ReadOutput from `files`, by job, task and stream; the actions that are left."""
    left: list[Any] = []
    while actions:
        read, *rest = actions
        if isinstance(read, ReadOutput):
            chunks = []
            for part in read.parts:
                data = files.get((read.id, part.taskid, part.stream), b"")
                if data := data[part.offset : part.offset + part.nbytes]:
                    chunks.append(Chunk(part.taskid, part.stream, part.offset, data))
            rest += script(OutputRead(read.number, read.id, tuple(chunks)))
        else:
            left.append(read)
        actions = rest
    return left


def stored_output(script: ExecScript, jobid: int) -> list[list[dict[str, Any]]]:
    """The contexts of the events of each piece of a job's output that the kvs has."""
    pieces: list[list[dict[str, Any]]] = []
    while (text := script.kvs.get(job_key(jobid, output_key(len(pieces))))) is not None:
        pieces.append([event.context or {} for event in parse_eventlog(text)])
    return pieces


def to_shell(actions: list[Any]) -> list[Any]:
    """What was sent to the shell host."""
    return [action.request for action in actions if isinstance(action, ToShell)]


def timers(actions: list[Any]) -> list[float]:
    """When the timers that were set fire."""
    return [action.at for action in actions if isinstance(action, SetTimer)]


def journal(script: ExecScript, jobid: int, expiration: float) -> Response:
    """The job manager's journal tells of a new expiration."""
    assert script.journal is not None
    event = {"timestamp": 1.0, "name": "resource-update", "context": {"expiration": expiration}}
    return streamed(script.journal, {"events": [[jobid, 9, event]]})


def stored_release(script: ExecScript, *jobids: int) -> Response:
    """The job manager's journal tells that the final releases of jobs are durable."""
    assert script.journal is not None
    event = {"timestamp": 1.0, "name": "release", "context": {"ranks": "0", "final": True}}
    return streamed(script.journal, {"events": [[jobid, 9, event] for jobid in jobids]})


def streamed(request: Request, payload: dict[str, Any]) -> Response:
    """One more answer to a streaming request."""
    return Response(request.topic, payload, 0, request.matchtag, int(Flag.STREAMING))


def begin_journal(script: ExecScript) -> list[Any]:
    """The job manager's journal has nothing so far."""
    assert script.journal is not None
    return script(streamed(script.journal, {"events": []}))


def simulated(run_duration: Any = "1s", **test: Any) -> dict[str, Any]:
    """The jobspec of a simulated job."""
    return jobspec(test={"run_duration": run_duration, **test})
