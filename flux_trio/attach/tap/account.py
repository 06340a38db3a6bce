"""The record of what a tap sees, in the form of our traces (docs/reference/trace.md).

Each message is recorded with its header where it passes: as sent, and as received at once. A
message that is dropped is not sent in this record, one that is duplicated is sent twice, and one
that is kept back is sent when it goes on: a fault is recorded as if the sender had made it, so a
judge has to find it. Beside it a `fault` record has the message and says what the tap did.

A hop of a route is a uuid on flux-core's wire. Before those of a module, whose name is known, the
record has its name: routes begin with whose request it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.attach.tap.core import Action, PassOn
from flux_trio.attach.tap.rules import Direction, type_of
from flux_trio.editions.rfc05 import EXITED, STATUS
from flux_trio.messages import Message, Request, Response, service_of, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind, Record, Trace
from flux_trio.trace.pairing import Ends
from flux_trio.trace.routed import BROKER, CLIENT

PARTY: Final = "flux-trio-tap"
_UUID_CHARS: Final = 8  # as in the answers to ping
NAMES_MAX: Final = 1024
"""Uuids of modules whose names are remembered."""


Call = tuple[str, str]
"""Who has called which service."""


class UnendedModule(NamedTuple):
    """A module that has not ended in a trace, since its tap was killed, and what was called."""

    module: str = ""
    called: frozenset[Call] = frozenset()

    def after(self, record: Record) -> UnendedModule:
        """Return what is left after another record of the trace."""
        message, data = record.message, record.data or {}
        if record.kind == Kind.MODULE:
            return (
                UnendedModule(data.get("module", ""))
                if data.get("what") == "started"
                else NOTHING_LEFT
            )
        if record.kind != Kind.SEND or record.party not in (self.module, PARTY):
            return self
        if not isinstance(message, Request) or not message.wants_response:
            return self
        return UnendedModule(self.module, self.called | {(record.party, service_of(message.topic))})


NOTHING_LEFT: Final = UnendedModule()


class Account:
    """Records the messages of one module; its uuid tells it from others that had its name."""

    def __init__(
        self, trace: Trace, module: str, uuid: str, flush: Callable[[], object] = lambda: None
    ) -> None:
        self._trace = trace
        self.goes_on = trace.nrecords > 0  # with the trace of an earlier load
        self.flush = flush  # writes what has been recorded
        self._module = module
        self._uuid = uuid
        self._called: set[Call] = set()
        self._errnum: int | None = None  # what the module said of its end
        self._ends = Ends()
        self._ends.traced.add(module)
        self._names: dict[str, str] = {}

    def begin(self, left: UnendedModule = NOTHING_LEFT) -> None:
        """Record that the module starts; before it, in a new trace, where that comes from.

        In one that goes on, the end of a load comes first that was `left` without one.
        """
        if not self.goes_on:
            self._trace.note(Kind.SOURCE, PARTY, {"by": PARTY, "headers": True})
        if left.module:
            self._note_end(left.module, left.called, "crashed")
        self._trace.note(Kind.MODULE, BROKER, {"module": self._module, "what": "started"})

    def end(self) -> None:
        """Record that the module has ended.

        The broker has sent disconnects then, in the module's name, to all services that it had
        called. They do not pass here; the record has them, for who reads it must know.
        """
        what = "removed" if self._errnum == 0 else "crashed"
        self._note_end(self._module, self._called, what)

    def _note_end(self, module: str, called: Iterable[Call], what: str) -> None:
        for client, service in sorted(called):
            gone = Request(topics.disconnect_of(service), flags=NORESPONSE, routes=(client,))
            self._record(BROKER, self._ends.holder_of(service), gone)
        self._trace.note(Kind.MODULE, BROKER, {"module": module, "what": what})

    def note(self, action: Action) -> None:
        """Record a message that goes on, or what was done to one."""
        if isinstance(action, PassOn):
            self._record(*self._named(action.direction, action.message))
            return
        message = _as_text(action.message)
        data: dict[str, Any] = {
            "type": action.what,
            "direction": action.direction,
            "message": type_of(message),
            "topic": getattr(message, "topic", ""),
            "payload": getattr(message, "payload", None),
            "rule": action.rule,
            "count": action.count,
        }
        self._trace.note(Kind.FAULT, PARTY, data)

    def own(self, message: Request | Response) -> None:
        """Record a message between the tap itself and the job manager."""
        is_request = isinstance(message, Request)
        message = msgspec.structs.replace(message, routes=(PARTY,))
        if is_request:
            self._called.add((PARTY, topics.JOB_MANAGER))
        sender, receiver = (PARTY, topics.JOB_MANAGER)[:: 1 if is_request else -1]
        self._record(sender, receiver, message)

    def _record(self, sender: str, receiver: str, message: Message) -> None:
        ref = self._trace.sent(sender, receiver, message)
        if receiver:
            self._trace.received(receiver, sender, message, ref)

    def _named(self, direction: Direction, message: Message) -> tuple[str, str, Message]:
        """Return sender, receiver and message, with names as far as they are known."""
        message = _as_text(message)
        topic, payload = getattr(message, "topic", ""), getattr(message, "payload", None)
        is_sent = direction == "tx"
        takers = () if is_sent else (self._module,)
        sender, receivers = self._ends.of(
            self._module, is_sent, type_of(message), topic, payload, takers
        )
        receiver = "".join(receivers[:1])
        if not isinstance(message, Request | Response):
            return sender, receiver, message
        hops = message.routes
        if is_sent == isinstance(message, Request):  # an RPC of the module
            self._note_call(message)
            routes = (self._module, self._uuid, *hops)
            return sender, receiver, msgspec.structs.replace(message, routes=routes)
        other = self._name_of(hops[0] if hops else "", receiver if is_sent else sender)
        routes = hops if other == BROKER else (other, *hops)
        named = msgspec.structs.replace(message, routes=routes)
        if is_sent:
            return sender, other, named
        return (sender if sender == BROKER else other), receiver, named

    def _note_call(self, message: Request | Response) -> None:
        if isinstance(message, Response):
            return
        payload = message.payload if isinstance(message.payload, dict) else {}
        if message.wants_response:
            self._called.add((self._module, service_of(message.topic)))
        elif message.topic == STATUS and payload.get("status") == EXITED:
            self._errnum = payload.get("errnum")

    def _name_of(self, uuid: str, guess: str) -> str:
        """Return the name of the module or client of a uuid; `guess` follows from the topic."""
        if guess not in (CLIENT, BROKER) and uuid and len(self._names) < NAMES_MAX:
            self._names.setdefault(uuid, guess)
        known = self._names.get(uuid, guess)
        return f"{CLIENT}-{uuid[:_UUID_CHARS]}" if known == CLIENT and uuid else known


def _as_text(message: Message) -> Message:
    """Return the message with bytes that are no UTF-8 replaced: a trace is text."""
    payload = getattr(message, "payload", None)
    if not isinstance(payload, str):
        return message
    text = payload.encode(errors="surrogateescape").decode(errors="replace")
    return msgspec.structs.replace(message, payload=text)
