"""Modules of flux-core at this broker: a file, a loader that runs it, and what it must not do.

A script stands in place of the command `flux`: it starts the loader itself. Modules that are wrong
are programs of a few lines, in place of a loader.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import flux_trio
from flux_trio.broker import Handle, ModuleFiles, module_file
from flux_trio.messages import Errno, Flag, FluxError, Request, native
from tests.support import tapped
from tests.support.cancelling import nothing_left_wherever_cancelled
from tests.support.instance import DEADLINE_S
from tests.support.modules import ModuleWorld, echo

pytestmark = pytest.mark.real

ROOT = Path(flux_trio.__file__).parents[1]
GREETER = ROOT / "docs" / "howto" / "flux-modules" / "greeter.py"

SPEAKING = f"""#!{sys.executable}
import os, socket, sys, time
sys.path.insert(0, {str(ROOT)!r})
from flux_trio.messages import Request, native
s = socket.socket(fileno=int(os.environ["FLUX_MODULE_URI"].removeprefix("fd://")))
def status(number, **more):
    report = Request("module.status", {{"status": number, **more}}, flags=4)
    s.sendall(native.encode(native.to_frame(report)))
def until_closed():
    while s.recv(4096):
        pass
"""
"""How a module begins that says what a test wants."""


class Files(ModuleWorld):
    """A broker that loads modules from files."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.conf: dict[str, Any] = {"queues": {"debug": {}}}
        self.files = ModuleFiles(self.router, {"rank": "0"}, lambda: self.conf, {})

    async def serve(self) -> Handle:
        await self.load("echo", echo)
        await self.serve_broker(module_files=self.files, log=self.log)
        return self.handle("client")


@pytest.fixture
async def world(nursery: trio.Nursery) -> Files:
    return Files(nursery)


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loader of modules in Trio; `flux PROGRAM PATH` runs it, and any other program."""
    tapped.flux_that_runs_programs(tmp_path, monkeypatch)
    return str(tapped.executable(tmp_path, "module-loader"))


def program(tmp_path: Path, lines: str) -> dict[str, Any]:
    """The payload of module.load for a module that does `lines` after its beginning."""
    path = tmp_path / "wrong"
    path.write_text(SPEAKING + lines)
    path.chmod(0o755)
    return {"path": str(path), "name": "wrong", "args": [], "loader": str(path)}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a process needs longer to end than to close its connection."""
    monkeypatch.setattr(module_file, "CLOSED_S_MAX", DEADLINE_S)


async def gone(world: Files, name: str) -> None:
    while name in world.supervisor:  # noqa: ASYNC110 - nobody is told when a module has ended
        await trio.sleep(0.01)


async def test_a_file_is_a_module_that_serves_until_it_is_removed(
    world: Files, loader: str
) -> None:
    flux = await world.serve()
    wanted = {"path": str(GREETER), "args": ["salut"], "loader": loader}
    await flux.call("module.load", wanted)
    answer = await flux.call("greeter.hello")
    assert answer == {"text": f"salut, user {flux.userid}"}
    [listed] = [m for m in (await flux.call("module.list"))["mods"] if m["name"] == "greeter"]
    assert (listed["path"], listed["status"]) == (str(GREETER), 1)
    assert "says salut" in [entry.text for entry in world.log]
    with pytest.raises(FluxError) as twice:
        await flux.call("module.load", wanted)
    assert twice.value.errnum == Errno.EEXIST
    await flux.call("module.reload", {"name": "greeter"})
    assert (await flux.call("greeter.hello"))["text"].startswith("salut")
    await flux.call("module.remove", {"name": "greeter"})
    with pytest.raises(FluxError) as after:
        await flux.call("greeter.hello")
    assert after.value.errnum == Errno.ENOSYS
    modules = [told for told in world.told() if told and told["module"] == "greeter"]
    assert [told["what"] for told in modules] == ["started", "removed", "started", "removed"]


async def test_what_a_module_says_when_it_does_not_start_is_the_error(
    world: Files, loader: str
) -> None:
    flux = await world.serve()
    wanted = {"path": str(GREETER), "args": ["7"], "loader": loader}
    with pytest.raises(FluxError, match="greeter: expected a word, got 7") as failed:
        await flux.call("module.load", wanted)
    assert failed.value.errnum == Errno.EINVAL


@pytest.mark.parametrize(
    ("wanted", "errnum", "text"),
    [
        ({"path": "/etc/passwd", "args": []}, Errno.EINVAL, "or its loader in --loader="),
        ({"path": "/no/such.py", "args": []}, Errno.ENOENT, "there is no such file"),
        ({"path": str(GREETER), "args": [], "name": "a.b"}, Errno.EINVAL, "without a dot"),
        ({"path": "echo", "args": ["x"]}, Errno.EINVAL, "echo: expected no arguments, got x"),
    ],
)
async def test_a_load_of_what_is_no_module_says_what_was_expected(
    world: Files, wanted: dict[str, Any], errnum: int, text: str
) -> None:
    flux = await world.serve()
    with pytest.raises(FluxError, match=text) as failed:
        await flux.call("module.load", wanted)
    assert failed.value.errnum == errnum


WRONG = {
    "exits before it serves": ("sys.exit('no such pool')", "exited with 1.*: no such pool"),
    "exits without a word": ("", "exited with 0 and never said EXITED"),
    "ends with an errno": ("status(3, errnum=17)", "ended with File exists"),
    "says nonsense": (
        "s.sendall(b'nonsense' * 9)\nuntil_closed()",
        "exited with 0 and never said EXITED.*frame: expected the magic",
    ),
    "has an unknown status": ("status(7)\nuntil_closed()", "RFC 5: module.status: payload"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_module_that_does_not_start_is_told_by_name_and_reason(
    world: Files, loader: str, tmp_path: Path, case: str
) -> None:
    lines, text = WRONG[case]
    flux = await world.serve()
    with pytest.raises(FluxError, match=f"^module wrong: .*{text}"):
        await flux.call("module.load", program(tmp_path, lines))
    assert await flux.call("echo.back", {"n": 1})  # the others go on


LATER = {
    "exits": ("sys.exit(3)", "its process exited with 3"),
    "is killed": ("os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
    "goes back": ("status(2)\nstatus(1)\nuntil_closed()", "RFC 5: module.status 1 after 2"),
    "hangs up": ("s.close()\ntime.sleep(60)", "its process goes on without its connection"),
    "ends with an errno": ("status(3, errnum=5)", "it ended with Input/output error"),
}


@pytest.mark.parametrize("case", LATER)
async def test_a_module_that_goes_wrong_later_is_told_and_the_others_go_on(
    world: Files, loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    lines, text = LATER[case]
    if case == "hangs up":
        monkeypatch.setattr(module_file, "CLOSED_S_MAX", 0.2)
    flux = await world.serve()
    await flux.call("module.load", program(tmp_path, f"status(1)\n{lines}"))
    await gone(world, "wrong")
    assert any(text in e.text and e.party == "wrong" for e in world.log), [*world.log]
    assert await flux.call("echo.back", {"n": 1})


async def test_a_module_that_does_not_end_when_asked_is_killed_and_named(
    world: Files, loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_file, "END_S_MAX", 0.2)
    monkeypatch.setattr(module_file, "GRACE_S", 0.2)
    deaf = "import signal\nsignal.signal(15, signal.SIG_IGN)\nstatus(1)\nuntil_closed()"
    flux = await world.serve()
    await flux.call("module.load", program(tmp_path, deaf))
    await flux.call("module.remove", {"name": "wrong"})
    assert "module wrong: did not end when it was asked to" in [each.text for each in world.log]
    assert "wrong" not in world.supervisor


def report(status: int) -> bytes:
    """The frame by which a module says its status."""
    request = Request("module.status", {"status": status}, flags=Flag.NORESPONSE)
    return native.encode(native.to_frame(request))


async def test_its_process_is_gone_wherever_a_cancel_meets_a_module(
    loader: str, tmp_path: Path
) -> None:
    path = tmp_path / "quick"  # it imports nothing of ours
    path.write_text(f"""#!{sys.executable} -IS
import os
s = int(os.environ["FLUX_MODULE_URI"].removeprefix("fd://"))
os.write(s, {report(1)!r})
while (came := os.read(s, 65536)) and b"shutdown" not in came:
    pass
os.write(s, {report(3)!r})
""")
    path.chmod(0o755)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            world = Files(nursery)
            spec = world.files.spec(str(path), "quick", [], str(path))
            world.supervisor.specs["quick"] = spec
            await world.supervisor.load("quick")
            await world.supervisor.remove("quick")
            nursery.cancel_scope.cancel()

    assert await nothing_left_wherever_cancelled(run) > 20
