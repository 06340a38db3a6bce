"""Perilog without processes: what prologs and epilogs would do is acted, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from flux_trio.jobtap.builtins.perilog import Perilog
from flux_trio.jobtap.builtins.perilog_run import Run


@dataclass
class Acted:
    """A process that takes `seconds`, then has `status`; signals before that end it, or do not."""

    seconds: float = 1.0
    status: int = 0
    deaf: bool = False  # to SIGTERM
    ended: trio.Event = field(default_factory=trio.Event)
    signals: list[int] = field(default_factory=list)

    async def wait(self) -> int:
        with trio.move_on_after(self.seconds):
            await self.ended.wait()
            return self.signals[-1]
        return self.status

    def signal(self, signum: int) -> None:
        self.signals.append(int(signum))
        if signum == 9 or not self.deaf:
            self.ended.set()


class Acting(Perilog):
    """Perilog whose processes are acted, each as `prolog` or `epilog` says."""

    def __init__(self, prolog: dict[str, Any] | None = None, epilog: dict[str, Any] | None = None):
        super().__init__()
        self.parts = {"prolog": prolog or {}, "epilog": epilog or {}}
        self.parts_by_rank: dict[int, dict[str, Any]] = {}  # in place of those, if the rank has any
        self.played: list[tuple[str, int, dict[str, str]]] = []

    @asynccontextmanager
    async def open_process(
        self, run: Run, rank: int, environment: dict[str, str]
    ) -> AsyncIterator[Acted]:
        self.played.append((run.what.name, rank, environment))
        part = self.parts_by_rank.get(rank, self.parts[run.what.name])
        if "error" in part:
            raise FileNotFoundError(2, part["error"])
        yield Acted(**part)
