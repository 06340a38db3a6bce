"""What the scheduler's core and a broker of flux-core say to each other: which message goes where.

RFC 27 and 28 pass as they are, with matchtags of the bridge's own. In other shapes are:

- the kvs: treeobjs there, texts here, and one lookup there reads one key;
- the return of a job manager: here the event service-back, there nothing tells of it, so that the
  bridge asks for it until there is one.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from flux_trio.attach.mail import Forwarded, Mail, OneValueRead, Passed, Reads, Sent
from flux_trio.editions import kvs as our_kvs
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Event,
    FluxError,
    Message,
    Payload,
    Request,
    Response,
    topics,
)

PING_MANAGER: Final = f"{topics.JOB_MANAGER}.ping"


class ManagerSought(msgspec.Struct, frozen=True):
    """Answers a ping of the job manager."""


Call: TypeAlias = Forwarded | OneValueRead | ManagerSought


class SchedBridge:
    """Gives messages of the core to the broker, and back."""

    def __init__(self) -> None:
        self._mail: Mail[Call] = Mail()
        self._lacks_manager = False  # the core waits for its return

    def from_core(self, _now: float, message: Passed) -> Sent:
        """Take a message of the core."""
        match message:
            case Request(topic=topics.STORE_OWN.lookup_all):
                self._mail.read_keys(Reads(message, our_kvs.LOOKUP_ALL.read(message).keys))
            case Request() if message.matchtag:
                self._forward(message, message.payload)
            case _:
                self._mail.to_broker.append(message)
        return self._mail.pop_sent()

    def from_broker(self, _now: float, message: Message) -> Sent:
        """Take a message of the broker."""
        if isinstance(message, Response):
            self._broker_answers(message)
        elif isinstance(message, Request | Event):
            self._mail.to_core.append(message)
        return self._mail.pop_sent()

    def seek_manager(self) -> Sent:
        """Ask whether there is a job manager again, if none is known."""
        if self._lacks_manager:
            self._mail.ask(PING_MANAGER, {}, ManagerSought())
        return self._mail.pop_sent()

    def _forward(self, request: Request, payload: Payload) -> None:
        self._mail.ask(request.topic, payload, Forwarded(request), request.flags)

    def _broker_answers(self, response: Response) -> None:
        match self._mail.calls.match(response):
            case Forwarded(request):
                if request.topic == topics.SCHED_HELLO and response.errnum == Errno.ENOSYS:
                    self._lacks_manager = True
                payload, errnum = response.payload, response.errnum
                self._mail.answer_core(request, payload, errnum, response.flags)
            case OneValueRead(reads, key):
                match reads.take(key, response):
                    case FluxError() as error:
                        self._mail.answer_core(reads.to, error.text, error.errnum)
                    case list() as values:
                        payload = our_kvs.VALUES.write(our_kvs.Values(values))
                        self._mail.answer_core(reads.to, payload)
            case ManagerSought() if response.errnum != Errno.ENOSYS and self._lacks_manager:
                self._lacks_manager = False
                back = {"service": topics.JOB_MANAGER}
                self._mail.to_core.append(
                    Event(topics.SERVICE_BACK_EVENT, back, rolemask=ROLE_OWNER)
                )
            case _:
                pass
