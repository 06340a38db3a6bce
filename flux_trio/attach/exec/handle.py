"""The handle of our execution service at flux-core."""

from __future__ import annotations

from flux_trio.attach.bridged import BridgedHandle
from flux_trio.attach.exec.bridge import Bridge
from flux_trio.attach.exec.mail import Sent
from flux_trio.attach.handle import FluxHandle
from flux_trio.broker import ServiceExit
from flux_trio.messages import Event, Message, Request, Response


class ExecHandle(BridgedHandle):
    """Its messages go over `bridge`. Raises ServiceExit if flux-core has another service."""

    def __init__(self, flux: FluxHandle, bridge: Bridge) -> None:
        super().__init__(flux)
        self._bridge = bridge

    def send(self, message: Request | Response | Event) -> None:
        self._carry_out(self._bridge.from_core(self.now(), message))

    def _from_broker(self, message: Message) -> None:
        self._carry_out(self._bridge.from_broker(self.now(), message))

    def _carry_out(self, sent: Sent) -> None:
        for message in sent.to_broker:
            self._flux.send(message)
        for level, text in sent.logs:
            self._flux.log(level, text)
        for message in sent.to_core:
            self._take_in(-1, message)
        if sent.end:
            raise ServiceExit(sent.end)
