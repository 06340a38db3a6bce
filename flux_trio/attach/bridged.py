"""The handle of a service of an instance at flux-core; a bridge translates its messages."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from flux_trio.attach.every_module import answer_of_module
from flux_trio.attach.handle import FluxHandle
from flux_trio.broker import Handle
from flux_trio.messages import Message


class BridgedHandle(Handle):
    """A handle over `flux`; `carry` receives what comes from the broker. `send` is the bridge's."""

    def __init__(self, flux: FluxHandle) -> None:
        super().__init__(flux.name, flux.userid, flux.now)
        self._flux = flux

    @abstractmethod
    def _from_broker(self, message: Message) -> None:
        """Pass on a message of the broker, or what it means to the service."""

    def register(self, service: str) -> None:
        self._flux.register(service)

    def subscribe(self, pattern: str) -> None:
        self._flux.subscribe(pattern)

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
                    self._from_broker(message)

    def _trace_received(self, ref: int, message: Message) -> None:
        """Do nothing: there is no trace."""

    def _trace_dropped(self, ref: int, message: Message, reason: str) -> None:
        """Do nothing: there is no trace."""
