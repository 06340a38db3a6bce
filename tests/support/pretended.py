"""Commands of an exercise in virtual time: the shell is real, and stops where it would sleep."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

_SLEEP: Final = re.compile(r"(?:exec )?sleep ([\d.]+)")


class Pretended:
    """What `trio.lowlevel.open_process` returns, as far as a service needs it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        script = command[-1] if command[0] == "sh" else ""
        self._nap_s = next((float(found[1]) for found in _SLEEP.finditer(script)), 0.0)
        stopping = _SLEEP.sub("kill -STOP $$", script)
        words = ["sh", "-c", stopping] if script else list(command)
        self._process = subprocess.Popen(words, env=dict(environment), stdin=subprocess.DEVNULL)
        self._signaled = trio.Event()
        self._signum = signal.SIGCONT

    async def wait(self) -> int:
        """Wait until it has ended, while virtual time passes; return the code of `Popen`."""
        await trio.lowlevel.checkpoint()
        while self._process.returncode is None and self._is_stopped():
            with trio.move_on_after(self._nap_s):
                await self._signaled.wait()
            os.kill(self._process.pid, self._signum)
            os.kill(self._process.pid, signal.SIGCONT)
        return self._process.wait()

    def _is_stopped(self) -> bool:
        """Wait until it sleeps or has ended."""
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert found is not None
        return found.si_code == os.CLD_STOPPED

    def terminate(self) -> None:
        self._signum = signal.SIGTERM
        self._signaled.set()

    def kill(self) -> None:
        self._signum = signal.SIGKILL
        self._signaled.set()

    def end(self) -> None:
        """End what has lost its service."""
        self._process.kill()
        self._process.wait()


async def _open(
    started: list[Pretended],
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stdin: int,
) -> Pretended:
    """Take the place of `trio.lowlevel.open_process`. Raises OSError."""
    del cwd, stdin
    await trio.lowlevel.checkpoint()
    started.append(Pretended(command, env))
    return started[-1]


def pretending(module: Any) -> Any:
    """Let the program of a module pretend; its processes end with it, as one group."""
    serve = module.serve

    async def serve_and_end(handle: Any) -> None:
        started: list[Pretended] = []
        module.open_process = partial(_open, started)
        try:
            await serve(handle)
        finally:
            for each in started:
                each.end()

    module.serve = serve_and_end
    return module
