"""A module of flux-core that is written for Trio: how it begins, what it answers, how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import flux_trio
from flux_trio.attach.module import MODULES, load_module, main_in
from flux_trio.formats import FormatError
from flux_trio.messages import Errno, FluxError, Request
from flux_trio.process.groups import unwrapping
from flux_trio.transports import EndOfConnection
from tests.support.flux_peer import Broker, broker

GREETER = Path(flux_trio.__file__).parents[1] / "docs" / "howto" / "flux-modules" / "greeter.py"


@dataclass
class Loading:
    """A broker that loads a module, and the exit code of its loader."""

    peer: Broker
    code: int | None = None

    async def status(self) -> dict[str, Any]:
        payload = (await self.peer.until("module.status")).payload
        assert isinstance(payload, dict)
        return payload

    async def remove(self) -> list[dict[str, Any]]:
        self.peer.send(Request("greeter.shutdown", flags=4))
        return [await self.status(), await self.status()]


@asynccontextmanager
async def loading(tmp_path: Path, path: Path, *args: str) -> AsyncIterator[Loading]:
    async with broker(tmp_path / "local", {"module.status": None}) as peer:
        found = Loading(peer)

        async def load() -> None:
            found.code = await load_module(peer.uri, str(path))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            await wait_all_tasks_blocked()
            attrs = {"rank": "3"}
            told = {"args": list(args), "attrs": attrs, "conf": {}, "name": "greeter", "uuid": "u"}
            peer.send(Request("welcome", told))
            yield found


FAILING = """
from flux_trio.broker import ServiceExit


async def mod_main(flux, *args, task_status):
    task_status.started()
    await flux.receive()
    raise ServiceExit("enough")
"""


async def test_a_module_runs_until_the_broker_ends_it(tmp_path: Path) -> None:
    async with loading(tmp_path, GREETER, "salut") as found:
        assert await found.status() == {"status": 1}
        found.peer.send(Request("greeter.hello", {}, 5, userid=7, routes=("client",)))
        answer = await found.peer.until("greeter.hello")
        assert (answer.payload, answer.matchtag, answer.routes) == (
            {"text": "salut, user 7"},
            5,
            ("client",),
        )
        found.peer.send(Request("greeter.ping", {"seq": 1}, 6, userid=7, routes=("client",)))
        pong = (await found.peer.until("greeter.ping")).payload
        assert (pong["seq"], pong["rank"], pong["route"]) == (1, 3, "client")
        assert await found.remove() == [{"status": 2}, {"status": 3, "errnum": 0}]
    assert found.code == 0
    log = [each.payload for each in found.peer.came if getattr(each, "topic", "") == "log.append"]
    assert [str(line).rpartition(" - - ")[2] for line in log] == ["says salut"]


async def test_what_the_module_refuses_makes_the_load_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with loading(tmp_path, GREETER, "42") as found:
        assert await found.status() == {"status": 2}
        assert await found.status() == {"status": 3, "errnum": Errno.EINVAL}
    assert found.code == 1
    assert capsys.readouterr().err == "greeter: expected a word, got 42\n"


async def test_a_module_that_fails_later_does_not_take_the_instance_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """flux-core ends the instance when a loaded module ends with an errno."""
    path = tmp_path / "failing.py"
    path.write_text(FAILING)
    async with loading(tmp_path, path) as found:
        assert await found.status() == {"status": 1}
        found.peer.send(Request("greeter.hello", {}, 5, routes=("client",)))
        assert await found.status() == {"status": 2}
        assert await found.status() == {"status": 3, "errnum": 0}
    assert found.code == 0
    assert capsys.readouterr().err == "greeter: enough\n"


async def test_a_request_that_comes_too_late_is_answered_with_enosys(tmp_path: Path) -> None:
    async with loading(tmp_path, GREETER) as found:
        await found.status()

        def finalize(_request: Request) -> None:
            found.peer.send(Request("greeter.hello", {}, 5, routes=("client",)))

        found.peer.answers["module.status"] = finalize
        await found.remove()
        assert (await found.peer.until("greeter.hello")).errnum == Errno.ENOSYS


async def test_a_file_without_a_main_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.py"
    path.write_text("def mod_main(flux): ...\n")
    async with loading(tmp_path, path) as found:
        assert (await found.status(), (await found.status())["errnum"]) == ({"status": 2}, 22)
    assert f"greeter: {path}: expected a file of Python with `async def mod_main" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("text", ["def (", "import nosuch_module", "x = 1", "\0"])
def test_a_file_that_is_no_module_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(FormatError, match="expected a file of Python with `async def mod_main"):
        main_in(path)


async def test_another_first_message_than_welcome_is_an_error(tmp_path: Path) -> None:
    async def begin_otherwise() -> None:
        with unwrapping(FluxError):
            async with broker(tmp_path / "local", {}) as peer, trio.open_nursery() as nursery:
                nursery.start_soon(load_module, peer.uri, str(GREETER))
                await wait_all_tasks_blocked()
                peer.send(Request("sched.alloc", {}))

    with pytest.raises(FluxError, match=r"expected the request welcome first, got sched\.alloc"):
        await begin_otherwise()


async def test_the_module_ends_with_the_broker(tmp_path: Path) -> None:
    async def end_the_broker() -> None:
        with unwrapping(EndOfConnection):
            async with loading(tmp_path, GREETER) as found:
                await found.status()
                assert found.peer.connection is not None
                await found.peer.connection.aclose()

    with pytest.raises(EndOfConnection):
        await end_the_broker()


@pytest.mark.parametrize("name", ["sched", "exec"])
def test_our_own_modules_have_a_main(name: str) -> None:
    assert main_in(MODULES / f"{name}_trio.py").__name__ == "mod_main"
