"""The handle of a service of an instance at flux-core; a bridge translates its messages."""

from __future__ import annotations

from typing import Any

from flux_trio.attach.bridge import Bridge, Passed, Sent
from flux_trio.attach.handle import FluxHandle, answer_of_module
from flux_trio.broker import Handle, ServiceExit


class BridgedHandle(Handle):
    """A handle over `flux`, whose messages go over `bridge`; `carry` receives from the broker.

    `send` and `carry` raise ServiceExit when the bridge says that the service has to end.
    """

    def __init__(self, flux: FluxHandle, bridge: Bridge[Any]) -> None:
        super().__init__(flux.name, flux.userid, flux.now)
        self._flux = flux
        self._bridge = bridge

    def register(self, service: str) -> None:
        self._flux.register(service)

    def subscribe(self, pattern: str) -> None:
        self._flux.subscribe(pattern)

    def send(self, message: Passed) -> None:
        self.carry_out(self._bridge.from_core(message))

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
                    self.carry_out(self._bridge.from_broker(message))

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
