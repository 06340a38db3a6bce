"""Processes of modules: how they start, and every way in which they end."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import pytest
import trio

from flux_trio.broker import ModuleNotStarted, ModuleSpec, Processes, Tokens
from flux_trio.messages import Errno, FluxError, Level, Request
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.transports import Connection, Credentials, memory_pair, serve_websocket
from tests.support.cancelling import nothing_left_wherever_cancelled
from tests.support.modules import ModuleWorld, echo

TEST_S_MAX = 300.0  # only what hangs takes so long, however busy the machine is

# A module that is spelled out: it connects, serves `echo`, and says so.
ECHO = """
import os, sys, time, trio
from flux_trio.broker import open_remote
from flux_trio.transports import connect_websocket
from tests.support.modules import echo

async def main():
    async with connect_websocket(os.environ["URI"], os.environ["TOKEN"]) as connection:
        async with open_remote("echo", 0, connection, time.time) as handle:
            async with trio.open_nursery() as nursery:
                await nursery.start(echo, handle)
                await handle.wait_settled()
                print("ready", flush=True)

trio.run(main)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""


class ProcessWorld(ModuleWorld):
    """A broker whose modules may run in processes."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._nursery = nursery
        self.uri = ""
        self.tokens = Tokens(lambda: "secret", lambda _: None)
        names = ("URI", "TOKEN")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.processes = Processes(self.tokens, 0, lambda: self.uri, names, environment, 0.05)

    async def listen(self) -> None:
        self.uri = await self._nursery.start(
            serve_websocket, "127.0.0.1", 0, self.tokens.authenticate, self._take
        )

    async def spawn(self, script: str, name: str = "echo") -> None:
        """`script` runs as the module `name`."""
        command = [sys.executable, "-c", script]
        process = partial(self.processes.run, command)
        self.supervisor.specs[name] = ModuleSpec(name, echo, process=process)
        await self.supervisor.load(name, as_process=True)

    @property
    def pid(self) -> int:
        """The process of the only module."""
        (module,) = self.supervisor.list()
        assert module.pid is not None
        return module.pid

    async def _take(self, connection: Connection, credentials: Credentials) -> None:
        assert await self.processes.serve(connection, credentials)


@pytest.fixture
async def world(nursery: trio.Nursery) -> ProcessWorld:
    world = ProcessWorld(nursery)
    await world.listen()
    return world


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.real
async def test_module_in_a_process_is_the_same_module(
    world: ProcessWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    "Its name, its services and its messages are those of a module here."
    # on a busy machine a process needs longer to end than to close its connection
    monkeypatch.setattr("flux_trio.broker.process.END_S_MAX", TEST_S_MAX)
    with trio.fail_after(TEST_S_MAX):
        # it asks the broker for its name as any peer does
        await world.serve_broker(world.tokens)
        await world.spawn(ECHO)
        module = world.supervisor.list()[-1]
        assert (module.name, module.services, module.status) == ("echo", ("echo",), "running")
        assert module.pid != os.getpid()
        client = world.client()
        assert await client.ask("echo.back", {"a": 1}) == {"a": 1}
        parties = {
            (record.kind, record.party)
            for record in world.records
            if record.message is not None and getattr(record.message, "topic", "") == "echo.back"
        }
        assert {("recv", "echo"), ("send", "echo")} <= parties
        # what no frame can carry is refused, and does not end it
        with pytest.raises(FluxError) as refused:
            await client.ask("echo.back", {"a": "x" * FRAME_BYTES_MAX})
        assert refused.value.errnum == Errno.EMSGSIZE
        # a crash inside is the module's crash
        waiting = client.send("echo.open", streaming=True)
        assert (await client.answer(waiting)).errnum == 0
        client.send("echo.crash")
        answer = await client.answer(waiting)
        assert answer.errnum == Errno.ENOSYS
        assert answer.error_text.startswith("echo ended: ProcessEnded: its process exited with 1")
        assert "its process exited with 1" in list(world.log)[-1].text
        assert "echo" not in world.supervisor
        assert "echo" not in world.router.services


@pytest.mark.real
async def test_process_is_gone_wherever_a_cancel_meets_its_module():
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            world = ProcessWorld(nursery)
            await world.listen()
            process = partial(world.processes.run, ["sh", "-c", "echo ready; exec sleep 1000"])
            world.supervisor.specs["idle"] = ModuleSpec("idle", echo, process=process)
            await world.supervisor.load("idle", as_process=True)
            await world.supervisor.remove("idle")
            nursery.cancel_scope.cancel()

    assert await nothing_left_wherever_cancelled(run) > 20


@pytest.mark.real
async def test_process_that_is_killed_is_a_crash(world: ProcessWorld) -> None:
    with trio.fail_after(TEST_S_MAX):
        await world.spawn("print('ready', flush=True); import time; time.sleep(1000)")
        pid = world.pid
        await world.supervisor.kill("echo")
        assert not is_running(pid)
        (entry,) = world.log
        assert entry.level == Level.CRIT
        assert entry.text == "module echo: ProcessEnded: its process was ended by SIGKILL"
        assert world.told()[-1] == {
            "module": "echo",
            "what": "crashed",
            "reason": "ProcessEnded: its process was ended by SIGKILL",
        }


@pytest.mark.real
async def test_removed_module_leaves_no_process_even_a_stubborn_one(world: ProcessWorld) -> None:
    "SIGTERM, grace, SIGKILL."
    with trio.fail_after(TEST_S_MAX):
        await world.spawn(STUBBORN)
        pid = world.pid
        await world.supervisor.remove("echo")
        assert not is_running(pid)
        assert world.told()[-1] == {"module": "echo", "what": "removed"}
        assert list(world.log) == []


@pytest.mark.real
async def test_process_that_reads_slowly_gets_everything_in_order(
    world: ProcessWorld, nursery: trio.Nursery
) -> None:
    "What does not fit waits with the module, where requests beyond a bound are refused."
    ours, theirs = memory_pair(bound=2)
    with trio.fail_after(TEST_S_MAX):
        await world.spawn("print('ready', flush=True); import time; time.sleep(1000)")
        who = world.tokens.authenticate("secret")
        assert who is not None
        nursery.start_soon(world.processes.serve, ours, who)
        theirs.send_nowait(Request("nobody.x", matchtag=1))
        (refusal,) = await theirs.receive()
        assert getattr(refusal, "errnum", 0) == Errno.ENOSYS
        world.router.register(world.router.peers["echo"], "echo")
        client = world.client()
        for n in range(7):
            client.send("echo.back", {"n": n})
        got: list[Any] = []
        while len(got) < 7:
            await trio.sleep(0.02)
            got += await theirs.receive()
        assert [message.payload["n"] for message in got] == list(range(7))
        await world.supervisor.remove("echo")


@pytest.mark.real
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('no disk')", "no disk"),
        ("raise SystemExit(3)", "its process exited with 3"),
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
    ],
)
async def test_process_that_does_not_come_up_says_why(
    world: ProcessWorld, script: str, reason: str
) -> None:
    with trio.fail_after(TEST_S_MAX), pytest.raises(ModuleNotStarted) as error:
        await world.spawn(script)
    assert str(error.value) == f"module echo: ProcessEnded: {reason}"
    assert world.supervisor.list() == []


async def test_without_an_address_there_are_no_processes(nursery: trio.Nursery) -> None:
    world = ProcessWorld(nursery)
    with pytest.raises(ModuleNotStarted, match="this instance does not listen"):
        await world.spawn("")


async def test_module_that_has_no_process_form_is_refused(nursery: trio.Nursery) -> None:
    world = ProcessWorld(nursery)
    world.knows("echo", echo)
    with pytest.raises(FluxError, match="module echo cannot run as a process of its own"):
        await world.supervisor.load("echo", as_process=True)


def test_lent_token_is_good_for_the_block_and_never_saved() -> None:
    saved: list[object] = []
    tokens = Tokens(lambda: "secret", saved.append)
    with tokens.lend(7, "module sched") as (token, credentials):
        assert (
            tokens.authenticate(token)
            == credentials
            == Credentials(7, 5, "module sched", credentials.token)
        )
    assert tokens.authenticate(token) is None
    assert saved == []
