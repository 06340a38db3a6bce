"""A handle at a broker of flux-core, here a scripted one at a real socket."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from flux_trio.attach.handle import flux_uri, open_flux
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    Errno,
    Event,
    Flag,
    FluxError,
    Level,
    Request,
    respond,
    respond_error,
)
from flux_trio.transports import ConnectionRefused, EndOfConnection
from tests.support.flux_peer import broker

ROUTES = ("client", "connector", "job-manager")


class Pong(msgspec.Struct):
    seq: int


async def test_a_call_has_one_answer_or_an_error_with_errnum_and_text(tmp_path: Path) -> None:
    answers = {"a.b": {"x": 1}, "a.none": None, "a.refused": (22, "no")}
    async with broker(tmp_path / "local", answers) as peer, open_flux(peer.uri, "me") as flux:
        assert await flux.call("a.b", {"y": 2}, nodeid=3) == {"x": 1}
        assert (await peer.until("a.b")).nodeid == 3
        assert await flux.call("a.none") == {}
        with pytest.raises(FluxError, match=r"^no$") as refused:
            await flux.call("a.refused")
        assert refused.value.errnum == Errno.EINVAL
        with pytest.raises(FluxError, match=r"No service matching nosuch\.x"):
            await flux.call("nosuch.x")
        assert flux.rank == "0"
        assert await flux.attribute("nosuch") is None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"seq": "1"}, r"x.ping: payload: Expected `int`, got `str` - at `\$.seq`"),
        ({}, "x.ping: payload: Object missing required field `seq`"),
        ("<xml/>", "x.ping: payload: Expected `object`, got `str`"),
    ],
)
async def test_an_answer_that_is_not_what_it_says_is_named(
    tmp_path: Path, answer: Any, text: str
) -> None:
    answers = {"x.ping": answer}
    async with broker(tmp_path / "local", answers) as peer, open_flux(peer.uri, "me") as flux:
        with pytest.raises(FluxError, match=text) as error:
            await flux.ask("x.ping", Pong)
    assert error.value.errnum == Errno.EPROTO


async def test_a_stream_gives_what_comes_and_ends_with_enodata(tmp_path: Path) -> None:
    answers = {"a.list": [{"n": 1}, {"n": 2}]}
    async with (
        broker(tmp_path / "local", answers) as peer,
        open_flux(peer.uri, "me") as flux,
        flux.stream("a.list") as responses,
    ):
        assert [(await anext(responses))["n"] for _ in range(2)] == [1, 2]
        request = await peer.until("a.list")
        assert request.flags == int(Flag.STREAMING)
        peer.send(respond_error(request, Errno.ENODATA))
        assert [each async for each in responses] == []


async def test_a_service_gets_requests_and_answers_with_the_routes_as_they_came(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path / "local", {}) as peer, open_flux(peer.uri, "me") as flux:
        flux.register("sched")
        await flux.wait_settled()
        assert (await peer.until("service.add")).payload == {"service": "sched"}
        peer.send(Request("sched.alloc", {"id": 1}, userid=0, rolemask=1, routes=ROUTES))
        (request,) = await flux.receive()
        assert (request.routes, request.rolemask) == (ROUTES, 1)
        flux.send(respond(request, {"id": 1, "type": 0}))
        answer = await peer.until("sched.alloc")
        assert (answer.routes, answer.payload) == (ROUTES, {"id": 1, "type": 0})


async def test_a_name_that_is_taken_ends_the_block(tmp_path: Path) -> None:
    async with broker(tmp_path / "local", {"service.add": (17, "in use")}) as peer:
        with pytest.raises(FluxError, match="in use"):  # noqa: PT012 - the end of a block
            async with open_flux(peer.uri, "me") as flux:
                flux.register("sched")
                await trio.sleep_forever()


async def test_events_have_their_sender_and_go_out_to_be_published(tmp_path: Path) -> None:
    async with broker(tmp_path / "local", {}) as peer, open_flux(peer.uri, "me") as flux:
        flux.subscribe("job-")
        await flux.wait_settled()
        assert (await peer.until("event.subscribe")).payload == {"topic": "job-"}
        event = Event("job-exception", {"id": 1}, 7, 0, 1000, ROLE_OWNER | ROLE_LOCAL)
        peer.send(event)
        assert await flux.receive() == [event]
        flux.send(Event("foo.bar", {"a": 1}))
        assert (await peer.until("foo.bar")).payload == {"a": 1}


async def test_a_log_line_has_the_form_that_flux_core_reads(tmp_path: Path) -> None:
    async with broker(tmp_path / "local", {}) as peer, open_flux(peer.uri, "me") as flux:
        flux.log(Level.ERR, "two\nlines")
        line = await peer.until("log.append")
        assert line.flags == int(Flag.NORESPONSE)
        assert re.fullmatch(
            r"<24>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z 0 me \d+ - - two\\nlines", line.payload
        )


async def test_the_end_of_the_broker_ends_the_block(tmp_path: Path) -> None:
    async with broker(tmp_path / "local", {}) as peer:
        with pytest.raises(EndOfConnection):  # noqa: PT012 - the end of a block
            async with open_flux(peer.uri, "me"):
                assert peer.connection is not None
                await peer.connection.aclose()
                await trio.sleep_forever()


async def test_how_often_it_is_tried_again_comes_from_the_environment(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUX_LOCAL_CONNECTOR_RETRY_COUNT", "1")
    with pytest.raises(ConnectionRefused):
        async with open_flux(f"local://{tmp_path}/local", "me"):
            pass
    assert trio.current_time() == pytest.approx(0.016)


def test_the_uri_is_the_one_given_or_that_of_the_environment() -> None:
    assert flux_uri("local:///a", {"FLUX_URI": "local:///b"}) == "local:///a"
    assert flux_uri(None, {"FLUX_URI": "local:///b"}) == "local:///b"
    assert flux_uri(None, {}) == "local:///run/flux/local"
