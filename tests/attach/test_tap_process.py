"""The process of a tap, with a scripted broker, and the loader of a module behind it.

Where a tap runs the command `flux` to start a loader, a script here starts the loader itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from trio.testing import wait_all_tasks_blocked

import flux_trio
from flux_trio.attach.tap.tapping import run_tap
from flux_trio.cli.attach.module_loader import module_loader
from flux_trio.cli.attach.tap import tap
from flux_trio.messages import Errno, Request
from tests.support import tapped
from tests.support.cancelling import nothing_left_wherever_cancelled
from tests.support.flux_peer import Broker, broker

GREETER = Path(flux_trio.__file__).parents[1] / "docs" / "howto" / "flux-modules" / "greeter.py"


@dataclass
class Tapping:
    peer: Broker
    code: int | None = None

    async def status(self) -> Any:
        return (await self.peer.until("module.status")).payload


@asynccontextmanager
async def tapping(
    tmp_path: Path, path: str, *args: str, at_once: tuple[Request, ...] = ()
) -> AsyncIterator[Tapping]:
    async with broker(tmp_path / "local", {"module.status": None}) as peer:
        found = Tapping(peer)

        async def run() -> None:
            found.code = await run_tap(peer.uri, path)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            told = {"args": list(args), "attrs": {"rank": "0"}, "conf": {}, "uuid": "u"}
            for each in (Request("welcome", {**told, "name": "greeter"}), *at_once):
                peer.send(each)
            yield found


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loader of modules in Trio; `flux PROGRAM PATH` runs it, and any other program."""
    tapped.flux_that_runs_programs(tmp_path, monkeypatch)
    return str(tapped.executable(tmp_path, "module-loader"))


@pytest.mark.real
async def test_the_module_gets_its_own_arguments_and_all_messages_are_recorded(
    tmp_path: Path, loader: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    orders = (f"tap-loader={loader}", f"tap-trace={trace}", "tap-duplicate=tx,response,greeter.*")
    asked = Request("greeter.hello", {}, 5, userid=7, routes=("client",))
    async with tapping(tmp_path, str(GREETER), *orders, "salut", at_once=(asked,)) as found:
        assert await found.status() == {"status": 1}
        answers = [await found.peer.until("greeter.hello") for _ in range(2)]
        assert [each.payload for each in answers] == [{"text": "salut, user 7"}] * 2
        found.peer.send(Request("greeter.shutdown", flags=4))
        assert [await found.status() for _ in range(2)] == [
            {"status": 2},
            {"status": 3, "errnum": 0},
        ]
    assert found.code == 0
    told = trace.read_text()
    assert told.startswith('{"n":1,')
    assert told.count('"greeter.hello"') == 4  # the request, the fault, two answers
    assert '"what":"removed"' in told.splitlines()[-1]


@pytest.mark.real
async def test_a_tap_ends_as_the_module_does(tmp_path: Path, loader: str) -> None:
    killed = tmp_path / "killed.py"
    killed.write_text("import os\n\nasync def mod_main(flux, **_):\n    os.kill(os.getpid(), 9)\n")
    async with tapping(tmp_path, str(killed), f"tap-loader={loader}") as found:
        pass
    assert found.code == -9


@pytest.mark.real
async def test_when_the_broker_goes_the_module_ends_by_itself(tmp_path: Path, loader: str) -> None:
    async with tapping(tmp_path, str(GREETER), f"tap-loader={loader}") as found:
        await found.status()
        assert found.peer.connection is not None
        await found.peer.connection.aclose()
    assert found.code == 1  # and not killed


@pytest.mark.real
async def test_a_tap_that_is_cancelled_leaves_no_process(tmp_path: Path, loader: str) -> None:
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexec sleep 0.01\n")
    idle.chmod(0o755)

    async def run() -> None:
        (tmp_path / "local").unlink(missing_ok=True)
        async with tapping(tmp_path, str(idle), f"tap-loader={idle}"):
            pass

    assert await nothing_left_wherever_cancelled(run) > 20


@pytest.mark.parametrize(
    ("path", "arg", "text", "errnum"),
    [
        ("x.py", "tap-drop=tx", "expected DIRECTION,TYPE,TOPIC", Errno.EINVAL),
        ("x.txt", "tap-drop=tx,event,x", "expected a module NAME.py or NAME.so", Errno.EINVAL),
        ("x.py", "tap-trace=/nosuch/trace", "No such file or directory", Errno.ENOENT),
    ],
)
async def test_wrong_orders_end_the_load_with_the_reason_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, arg: str, text: str, errnum: int
) -> None:
    async with tapping(tmp_path, path, arg) as found:
        line = (await found.peer.until("log.append")).payload
        assert await found.status() == {"status": 2}
        assert await found.status() == {"status": 3, "errnum": errnum}
    assert found.code == 1
    assert text in line
    assert " 0 greeter " in line
    assert text in capsys.readouterr().err


# --- the commands


@pytest.mark.parametrize("command", [tap, module_loader])
def test_a_loader_that_no_broker_has_started_says_so(command: Any) -> None:
    result = CliRunner().invoke(command, ["x.py"], env={"FLUX_MODULE_URI": None})
    assert result.exit_code == 1
    assert "expected a PATH, and a socket in FLUX_MODULE_URI" in result.output


def test_the_path_of_a_module_of_flux_core_is_found(tmp_path: Path) -> None:
    (tmp_path / "job-exec.so").touch()
    env = {"FLUX_MODULE_PATH": f"/nosuch:{tmp_path}"}
    found = CliRunner().invoke(tap, ["--path", "job-exec"], env=env)
    assert found.output == f"{tmp_path}/job-exec.so\n"
    missing = CliRunner().invoke(tap, ["--path", "kvs"], env=env)
    assert f"expected a module in /nosuch:{tmp_path}, got kvs" in missing.output
    outside = CliRunner().invoke(tap, ["--path", "kvs"], env={"FLUX_MODULE_PATH": None})
    assert "expected FLUX_MODULE_PATH, as in `flux env` or an instance" in outside.output


def test_the_path_of_our_own_modules_is_told() -> None:
    found = CliRunner().invoke(module_loader, ["--path", "sched"])
    assert Path(found.output.strip()).name == "sched_trio.py"
    missing = CliRunner().invoke(module_loader, ["--path", "kvs"])
    assert "expected one of exec, sched, got kvs" in missing.output
