"""A control group for each job of a shell host, where control groups can be had.

A process is in the cgroup of its parent from its fork on, and so are its descendants, whatever
they do to their session, environment and files. But to move a process costs it, or who moves it, a
wait for a grace period of the kernel (10 ms if nothing else was moved just before). No job pays
that here, and the host does not stand still: the host itself moves, ahead of the next job, in a
thread if it has to wait. Between jobs it is in a cgroup that is no job's. The job that is launched
then takes this cgroup, and the host moves on to a new one; starts wait until it is there (`ready`).

While the host moves, whatever changes cgroups would wait in the kernel, too: its loop only reads.

A cgroup is `flux-trio-…/TOKEN-NUMBER` beneath the one that the host was started in. TOKEN is the
host's own, so that no two jobs ever have a cgroup of the same name. Records of jobs name it
(`Launched`); the next host ends what is in those that belong to no job it knows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from flux_trio.console import STDERR
from flux_trio.shell import cgroups

# So soon after a move the next one takes 0.05 ms: the kernel waits once for all in a grace period
# (measured on Linux 6.18: up to 12 ms, with 2 exceptions in 238). A thread costs more than that.
AT_ONCE_S: Final = 0.004


class JobCgroups:
    """The cgroups of a host's jobs, and the one that the host is in.

    `name` is different for each directory that has a host.
    """

    def __init__(self, name: str) -> None:
        self._home = cgroups.own_cgroup()
        self._tree = self._home and _made(self._home / f"flux-trio-{name}")
        self._token = os.urandom(4).hex()
        self._number = 0
        self._moved_at = -math.inf
        self._free: Path | None = None  # the host is in it, and may launch a job there
        self._due = trio.Event()  # the host has to move, or is moving
        self._moved = trio.Event()  # ... and has moved
        self._jobs: dict[int, set[Path]] = {}  # more than one if tasks were launched later
        self._over: set[Path] = set()  # no job's any more, to be removed
        if self._tree:
            self._due.set()

    async def run(self) -> None:
        """Move the host whenever a job has taken its cgroup; returns where none can be had."""
        while self._due.is_set():
            if trio.current_time() < self._moved_at + AT_ONCE_S:
                self._free = self._move_on()
            else:
                self._free = await trio.to_thread.run_sync(self._move_on)
            self._moved_at = trio.current_time()
            self._due = trio.Event()
            self._remove_over()
            self._moved.set()
            self._moved = trio.Event()
            if self._free is not None:
                await self._due.wait()

    def leave(self) -> None:
        """Move the host back to where it was started, and remove what it has made."""
        if self._free is not None:
            self._go_home()
        if self._tree is not None:
            cgroups.remove(self._tree)

    async def ready(self) -> None:
        """Return at once if a job can be launched, else when one can.

        Launch it before anything else is awaited.
        """
        while self._due.is_set():
            await self._moved.wait()

    def take(self, jobid: int) -> str:
        """The cgroup that a process of the job was just launched in; empty if it has none."""
        if self._free is None:
            return ""
        self._jobs.setdefault(jobid, set()).add(self._free)
        self._due.set()
        return str(self._free)

    def adopt(self, jobid: int, cgroup: str) -> None:
        """An earlier host has launched the job there."""
        if cgroup and Path(cgroup).is_dir():
            self._jobs.setdefault(jobid, set()).add(Path(cgroup))

    def end_unowned(self) -> None:
        """End what an earlier host left in cgroups of no job that it has recorded. OSError."""
        owned = {cgroup for each in self._jobs.values() for cgroup in each}
        trees = {cgroup.parent for cgroup in owned} | ({self._tree} if self._tree else set())
        for tree in trees:
            for cgroup in set(_directories(tree)) - owned:
                cgroups.kill_all(cgroup)
                self._over.add(cgroup)

    def left(self, jobid: int) -> list[int]:
        """The processes in the cgroups of a job. OSError: that cannot be told now."""
        me = os.getpid()
        found = filter(cgroups.is_populated, self._jobs.get(jobid, ()))
        return [pid for cgroup in found for pid in cgroups.processes_in(cgroup) if pid != me]

    async def kill(self, jobid: int) -> list[int]:
        """SIGKILL what is in the cgroups of a job; the processes to be awaited. OSError."""
        if self.left(jobid):
            await self.ready()  # so that the host is in none of them
            for cgroup in list(self._jobs.get(jobid, ())):
                if os.getpid() not in cgroups.processes_in(cgroup):
                    await trio.to_thread.run_sync(cgroups.kill_all, cgroup)
        return self.left(jobid)

    def release(self, jobid: int) -> None:
        """Nothing is left of the job."""
        self._over |= self._jobs.pop(jobid, set())
        if not self._due.is_set():
            self._remove_over()

    def _remove_over(self) -> None:
        self._over = {cgroup for cgroup in self._over if not cgroups.remove(cgroup)}

    def _move_on(self) -> Path | None:
        """Enter a new cgroup; None if none can be had any more, and the host is at home."""
        assert self._tree is not None
        self._number += 1
        cgroup = self._tree / f"{self._token}-{self._number}"
        try:
            _enter_new(cgroup)
        except OSError as error:
            STDERR.write(f"jobs have no cgroup from now on: {cgroup}: {error.strerror}")
            if self._free is not None:
                self._go_home()
            return None
        return cgroup

    def _go_home(self) -> None:
        """A host that cannot go home never kills the cgroup that it is in; see `kill`."""
        assert self._home is not None
        try:
            cgroups.enter(self._home)
        except OSError as error:
            STDERR.write(f"{self._home} cannot be returned to: {error.strerror}")


def _made(tree: Path) -> Path | None:
    """`tree`, or None if it cannot be."""
    try:
        tree.mkdir(exist_ok=True)
    except OSError as error:
        STDERR.write(f"jobs have no cgroups: {tree}: {error.strerror}")
        return None
    return tree


def _enter_new(cgroup: Path) -> None:
    """OSError: it cannot be had, and is not there."""
    cgroup.mkdir()
    try:
        cgroups.enter(cgroup)
    except OSError:
        cgroups.remove(cgroup)
        raise


def _directories(tree: Path) -> Iterable[Path]:
    with suppress(FileNotFoundError):
        return [path for path in tree.iterdir() if path.is_dir()]
    return []
