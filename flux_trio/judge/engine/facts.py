"""Facts about the instance that every rule may use: which peer has which role.

The parties are peers of a trace. A peer gets its role by its messages, not by its name: the
scheduler is the peer that sent sched-hello; the execution service is named in exec-hello. Several
peers may share a role: a scheduler may have one module that says hello and one that acquires.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from flux_trio.messages import Request, Response, service_of, topics
from flux_trio.trace import Kind, Record

_SEND: Final[str] = Kind.SEND.value
_RECV: Final[str] = Kind.RECV.value
_INSTANCE: Final[str] = Kind.INSTANCE.value
_MODULE: Final[str] = Kind.MODULE.value
_EVENT: Final[str] = Kind.EVENT.value
_RESOURCE_DISCONNECT: Final = topics.disconnect_of(topics.RESOURCE)
_BROKER: Final = "broker"
_READIES_MAX: Final = 8  # open sched-ready that are remembered; a scheduler sends one
_START: Final = f".{topics.START_METHOD}"

_SERVICES: Final = {
    "broker": "broker",
    "ingest": topics.JOB_INGEST,
    "job-manager": topics.JOB_MANAGER,
    "list-service": topics.JOB_LIST,
    "resource": topics.RESOURCE,
}
"""By role: the service that has it, whatever the trace shows."""

HELLOS: Final = {
    "scheduler": (topics.RESOURCE_ACQUIRE, topics.SCHED_HELLO),
    "exec": (topics.EXEC_HELLO,),
}
"""By role: the topics of the messages by which a peer begins to play the role."""


def _role_shown_by(topic: str) -> str:
    """Return the role that a request's sender or receiver has; "" if it shows none."""
    if topic in (topics.SCHED_HELLO, topics.SCHED_ALLOC):
        return "scheduler"
    is_start = topic.endswith(_START) and service_of(topic) + _START == topic
    return "exec" if topic == topics.EXEC_HELLO or is_start else ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The roles of the parties after a record. It is hashable, and replaced when a role changes."""

    scheduler: str = ""  # the last peer that sent sched-hello, "" if it has gone
    acquirers: tuple[str, ...] = ()  # the peers that sent resource.acquire and have not gone
    is_ready: bool = False  # its sched-ready was received, and no fatal error since
    limit: int | None = None  # the limit of limited mode
    readies: tuple[tuple[bool, int | None], ...] = ()  # open sched-ready: what was before each
    exec_peer: str = ""  # the last peer whose exec-hello was accepted, "" if it has gone
    exec_service: str = ""  # the name it gave; kept afterwards, for later messages
    exec_hellos: tuple[tuple[str, str], ...] = ()  # open requests: peer, service
    manager: str = ""  # the peer that receives the job manager's messages
    begins: bool = True  # the trace begins with the instance
    come: frozenset[str] = frozenset()  # else: peers whose first message is in the trace
    begun: frozenset[str] = frozenset()  # else: roles that a peer has taken whose first message is
    met: frozenset[str] = frozenset()  # else: roles of which the trace has shown who has them

    def shown_by(self, record: Record) -> Facts:
        """Return the facts with the role that a request shows, in a trace that begins late.

        The job manager sends requests only to who has said hello to it. So the first `sched.alloc`
        shows the scheduler, and the first start the execution service, if their hellos were before.
        """
        message = record.message
        if record.kind != _SEND or not isinstance(message, Request):
            return self
        role = _role_shown_by(message.topic)
        if not role or role in self.met:
            return self
        known = replace(self, met=self.met | {role})
        if message.topic in topics.FIRST_REQUESTS:
            return known
        if record.peer in ("", _BROKER):
            return self  # nobody is there, and the broker answers
        if self.manager and record.party != self.manager:
            return self
        if role == "exec":
            service = service_of(message.topic)
            return replace(known, manager=record.party, exec_peer=record.peer, exec_service=service)
        return replace(known, manager=record.party, scheduler=record.peer, is_ready=True)

    def after(self, record: Record) -> Facts:
        """Return the facts after `record`."""
        message = record.message
        if record.kind == _RECV:
            if isinstance(message, Request):
                return self._after_request(record, message)
            return self._after_response(message) if isinstance(message, Response) else self
        if self.acquirers:
            self = self._without_acquirer(record)
        if self.is_manager_gone(record):
            alone = replace(self, scheduler="", is_ready=False, limit=None, readies=())
            return replace(alone, exec_peer="", exec_hellos=())
        if record.kind == _SEND and isinstance(message, Response):
            if message.topic == topics.SCHED_READY and self.readies:
                return self._after_ready(message)
            is_answer = message.topic == topics.EXEC_HELLO and self.exec_hellos
            return self._after_exec_hello(message) if is_answer else self
        is_first = getattr(message, "topic", "") in topics.FIRST_REQUESTS
        return self._after_coming(record) if is_first else self

    def _after_request(self, record: Record, message: Request) -> Facts:
        sender = message.sender or record.peer
        payload = message.payload if isinstance(message.payload, dict) else {}
        match message.topic:
            case topics.SCHED_HELLO | topics.EXEC_HELLO if message.is_of_guest:
                return self  # it will be refused
            case topics.SCHED_HELLO if message.wants_response:  # else it is refused without a word
                known = replace(self, manager=record.party, readies=())
                return replace(known, scheduler=sender, is_ready=False, limit=None)
            case topics.SCHED_READY if sender == self.scheduler:
                limit = payload.get("limit") if payload.get("mode") == "limited" else None
                readies = (*self.readies, (self.is_ready, self.limit))[-_READIES_MAX:]
                known = replace(self, is_ready=True, readies=readies)
                return replace(known, limit=limit if type(limit) is int else None)
            case topics.EXEC_HELLO:
                name = payload.get("service")
                hello = (sender, name if isinstance(name, str) else "")
                hellos = (*self.exec_hellos, hello)
                return replace(self, exec_hellos=hellos, manager=record.party)
            case topics.JOB_MANAGER_DISCONNECT:
                return self._without(sender)
        return self

    @property
    def acquirer(self) -> str:
        """The peer that acquires for the scheduler: itself, or the last other one that acquired."""
        is_other = self.scheduler != "" and self.acquirers and self.scheduler not in self.acquirers
        return self.acquirers[-1] if is_other else self.scheduler

    def has_begun(self, role: str) -> bool:
        """Whether the trace has all messages of the peers that have this role now."""
        return self.begins or role in self.begun

    def has_come(self, peer: str) -> bool:
        """Whether the trace has all messages of a peer since it was there."""
        return self.begins or peer in self.come

    def is_leaving(self, record: Record) -> bool:
        """Whether the instance ends with this record, or a party with a role leaves."""
        found = record.message
        if found is None:
            data = record.data or {}
            is_end = data.get("what") != "started"
            return record.kind == _INSTANCE or (data.get("module") in self._parties and is_end)
        return isinstance(found, Request) and found.sender in self._parties and found.sender != ""

    def role_of(self, party: str) -> str:
        """Return exec or scheduler; "" for any other party."""
        if party == self.exec_peer != "":
            return "exec"
        return "scheduler" if party in (self.scheduler, self.acquirer) and party else ""

    def role_as(self, party: str, role: str) -> str:
        """Return the role in which a party breaks a clause that binds `role`."""
        is_taken = role in ("scheduler", "exec", "job-manager", *_SERVICES)
        own = "job-manager" if party == self.manager else self.role_of(party)
        return own or ("" if is_taken else role)

    def name_of(self, role: str, record: Record | None) -> str:
        """Return the name that a role's peer has in the trace; the role, if it is not known.

        A role that any peer may have, such as that of who makes an R, has the peer that shows it in
        `record`. A peer that says hello has the role already, though it may be refused. Without
        a record nobody has done anything, and only the roles that peers have are known.
        """
        exec_ = self.exec_peer or self.exec_service
        names = {"scheduler": self.scheduler, "exec": exec_, "job-manager": self.manager}
        if record is None:
            return names.get(role) or _SERVICES.get(role, role)
        is_sent, message = record.kind == _SEND, record.message
        if is_sent and getattr(message, "topic", "") in HELLOS.get(role, ()):
            return record.party
        if role == "scheduler" and is_sent and record.party == self.acquirer:
            return record.party
        if role in names and (name := names[role]):
            return name
        if role in _SERVICES:
            return _SERVICES[role]
        return _shown_by(role, record) or role

    def is_manager_gone(self, record: Record) -> bool:
        """Whether a record says that the job manager has ended; its successor knows no peers.

        The broker notes its end, after its disconnect. Scheduler and execution service are sent the
        latter if they are there; a trace of another implementation may have nothing else.
        """
        found = record.message
        if record.kind == _MODULE:
            data = record.data or {}
            return data.get("module") == self.manager and data.get("what") != "started"
        if not isinstance(found, Request) or not found.topic.endswith(topics.DISCONNECT):
            return False
        is_served = service_of(found.topic) in (topics.SCHED, self.exec_service)
        return is_served and found.sender == self.manager != ""

    @property
    def _parties(self) -> tuple[str, ...]:
        return (self.scheduler, self.acquirer, self.exec_peer, self.manager)

    def _after_coming(self, record: Record) -> Facts:
        """A scheduler acquires resources first, then it says hello."""
        topic, party, facts = getattr(record.message, "topic", ""), record.party, self
        if topic == topics.RESOURCE_ACQUIRE:
            others = tuple(each for each in self.acquirers if each != party)
            facts = replace(self, acquirers=(*others, party))
        if self.begins:
            return facts
        if topic != topics.SCHED_HELLO:
            return replace(facts, come=self.come | {party})
        acquirer = replace(self, scheduler=party).acquirer
        return replace(self, begun=self._begun_with("scheduler", acquirer))

    def _without_acquirer(self, record: Record) -> Facts:
        """Return the facts without the peer that a record says has left the resource service."""
        message, data = record.message, record.data or {}
        gone = ""
        if record.kind == _MODULE and data.get("what") != "started":
            gone = str(data.get("module"))
        elif isinstance(message, Request) and message.topic == _RESOURCE_DISCONNECT:
            gone = message.sender
        if gone not in self.acquirers:
            return self
        return replace(self, acquirers=tuple(each for each in self.acquirers if each != gone))

    def _begun_with(self, role: str, peer: str) -> frozenset[str]:
        """Return `begun` when a peer has taken a role."""
        return self.begun | {role} if peer in self.come else self.begun - {role}

    def _after_exec_hello(self, response: Response) -> Facts:
        """RFC 32: the service is registered when its exec-hello is answered with success."""
        to = response.routes[0] if response.routes else self.exec_hellos[0][0]
        answered = next((hello for hello in self.exec_hellos if hello[0] == to), None)
        if answered is None:
            return self
        known = replace(self, exec_hellos=tuple(h for h in self.exec_hellos if h is not answered))
        if response.errnum:
            return known
        begun = self._begun_with("exec", answered[0])
        return replace(known, exec_peer=answered[0], exec_service=answered[1], begun=begun)

    def _after_ready(self, response: Response) -> Facts:
        """One that is refused sets no mode (readings: Refused requests)."""
        to = response.routes[0] if response.routes else self.scheduler
        if to != self.scheduler:
            return self
        (is_ready, limit), *readies = self.readies
        known = replace(self, readies=tuple(readies))
        is_void = response.errnum and not readies
        return replace(known, is_ready=is_ready, limit=limit) if is_void else known

    def _without(self, peer: str) -> Facts:
        """Return the facts without a peer that has gone; the answers to its hellos go nowhere."""
        if peer == self.scheduler:
            return replace(self, scheduler="", is_ready=False, limit=None, readies=())
        hellos = tuple(hello for hello in self.exec_hellos if hello[0] != peer)
        known = self if hellos == self.exec_hellos else replace(self, exec_hellos=hellos)
        return replace(known, exec_peer="") if peer == self.exec_peer else known

    def _after_response(self, response: Response) -> Facts:
        """RFC 27: after an error response to alloc or free, wait for the next sched-ready."""
        if response.errnum and response.topic in (topics.SCHED_ALLOC, topics.SCHED_FREE):
            return replace(self, is_ready=False)
        return self


def _shown_by(role: str, record: Record) -> str:
    """Return the peer that has a role that any peer may have; "" if the record does not show it.

    Who consumes something is not known from an event, which the job manager logs.
    """
    message, is_sent = record.message, record.kind == _SEND
    if message is None:
        return "" if record.kind != _EVENT or role.endswith("-consumer") else record.party
    sender, receiver = (record.party, record.peer)[:: 1 if is_sent else -1]
    is_at_other_end = type(message) is (Request if role == "rpc-server" else Response)
    return receiver if role.startswith("rpc-") and is_at_other_end else sender
