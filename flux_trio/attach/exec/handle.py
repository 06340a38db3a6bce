"""The handle of our execution service at flux-core: its messages go over a bridge."""

from __future__ import annotations

from typing import Any

from flux_trio.attach.every_module import answer_of_module
from flux_trio.attach.exec.bridge import Bridge
from flux_trio.attach.exec.mail import Sent
from flux_trio.attach.handle import FluxHandle
from flux_trio.broker import Handle, ServiceExit
from flux_trio.messages import Event, Message, Request, Response


class BridgedHandle(Handle):
    """The handle of the service; `carry` takes in what comes from the broker."""

    def __init__(self, flux: FluxHandle, bridge: Bridge) -> None:
        super().__init__(flux.name, flux.userid, flux.now)
        self._flux = flux
        self._bridge = bridge

    def register(self, service: str) -> None:
        self._flux.register(service)

    def subscribe(self, pattern: str) -> None:
        self._flux.subscribe(pattern)

    def send(self, message: Request | Response | Event) -> None:
        self._carry(self._bridge.from_core(self.now(), message))

    def log(self, level: int, text: str) -> None:
        self._flux.log(level, text)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Do nothing: flux-core has no trace for it."""

    async def carry(self) -> None:
        """Take in messages until cancelled. Raises ServiceExit if flux-core has another service."""
        while True:
            for message in await self._flux.receive():
                if (answer := answer_of_module(message, self._flux.rank)) is not None:
                    self._flux.send(answer)
                else:
                    self._carry(self._bridge.from_broker(self.now(), message))

    def _carry(self, sent: Sent) -> None:
        for message in sent.to_broker:
            self._flux.send(message)
        for level, text in sent.logs:
            self._flux.log(level, text)
        for message in sent.to_core:
            self._take_in(-1, message)
        if sent.end:
            raise ServiceExit(sent.end)

    def _trace_received(self, ref: int, message: Message) -> None:
        """Do nothing: there is no trace."""

    def _trace_dropped(self, ref: int, message: Message, reason: str) -> None:
        """Do nothing: there is no trace."""
