"""How a service at a broker of flux-core ends by a signal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.attach.handle import FluxHandle, serve
from flux_trio.broker import ServiceExit
from flux_trio.messages import FluxError, Request
from tests.support.flux_peer import broker
from tests.support.instance import DEADLINE_S

SILENT: list[Any] = []  # no answer


async def calling(flux: FluxHandle) -> None:
    await flux.call("a.b")


@pytest.mark.parametrize("topic", ["attr.get", "a.b"])
async def test_signal_ends_a_service_that_waits_for_an_answer(tmp_path: Path, topic: str) -> None:
    """Also before it serves."""
    async with broker(tmp_path / "local", {topic: SILENT}) as peer:
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, peer.uri, "me", calling)
                await peer.until(topic)
                signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("error", [FluxError(22, "no"), ServiceExit("left")])
async def test_error_of_a_service_is_raised(tmp_path: Path, error: Exception) -> None:
    async def failing(_flux: FluxHandle) -> None:
        raise error

    async with broker(tmp_path / "local", {}) as peer:
        with pytest.raises(type(error), match=str(error)):
            await serve(peer.uri, "me", failing)


async def test_what_was_sent_before_the_signal_arrives(tmp_path: Path) -> None:
    async def telling(flux: FluxHandle) -> None:
        flux.send(Request("a.b"))
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep_forever()

    async with broker(tmp_path / "local", {}) as peer:
        await serve(peer.uri, "me", telling)
        await peer.until("a.b")
