"""The handle of a service of an instance at flux-core; a bridge translates its messages."""

from __future__ import annotations

from typing import Any, Protocol

from flux_trio.attach.handle import FluxHandle, answer_of_module
from flux_trio.attach.mail import Passed, Sent
from flux_trio.broker import Handle, ServiceExit
from flux_trio.messages import Message


class Bridge(Protocol):
    """Gives messages of the service's core to the broker, and back; `now` is the time."""

    def from_core(self, now: float, message: Passed) -> Sent:
        """Take a message of the core."""

    def from_broker(self, now: float, message: Message) -> Sent:
        """Take a message of the broker."""


class BridgedHandle(Handle):
    """A handle over `flux`, whose messages go over `bridge`; `carry` receives from the broker.

    `send` and `carry` raise ServiceExit when the bridge says that the service has to end.
    """

    def __init__(self, flux: FluxHandle, bridge: Bridge) -> None:
        super().__init__(flux.name, flux.userid, flux.now)
        self._flux = flux
        self._bridge = bridge

    def register(self, service: str) -> None:
        self._flux.register(service)

    def subscribe(self, pattern: str) -> None:
        self._flux.subscribe(pattern)

    def send(self, message: Passed) -> None:
        self.carry_out(self._bridge.from_core(self.now(), message))

    def log(self, level: int, text: str) -> None:
        self._flux.log(level, text)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Do nothing: flux-core has no trace for it."""

    async def carry(self) -> None:
        """Receive messages until cancelled; answer what every module of flux-core answers."""
        while True:
            for message in await self._flux.receive():
                if (answer := answer_of_module(message, self._flux.rank)) is not None:
                    self._flux.send(answer)
                else:
                    self.carry_out(self._bridge.from_broker(self.now(), message))

    def carry_out(self, sent: Sent) -> None:
        """Send what the bridge has made of a message."""
        for message in sent.to_broker:
            self._flux.send(message)
        for level, text in sent.logs:
            self._flux.log(level, text)
        for message in sent.to_core:
            self._take_in(-1, message)
        if sent.end:
            raise ServiceExit(sent.end)
