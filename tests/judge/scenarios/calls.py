"""RPCs of all kinds: streams that are canceled, requests that nobody serves or that are faulty."""

from __future__ import annotations

import pytest

from flux_trio.formats import Jobspec
from flux_trio.messages import FluxError, Request, topics
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


@scenario()
async def guests(stage: Stage) -> None:
    """A guest submits, and asks twice for what only the owner may."""
    jobspec = Jobspec.from_command(["true"]).to_json()
    async with stage.instance.connect("guest", userid=2000) as guest:
        job = await guest.call(topics.INGEST_SUBMIT, {"jobspec": jobspec, "urgency": 0})
        with pytest.raises(FluxError, match="urgency >16"):
            await guest.call(topics.INGEST_SUBMIT, {"jobspec": jobspec, "urgency": 20})
        with pytest.raises(FluxError, match="urgency <= default"):
            await guest.call(topics.JOB_URGENCY, {"id": job["id"], "urgency": 31})
    await stage.settle()
