"""The messages of a trace of modules, with both ends as far as they are known.

A message between two traced modules is printed where it was sent and where it was received; here it
is one message. In flux-core, whose broker prints both when it passes a message on, the second line
follows the first. In flux-trio a module takes the message up later.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.messages import Errno, Message, service_of, topics
from flux_trio.trace.printed import Line
from flux_trio.trace.routed import (
    BROKER,
    CLIENT,
    EXITED,
    MODULE_STATUS,
    Moment,
    Routed,
    make_message,
)

OPEN_MAX: Final = 1024
"""So many messages are kept back, since a later line may show who has received one of them."""

# Requests to a traced module from an untraced one: topic -> sender.
_CALLERS: Final = {
    topics.SCHED_ALLOC: topics.JOB_MANAGER,
    topics.SCHED_FREE: topics.JOB_MANAGER,
    topics.SCHED_CANCEL: topics.JOB_MANAGER,
    topics.SCHED_PRIORITIZE: topics.JOB_MANAGER,
    topics.SCHED_EXPIRATION: topics.JOB_MANAGER,
}
_CALLERS_BY_METHOD: Final = {
    topics.START_METHOD: topics.JOB_MANAGER,
    topics.DISCONNECT: BROKER,
    "shutdown": BROKER,
}
_DISCONNECT: Final = f".{topics.DISCONNECT}"
_FOR_CLIENTS: Final = "connector-local"
"""The module of flux-core that passes messages on from and to programs that are no modules."""
_RUNNING: Final = 1
_NO_SERVICE: Final = "No service matching "
_CALLED_BY_SERVICES: Final = {topics.JOB_MANAGER, topics.RESOURCE}
"""Services that schedulers and execution services call."""


class _Passing(NamedTuple):
    """A message, and the modules that have received it so far."""

    line: Line
    takers: list[str]

    def receives(self, line: Line) -> bool:
        """Take it that `line` shows a receiver; return False if it cannot be one."""
        many = self.line.type == "event" and line.module not in self.takers
        if self.takers and not many:
            return False
        self.takers.append(line.module)
        return True


def paired(lines: Iterable[Line | Moment]) -> Iterator[Routed | Moment]:
    """Yield each message once, in the order in which they were sent, and each moment."""
    open_: deque[_Passing] = deque()
    sent: dict[tuple[str, str, int, str], deque[_Passing]] = {}
    ends = Ends()
    for line in itertools.dropwhile(_may_be_half, lines):
        if isinstance(line, Moment):
            while open_ and line.settles(open_[0].line.t):
                yield ends.routed(_oldest(open_, sent))
            yield line.settled()
            continue
        ends.traced.add(line.module)
        if line.type == "control" or (not line.is_sent and _is_taken(line, open_, sent)):
            continue  # between the broker and its module, or the other end
        passing = _Passing(line, [] if line.is_sent else [line.module])
        open_.append(passing)
        if line.is_sent:
            sent.setdefault(line.content, deque()).append(passing)
        if len(open_) > OPEN_MAX:
            yield ends.routed(_oldest(open_, sent))
    while open_:
        yield ends.routed(_oldest(open_, sent))


def _may_be_half(line: Line | Moment) -> bool:
    """Whether a trace that begins with this line may have begun between the ends of its message."""
    return isinstance(line, Line) and not line.is_sent and line.type != "response"


def _is_taken(
    line: Line, open_: deque[_Passing], sent: dict[tuple[str, str, int, str], deque[_Passing]]
) -> bool:
    """Whether the line shows who has received a message: the last one, or else the oldest."""
    content = line.content
    if open_ and open_[-1].line.content == content and open_[-1].receives(line):
        return True
    return any(passing.receives(line) for passing in sent.get(content, ()))


def _oldest(
    open_: deque[_Passing], sent: dict[tuple[str, str, int, str], deque[_Passing]]
) -> _Passing:
    passing = open_.popleft()
    if passing.line.is_sent:
        same = sent[passing.line.content]
        same.popleft()
        if not same:
            del sent[passing.line.content]
    return passing


def party_of(module: str) -> str:
    """Return the party that a module stands for."""
    return CLIENT if module == _FOR_CLIENTS else module


class Ends:
    """Names the ends of messages that are not traced."""

    def __init__(self) -> None:
        self.traced: set[str] = set()
        self._holders: dict[str, str] = {}
        """By service: who takes its requests."""
        self._asked: dict[str, str] = {}
        """By topic: the sender of the last request."""
        self._calls: dict[str, set[str]] = {}
        """By traced module: the services that it has called since it was loaded."""
        self._known: set[str] = set()
        """The modules whose first requests the trace shows."""
        self._gone: dict[str, str] = {}
        """By service: the module that has ended last, whose disconnect it has not got."""

    def routed(self, passing: _Passing) -> Routed:
        """Return a message with its sender and receivers."""
        line, takers = passing
        payload = line.payload
        sender, receivers = self.of(
            line.module, line.is_sent, line.type, line.topic, payload, takers
        )
        if not line.is_sent and line.type == "response" and self._is_of_broker(line, sender):
            sender = BROKER
        to = "".join(receivers[:1])
        message = make_message(line.type, line.topic, payload, line.errnum, sender, to)
        if sender == BROKER and line.topic.endswith(_DISCONNECT) and not line.is_sent:
            # one that the connector is seen to send is a client's
            message = self._naming_the_peer(message, service_of(line.topic))
        return Routed(line.t, sender, receivers, message)

    def _is_of_broker(self, line: Line, server: str) -> bool:
        """Whether the broker answers for `server`, which has gone.

        A module that is traced would be seen to send it. Of other programs that is not seen.
        """
        if server != CLIENT:
            return server in self.traced
        is_nosys = line.errnum == Errno.ENOSYS
        return is_nosys and (not line.body or line.body.startswith(_NO_SERVICE))

    def of(
        self,
        module: str,
        is_sent: bool,
        type_: str,
        topic: str,
        payload: Any,
        takers: Sequence[str] = (),
    ) -> tuple[str, tuple[str, ...]]:
        """Return both ends of the next message, which `module` sent, or is among `takers`."""
        sender = party_of(module) if is_sent else self._sender(type_, topic)
        if sender == CLIENT and topic.endswith(_DISCONNECT):
            sender = BROKER  # a client's: which one is not known
        receivers = tuple(map(party_of, takers)) or self._receivers(type_, topic)
        if type_ == "request":
            self._note_request(topic, sender, "".join(receivers[:1]), payload)
        return sender, receivers

    def holder_of(self, service: str) -> str:
        """Return who takes the requests of a service, as far as is known."""
        return self._holders.get(service, service)

    def _sender(self, type_: str, topic: str) -> str:
        """Return the untraced sender of a message that a traced module received."""
        if type_ == "event":
            return BROKER
        method = topic.rpartition(".")[2]
        if type_ == "response":
            return self.holder_of(service_of(topic))
        return _CALLERS.get(topic) or _CALLERS_BY_METHOD.get(method, CLIENT)

    def _receivers(self, type_: str, topic: str) -> tuple[str, ...]:
        """Return the untraced receiver of a message that a traced module sent."""
        if type_ == "event":
            return ()
        if type_ == "request":
            return (self.holder_of(service_of(topic)),)
        asked = self._asked.get(topic, CLIENT)
        # A traced module would be seen to receive it: it is for somebody who had asked before.
        return (CLIENT if asked in self.traced else asked,)

    def _note_request(self, topic: str, sender: str, receiver: str, payload: Any) -> None:
        service = service_of(topic)
        self._asked[topic] = sender
        self._holders[service] = receiver
        if topic == topics.SCHED_HELLO:
            self._holders[topics.SCHED] = sender
        elif topic == topics.EXEC_HELLO and isinstance(payload, dict):
            self._holders[str(payload.get("service"))] = sender
        if sender not in self.traced:
            return
        if sender in self._gone.values():  # it is loaded again, and its disconnects came before
            self._gone = {each: gone for each, gone in self._gone.items() if gone != sender}
        content = payload if isinstance(payload, dict) and topic == MODULE_STATUS else {}
        status = content.get("status")
        if status == EXITED:
            self._note_end(sender)
        elif status == _RUNNING:
            self._known.add(sender)
        self._calls.setdefault(sender, set()).add(service)

    def _note_end(self, module: str) -> None:
        """A module has ended: the broker tells the services that it has called.

        What services send from now on to those who have asked the same, such as other followers of
        the journal, is not for this module. It alone asks what its role begins with.
        """
        for topic, sender in list(self._asked.items()):
            if sender == module and topic not in topics.FIRST_REQUESTS:
                del self._asked[topic]
        called = self._calls.pop(module, set())
        if module not in self._known:
            called |= _CALLED_BY_SERVICES
        self._known.discard(module)
        self._gone |= dict.fromkeys(called, module)

    def _naming_the_peer(self, message: Message, service: str) -> Message:
        """Add to a disconnect whose it is, if it is that of a module."""
        gone = self._gone.pop(service, "")
        return msgspec.structs.replace(message, routes=(gone,)) if gone else message
