"""The bridge between our execution service and flux-core's broker: which message goes where. Pure.

RFC 32 passes as it is. These are in other shapes on the two sides:

- kvs: treeobjs and namespaces there, texts here; the environment is in J there (`jobspecs`).
- What a job leaves is in its guest namespace there (`guests`); here it is a commit at its end.
- Signals come as the event shell-<id>.kill there, as <service>.kill here.
- Standard input comes to the service of a job's shell there, to <service>.input here (`inputs`).
- The journal has one job in a response there, entries of many jobs here.

What flux-core does not have is answered here: whether another service runs jobs, why jobs wait, and
which nodes are down. The last one has no meaning for jobs whose processes are all on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.attach.exec.guest_namespaces import GuestNamespaces
from flux_trio.attach.exec.inputs import Inputs
from flux_trio.attach.exec.jobspecs import left_out_of
from flux_trio.attach.exec.journal import Journal
from flux_trio.attach.exec.leftovers import Leftovers
from flux_trio.attach.exec.lookups import Lookups
from flux_trio.attach.exec.mail import (
    GUEST,
    Acknowledged,
    ExecMail,
    InputOf,
    NamespaceCall,
    NamespacesListed,
    OutputOf,
    ValueRead,
)
from flux_trio.attach.mail import Forwarded, OneValueRead, Passed, Sent
from flux_trio.cores.exec.calls import StoredKey
from flux_trio.cores.exec.guest import with_input
from flux_trio.editions import CURRENT, rfc21, rfc32
from flux_trio.editions import kvs as our_kvs
from flux_trio.formats import FluidForm, job_directory_of, parse_fluid
from flux_trio.messages import (
    ROLE_OWNER,
    Control,
    Errno,
    Event,
    FluxError,
    Level,
    Message,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    service_of,
    topics,
)

SHELL_EVENTS: Final = "shell-"
_SHELL_MARK: Final = "-shell-"
_LAST: Final = (rfc32.StartType.FINISH, rfc32.StartType.RELEASE)


class Instance(NamedTuple):
    """What the bridge must know of the instance: see the attributes of its broker."""

    owner: int  # userid
    rank: int
    empty_root: str  # blobref of an empty directory of the kvs
    jobid_path: str
    id_form: FluidForm


class _Kill(msgspec.Struct):
    signum: int


class Bridge:
    """Gives messages of the core named `service` to the broker of `instance`, and back.

    `on_ready` is called when flux-core has accepted the service.
    """

    def __init__(self, service: str, instance: Instance, on_ready: Callable[[], None]) -> None:
        self._service = service
        self._on_ready = on_ready
        self._instance = instance
        self._mail = mail = ExecMail(instance.owner)
        self._guests = guests = GuestNamespaces(mail, service, instance.empty_root, instance.rank)
        self._start = f"{service}.{topics.START_METHOD}"
        self._leftovers = Leftovers(mail, guests, self._start)
        self._lookups = Lookups(
            mail, guests, self._leftovers, instance.jobid_path, instance.id_form
        )
        self._inputs = Inputs(mail, service)
        self._journal = Journal(mail)
        self._from_core = {
            topics.KVS_LOOKUP: self._lookups.look_up,
            topics.STORE_OWN.lookup_all: self._lookups.look_up_all,
            topics.STORE_OWN.commit: self._commit,
            topics.EXEC_SERVICE: self._is_unknown,
            topics.RESOURCE_STATUS: self._answer_empty,
            topics.JOB_HINDRANCE: self._drop,
            topics.JOB_JOURNAL: self._follow,
        }

    def from_core(self, now: float, message: Passed) -> Sent:
        """Take a message of the core."""
        self._mail.now = now
        match message:
            case Request():
                self._from_core.get(message.topic, self._forward)(message)
            case Response():
                self._core_answers(message)
            case Event():
                self._mail.to_broker.append(message)
        self._guests.settle()
        return self._mail.pop_sent()

    def from_broker(self, now: float, message: Message) -> Sent:
        """Take a message of the broker."""
        self._mail.now = now
        match message:
            case Request():
                self._broker_asks(message)
            case Response():
                self._broker_answers(message)
            case Event():
                self._event(message)
            case Control():
                pass
        self._guests.settle()
        return self._mail.pop_sent()

    # The broker asks

    def _broker_asks(self, request: Request) -> None:
        if request.topic == self._start:
            self._start_asked(request)
        elif _SHELL_MARK in service_of(request.topic):
            self._shell_asked(request)
        else:
            self._mail.to_core.append(request)

    def _start_asked(self, request: Request) -> None:
        try:
            start = CURRENT.start.read(request)
        except FluxError:
            pass  # the core says what is wrong with it
        else:
            if text := left_out_of(start.jobspec):
                self._refuse_start(request, start, text)
                return
            self._guests.open(start)
            self._journal.asked(start.id)
            assert isinstance(request.payload, dict)
            payload = request.payload | {"jobspec": with_input(start.jobspec)}
            request = msgspec.structs.replace(request, payload=payload)
        self._mail.to_core.append(request)

    def _refuse_start(self, request: Request, start: rfc32.Start, text: str) -> None:
        """Fail a job that needs what is left out; no part of it was started, at any time."""
        ranks = rfc21.ALL_RANKS if start.R is None else str(start.R.ranks)
        raised = rfc32.RaisedException(rfc21.SEVERITY_FATAL, "exec", text)
        for report in (raised, rfc32.Released(ranks, final=True)):
            answer = CURRENT.start_answer.write(rfc32.StartAnswer(start.id, report))
            self._mail.answer_broker(respond(request, answer))

    def _shell_asked(self, request: Request) -> None:
        service, _, method = request.topic.partition(".")
        if method == "stdin":
            jobid = parse_fluid(service.rpartition("-")[2])
            self._inputs.write(request, self._guests.get(jobid))
        else:
            text = f"no method {method} in {service}"
            self._mail.answer_broker(respond_error(request, Errno.ENOSYS, text))

    def _event(self, event: Event) -> None:
        word, _, method = event.topic.removeprefix(SHELL_EVENTS).partition(".")
        if not event.topic.startswith(SHELL_EVENTS):
            self._mail.to_core.append(event)
        elif method == "kill" and word.isdecimal() and event.rolemask & ROLE_OWNER:
            try:
                signum = expect_payload(event, _Kill).signum
            except FluxError as error:
                self._mail.log(Level.ERR, error.text)
            else:
                kill = {"id": int(word), "signum": signum}
                self._mail.tell_core(f"{self._service}.kill", kill)

    # The core asks

    def _forward(self, request: Request) -> None:
        if request.wants_response:
            self._mail.ask(request.topic, request.payload, Forwarded(request), request.flags)
        else:
            self._mail.to_broker.append(request)

    def _follow(self, request: Request) -> None:
        self._forward(self._journal.widened(request))

    def _is_unknown(self, request: Request) -> None:
        self._mail.answer_core(request, None, Errno.ENOSYS)

    def _answer_empty(self, request: Request) -> None:
        self._mail.answer_core(request)

    def _drop(self, request: Request) -> None:
        """Do nothing: flux-core has no use for it."""

    def _commit(self, request: Request) -> None:
        """Take what is stored of a job that is over: its namespace has all of it but the status."""
        ops: Any = our_kvs.COMMIT.read(request).ops
        for _, key, *text in ops:
            directory = job_directory_of(key) or ""
            if key == f"{directory}.{StoredKey.EXEC_LOG.value}":
                guest = self._guests.get(parse_fluid(directory))
                if guest is not None:
                    self._guests.end(guest, request, text[0])
                    return
        self._mail.answer_core(request)

    # The core answers

    def _core_answers(self, response: Response) -> None:
        if response.topic == self._start:
            self._answers_start(response)
        elif response.routes == (GUEST,):
            self._answers_bridge(response)
        else:
            self._mail.to_broker.append(response)

    def _answers_bridge(self, response: Response) -> None:
        match self._mail.core_calls.match(response):
            case OutputOf(jobid):
                self._guests.piece_came(jobid, response)
            case InputOf(jobid):
                self._inputs.answered(self._guests.get(jobid), response)

    def _answers_start(self, response: Response) -> None:
        payload: Any = response.payload
        guest = self._guests.get(payload["id"])
        kind = payload["type"]
        if guest is not None and kind in _LAST:
            guest.last.append(response)
            if kind == rfc32.StartType.RELEASE:
                self._guests.release(guest)
            return
        if guest is not None and kind != rfc32.StartType.EXCEPTION:
            self._guests.began(guest)
        if response.routes != (GUEST,):
            self._mail.to_broker.append(response)

    # The broker answers

    def _broker_answers(self, response: Response) -> None:
        match self._mail.calls.match(response):
            case NamespaceCall() as call:
                for held in self._guests.answered(call, response):
                    self._lookups.look_up(held)
            case Forwarded(request):
                self._pass_answer(request, response)
            case ValueRead() as call:
                self._lookups.value_read(call, response)
            case OneValueRead() as call:
                self._lookups.one_value_read(call, response)
            case NamespacesListed():
                self._leftovers.listed(response)
            case Acknowledged(what) if what and response.errnum:
                text = response.error_text or FluxError(response.errnum).text
                self._mail.log(Level.ERR, f"{response.topic}: {what}: {text}")
            case _:
                pass

    def _pass_answer(self, request: Request, response: Response) -> None:
        payload, errnum = response.payload, response.errnum
        if request.topic == topics.JOB_JOURNAL and not errnum:
            payload = self._journal.entries(response)
            if payload is None:
                return
        if request.topic == topics.EXEC_HELLO and errnum:
            text = FluxError(errnum, response.error_text).text
            payload = _REFUSALS.get(errnum, text)
            errnum = Errno.EPERM  # whatever the reason, the service ends: no other hello helps
        self._mail.answer_core(request, payload, errnum, response.flags)
        if request.topic == topics.EXEC_HELLO and not errnum:
            self._leftovers.seek()
            self._on_ready()


_REFUSALS: Final[Mapping[int, str]] = {
    Errno.ENOSYS: "there is no job manager, or it has left",
    Errno.EINVAL: "refused: jobs of the execution service that flux-core has are under way",
}
