"""The bridge between our execution service and flux-core's broker: which message goes where. Pure.

RFC 32 passes as it is, and so do a job's guest namespace and its standard input. These are in other
shapes on the two sides:

- The environment is in J there, the signed jobspec; here it is in the jobspec. What flux-core's
  shell does with each job is added: its variables, and input that commands send.
- A lookup reads one key there, and as many as are asked for here.
- Services are named by service.add there, by broker.register here.
- Signals come as the event shell-<id>.kill there, as <service>.kill here.
- The journal has one job in a response there, entries of many jobs here.

What flux-core does not have is answered here: whether another service runs jobs, why jobs wait, and
which nodes are down. The last one has no meaning for jobs whose processes are all on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.attach.bridge import Bridge, Forwarded
from flux_trio.attach.exec.journal import Journal
from flux_trio.attach.exec.leftovers import (
    LEFTOVERS,
    Acknowledged,
    Leftover,
    Leftovers,
    NamespacesListed,
    owners_request,
)
from flux_trio.cores.exec.calls import StoredKey
from flux_trio.cores.kvs_calls import value_in
from flux_trio.editions import CURRENT, flux_kvs, rfc21, rfc32
from flux_trio.editions import kvs as our_kvs
from flux_trio.formats import (
    FluidForm,
    FormatError,
    apply_update,
    format_fluid,
    job_directory_of,
    job_key,
    parse_fluid,
    parse_jobspec,
)
from flux_trio.formats.meanings import JobId
from flux_trio.formats.signed_jobspec import content
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    expect_payload,
    respond,
    topics,
)

SHELL_EVENTS: Final = "shell-"
ENVIRONMENT: Final = "attributes.system.environment"
REMOVED: Final = "FLUX_PROXY_REMOTE"
"""A variable that says how the user has reached the instance: jobs reach it by FLUX_URI."""

_WHO: Final = "flux-trio attach exec"
_NAMES: Final = {topics.BROKER_REGISTER: "service.add", topics.BROKER_UNREGISTER: "service.remove"}


class Instance(NamedTuple):
    """What the bridge must know of the instance: see the attributes of its broker."""

    owner: int  # userid
    rank: int
    empty_root: str  # blobref of an empty directory of the kvs
    jobid_path: str
    id_form: FluidForm


class _Kill(msgspec.Struct):
    signum: int


class SpecRead(msgspec.Struct, frozen=True):
    """Answers the lookup of J, for a request of the core about a jobspec."""

    request: Request
    id: JobId


class ExecBridge(Bridge[SpecRead | NamespacesListed | Acknowledged]):
    """Gives messages of the core named `service` to the broker of `instance`, and back.

    `on_ready` is called when flux-core has accepted the service.
    """

    def __init__(self, service: str, instance: Instance, on_ready: Callable[[], None]) -> None:
        super().__init__()
        self._service = service
        self._on_ready = on_ready
        self._instance = instance
        self._start = f"{service}.{topics.START_METHOD}"
        self._journal = Journal(self)
        self._leftovers = Leftovers(self, self._journal, self._start, instance.owner)
        self._from_core = {
            topics.KVS_LOOKUP: self._look_up,
            topics.EXEC_SERVICE: self._is_unknown,
            topics.RESOURCE_STATUS: self.answer_core,
            topics.JOB_HINDRANCE: self._drop,
            topics.JOB_JOURNAL: self._follow,
            topics.BROKER_REGISTER: self._name,
            topics.BROKER_UNREGISTER: self._name,
        }

    # The broker asks

    def broker_asks(self, request: Request) -> None:
        if request.topic == self._start:
            try:
                start = CURRENT.start.read(request)
            except FluxError:
                pass  # the core says what is wrong with it
            else:
                if text := left_out_of(start.jobspec):
                    self._refuse_start(request, start, text)
                    return
                self._journal.asked(start.id)
        super().broker_asks(request)

    def _refuse_start(self, request: Request, start: rfc32.Start, text: str) -> None:
        """Fail a job that needs what is left out; no part of it was started, at any time."""
        ranks = rfc21.ALL_RANKS if start.R is None else str(start.R.ranks)
        raised = rfc32.RaisedException(rfc21.SEVERITY_FATAL, "exec", text)
        for report in (raised, rfc32.Released(ranks, final=True)):
            answer = CURRENT.start_answer.write(rfc32.StartAnswer(start.id, report))
            self.to_broker += filter(None, [respond(request, answer)])

    def event(self, event: Event) -> None:
        word, _, method = event.topic.removeprefix(SHELL_EVENTS).partition(".")
        if not event.topic.startswith(SHELL_EVENTS):
            super().event(event)
        elif method == "kill" and word.isdecimal() and event.rolemask & ROLE_OWNER:
            try:
                signum = expect_payload(event, _Kill).signum
            except FluxError as error:
                self.log(Level.ERR, error.text)
            else:
                kill = {"id": int(word), "signum": signum}
                topic = f"{self._service}.kill"
                self.to_core.append(owners_request(self._instance.owner, topic, kill))

    # The core asks

    def core_asks(self, request: Request) -> None:
        self._from_core.get(request.topic, super().core_asks)(request)

    def _look_up(self, request: Request) -> None:
        """Ask for a key; for a jobspec, which has no environment there, ask for J."""
        asked = flux_kvs.LOOKUP.read(request)
        directory = job_directory_of(asked.key)
        if directory is None or asked.key != f"{directory}.{StoredKey.JOBSPEC.value}":
            super().core_asks(request)
            return
        jobid = parse_fluid(directory)
        look_up = flux_kvs.look_up(our_kvs.Lookup(job_key(jobid, "J")))
        self.ask(topics.KVS_LOOKUP, look_up, SpecRead(request, jobid))

    def _follow(self, request: Request) -> None:
        wanted = self._journal.wanted(request)
        self.ask(topics.JOB_EVENTS, wanted, Forwarded(request), request.flags)

    def _is_unknown(self, request: Request) -> None:
        self.answer_core(request, None, Errno.ENOSYS)

    def _drop(self, request: Request) -> None:
        """Do nothing: flux-core has no use for it."""

    def _name(self, request: Request) -> None:
        payload: Any = request.payload
        self.ask(_NAMES[request.topic], payload, Acknowledged(payload["service"]))

    # The core answers

    def core_answers(self, response: Response) -> None:
        if response.routes != (LEFTOVERS,):
            super().core_answers(response)
        elif response.topic == self._start:
            self._leftovers.told(response)

    # The broker answers

    def answered(
        self, call: SpecRead | NamespacesListed | Acknowledged, response: Response
    ) -> None:
        match call:
            case SpecRead(request, jobid):
                self._spec_read(request, jobid, response)
            case NamespacesListed():
                self._leftovers.listed(response)
            case Acknowledged(what) if what and response.errnum:
                text = response.error_text or FluxError(response.errnum).text
                self.log(Level.ERR, f"{response.topic}: {what}: {text}")

    def pass_answer(self, request: Request, response: Response) -> None:
        payload, errnum = response.payload, response.errnum
        if request.topic == topics.JOB_JOURNAL and not errnum:
            payload = self._journal.entries(response)
            if payload is None:
                return
        if request.topic == topics.EXEC_HELLO and errnum:
            text = FluxError(errnum, response.error_text).text
            payload = _REFUSALS.get(errnum, text)
            errnum = Errno.EPERM  # whatever the reason, the service ends: no other hello helps
        self.answer_core(request, payload, errnum, response.flags)
        if request.topic == topics.EXEC_HELLO and not errnum:
            self._leftovers.seek()
            self._on_ready()

    def _spec_read(self, request: Request, jobid: int, response: Response) -> None:
        """Answer with the jobspec in J, and with what says to tasks where they are in flux-core."""
        path = self._instance.jobid_path.rstrip("/")
        more = {
            "FLUX_JOB_ID_PATH": f"{path}/{format_fluid(jobid, self._instance.id_form)}",
            "FLUX_KVS_NAMESPACE": f"job-{jobid}",
        }
        key = job_key(jobid, "J")
        try:
            j = value_in(response)
            if j is None:
                raise FluxError(Errno.ENOENT, f"{key}: no such key")
            value = our_kvs.VALUE.write(our_kvs.Value(jobspec_in(j, more)))
        except FluxError as error:
            self.answer_core(request, error.text, error.errnum)
        except FormatError as error:
            self.answer_core(request, f"{key}: {error}", Errno.EPROTO)
        else:
            self.answer_core(request, value)

    def values_read(self, to: Any, values: list[str | None] | FluxError) -> None:
        match to, values:
            case Leftover(jobid), FluxError() as error:
                self.log(Level.ERR, f"job {jobid}, which is over: {error.text}")
            case Leftover(jobid), list() as found:
                self._leftovers.read(jobid, found)
            case _:
                super().values_read(to, values)


# Jobspecs


def left_out_of(jobspec: dict[str, Any]) -> str:
    """Return a sentence about what a job needs and does not get here; "" if it needs no such thing.

    Without it the job would wait for ever, or do something else with exit code 0.
    """
    try:
        parsed = parse_jobspec(msgspec.json.encode(jobspec))
    except FormatError:
        return ""  # the core says what is wrong with it
    command = parsed.tasks[0].command
    if len(command) > 1 and (Path(command[0]).name, command[1]) == ("flux", "broker"):
        return f"{_WHO} runs no instances as jobs (flux batch, flux alloc): their brokers need PMI"
    if files := parsed.attribute("system.files"):
        names = ", ".join(files) if isinstance(files, dict) else files
        return f"{_WHO} brings no files to a job: {names!s:.80}"
    if parsed.attribute("system.shell.options.pty"):
        return f"{_WHO} gives tasks no pseudo terminal"
    return ""


def jobspec_in(j: str, more: Mapping[str, str]) -> str:
    """Return the jobspec in J, with `more` in its environment. Raises FormatError."""
    jobspec = parse_jobspec(content(j))
    environment = {**jobspec.environment, **more}
    environment.pop(REMOVED, None)
    json = apply_update(jobspec.to_json(), ENVIRONMENT, environment)
    return msgspec.json.encode(json).decode()


_REFUSALS: Final[Mapping[int, str]] = {
    Errno.ENOSYS: "there is no job manager, or it has left",
    Errno.EINVAL: "refused: jobs of the execution service that flux-core has are under way",
}
