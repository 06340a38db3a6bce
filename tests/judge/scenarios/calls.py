"""RPCs of all kinds: streams that are canceled, requests that nobody serves or that are faulty."""

from __future__ import annotations

from flux_trio.messages import Request, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from tests.support.scenarios import Stage, breaking, scenario

TAG = 7


@scenario()
async def calls(stage: Stage) -> None:
    """Two clients watch with the same matchtag, one of them cancels; and nobody is at home."""
    key = "resource.eventlog"
    await stage.call(topics.RESOURCE_DRAIN, targets="0")
    async with stage.instance.connect("one") as one, stage.instance.connect("two") as two:
        for client in (one, two):
            client.send(Request(topics.KVS_OWN.watch, {"key": key}, TAG, STREAMING))
        await stage.settle()
        one.send(Request(topics.KVS_OWN.cancel, {"matchtag": TAG}, flags=NORESPONSE))
        await stage.settle()
        one.send(Request("nobody.home", {}, TAG + 1))
        one.send(Request("nobody.home", {}, flags=NORESPONSE))
        await stage.settle()
        await one.receive()
        await two.receive()
    await stage.settle()


@scenario()
@breaking("28.acquire.1", "6.request.4")
async def faulty_client(stage: Stage) -> None:
    """A client acquires without group, and without the streaming flag."""
    async with stage.instance.connect("faulty") as faulty:
        faulty.send(Request(topics.RESOURCE_ACQUIRE, {"group": "default"}, 1))
        faulty.send(Request(topics.RESOURCE_ACQUIRE, {}, 2, STREAMING))
        await stage.settle()
        await faulty.receive()
