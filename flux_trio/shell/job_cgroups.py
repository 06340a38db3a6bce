"""A control group for each job of a shell host, if control groups are available.


From its fork on, a process is in the cgroup of its parent, and so are its descendants, even if they
change their session, environment and files. But moving a process waits for a grace period of the
kernel (10 ms, unless another process was moved just before). To keep this wait away from the jobs,
the host itself moves: between jobs it is in a fresh cgroup. The next job is launched in that cgroup
and keeps it, and the host moves on to a new one, in a thread if the move has to wait. Starts wait
until the host has moved (`ready`). During a move, any change to cgroups would wait in the kernel
too, so the host's loop only reads them.

A cgroup is `flux-trio-…/TOKEN-NUMBER` beneath the cgroup in which the host was started. TOKEN is
unique to the host. The records of jobs name their cgroup (`Launched`); the next host kills the
processes in the cgroups of unknown jobs.

When a job is over, its cgroup serves another job, if it is like a new one (`cgroups.is_as_new`):
making, entering for the first time and removing a cgroup takes several times as long as entering
one that was used before. At most SPARE_MAX of them wait; all others are removed. A spare cgroup
that a host leaves behind is one of an unknown job to the next host. The record of a job may still
be there when the cgroup serves the next one; `Launched.use` tells who had the cgroup last.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import trio

from flux_trio.process.console import STDERR
from flux_trio.shell import cgroups

SWITCH: Final = "FLUX_TRIO_CGROUPS"
"""Jobs get no cgroups if this environment variable of the shell host is "0"."""

# Within this time after a move, the next move takes 0.1 ms, because the kernel waits once for all
# moves in a grace period: on Linux 6.18, 2 of 400 moves took more than 1 ms when the one before was
# up to 15 ms ago, and 9 in 10 when it was 20 ms ago. A thread costs twice as much.
AT_ONCE_S: Final = 0.010

# A process counts for its cgroup until the kernel has switched away from it for the last time, and
# that may be after its parent has reaped it. Until then the cgroup cannot be removed. Jobs that end
# within this time have their cgroups removed together.
REMOVE_AFTER_S: Final = 0.02
LEAVE_S_MAX: Final = 1.0  # then a cgroup that cannot be removed stays

SPARE_MAX: Final = 16
"""How many cgroups without a job a host keeps: for as many jobs as end before others start."""


class Place(NamedTuple):
    """Where a job is launched."""

    cgroup: str  # the directory; empty if the job has no cgroup
    use: int  # greater than that of each job that had the cgroup before


class JobCgroups:
    """The cgroups of a host's jobs, and the one that the host is in.

    `name` is unique to the host's directory.
    """

    def __init__(self, name: str) -> None:
        self._home = cgroups.own_cgroup() if os.environ.get(SWITCH) != "0" else None
        self._tree = self._home and _made(self._home / f"flux-trio-{name}")
        self._token = os.urandom(4).hex()
        self._use = 0  # how many times the host has moved
        self._moved_at = -math.inf
        self._free: Path | None = None  # the host is in it; the next job is launched there
        self._is_due = self._tree is not None  # the host has to move, or is moving
        self._to_wait = trio.Event()  # set for a move that has to wait
        self._moved = trio.Event()  # set after each move
        self._jobs: dict[int, set[Path]] = {}  # several if tasks of a job were launched later
        self._over: set[Path] = set()  # of ended jobs, to be spared or removed
        self._spare: list[Path] = []  # as new; the host moves to them before it makes one
        self._is_over = trio.Event()  # set when a cgroup is added to them

    async def run(self) -> None:
        """Move the host whenever a job has taken its cgroup, and remove those of ended jobs.

        Returns if cgroups are unavailable.
        """
        if self._tree is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._clear_ended)
            nursery.start_soon(self._move_in_thread)
            self.move_on()

    def move_on(self) -> None:
        """Move the host out of the cgroup that a job has taken, in the thread if that has to wait.

        Call it when the processes of a job are launched, so that the host has moved before the
        next job comes.
        """
        if not self._is_due or self._to_wait.is_set():
            return
        if trio.current_time() < self._moved_at + AT_ONCE_S:
            self._has_moved(self._enter_next())
        else:
            self._to_wait.set()

    async def _move_in_thread(self) -> None:
        while True:
            await self._to_wait.wait()
            cgroup = await trio.to_thread.run_sync(self._enter_next)
            self._to_wait = trio.Event()
            self._has_moved(cgroup)

    def _has_moved(self, cgroup: Path | None) -> None:
        """Note that the host is in `cgroup` now; None if it cannot move any more."""
        self._free = cgroup
        self._is_due = False
        self._moved_at = trio.current_time()
        self._moved.set()
        self._moved = trio.Event()

    async def leave(self) -> None:
        """Move the host back to its first cgroup, and remove the cgroups that it has made."""
        if self._free is not None:
            self._go_home()
        with trio.move_on_after(LEAVE_S_MAX, shield=True):
            while self._tree is not None and not cgroups.remove(self._tree):  # noqa: ASYNC110
                await trio.sleep(REMOVE_AFTER_S)

    async def ready(self) -> None:
        """Return when a job can be launched.

        The caller must launch it before its next await.
        """
        self.move_on()
        while self._is_due:
            await self._moved.wait()

    def assign(self, jobid: int) -> Place:
        """Give the job the cgroup in which its process was launched."""
        if self._free is None:
            return Place("", 0)
        self._jobs.setdefault(jobid, set()).add(self._free)
        self._is_due = True
        return Place(str(self._free), self._use)

    def adopt(self, launched: Iterable[tuple[Place, int]]) -> None:
        """Note where earlier hosts launched which job; the last job in a cgroup has it."""
        owners = {place.cgroup: jobid for place, jobid in sorted(launched)}
        for cgroup, jobid in owners.items():
            if cgroup and Path(cgroup).is_dir():
                self._jobs.setdefault(jobid, set()).add(Path(cgroup))

    def end_unowned(self) -> None:
        """Kill processes in earlier hosts' cgroups that no record names. Raises OSError."""
        owned = {cgroup for each in self._jobs.values() for cgroup in each}
        trees = {cgroup.parent for cgroup in owned} | ({self._tree} if self._tree else set())
        for tree in trees:
            for cgroup in set(_directories(tree)) - owned:
                cgroups.kill_all(cgroup)
                self._over.add(cgroup)
                self._is_over.set()

    def left(self, jobid: int) -> list[int]:
        """Return the processes in the cgroups of a job. Raises OSError if unreadable now."""
        me = os.getpid()
        found = filter(cgroups.is_populated, self._jobs.get(jobid, ()))
        return [pid for cgroup in found for pid in cgroups.processes_in(cgroup) if pid != me]

    async def kill(self, jobid: int) -> list[int]:
        """SIGKILL the processes of a job's cgroups; return those to wait for. Raises OSError."""
        if self.left(jobid):
            await self.ready()  # then the host is in another cgroup
            for cgroup in list(self._jobs.get(jobid, ())):
                if os.getpid() not in cgroups.processes_in(cgroup):
                    await trio.to_thread.run_sync(cgroups.kill_all, cgroup)
        return self.left(jobid)

    def release(self, jobid: int) -> None:
        """Let the cgroups of a job that has no process left be used again, or removed."""
        for cgroup in self._jobs.pop(jobid, ()):
            if not self._is_spared(cgroup):
                self._over.add(cgroup)
                self._is_over.set()

    async def _clear_ended(self) -> None:
        """Spare or remove the cgroups of ended jobs, while the host does not move.

        To remove one would wait for the move.
        """
        while True:
            await self._is_over.wait()
            await trio.sleep(REMOVE_AFTER_S)
            await self.ready()
            self._over = {
                cgroup
                for cgroup in self._over
                if not (self._is_spared(cgroup) or cgroups.remove(cgroup))
            }
            if not self._over:
                self._is_over = trio.Event()

    def _is_spared(self, cgroup: Path) -> bool:
        """Keep `cgroup` for a later job, if this host has made it and it is as new."""
        is_spare = (
            len(self._spare) < SPARE_MAX
            and cgroup.name.startswith(self._token)
            and cgroups.is_as_new(cgroup)
        )
        if is_spare:
            self._spare.append(cgroup)
        return is_spare

    def _enter_next(self) -> Path | None:
        """Enter a cgroup of no job, and return it; on an error go home and return None."""
        assert self._tree is not None
        self._use += 1
        while self._spare:
            cgroup = self._spare.pop()
            with suppress(OSError):  # others have removed it, or changed it
                cgroups.enter(cgroup)
                return cgroup
            cgroups.remove(cgroup)
        cgroup = self._tree / f"{self._token}-{self._use}"
        try:
            _enter_new(cgroup)
        except OSError as error:
            STDERR.write(f"new jobs get no cgroup: {cgroup}: {error.strerror}")
            if self._free is not None:
                self._go_home()
            return None
        return cgroup

    def _go_home(self) -> None:
        """Move back to the first cgroup; on an error stay (`kill` spares the host's cgroup)."""
        assert self._home is not None
        try:
            cgroups.enter(self._home)
        except OSError as error:
            STDERR.write(f"cannot move the host back to {self._home}: {error.strerror}")


def _made(tree: Path) -> Path | None:
    """Create `tree` and return it, or None if that fails."""
    try:
        tree.mkdir(exist_ok=True)
    except OSError as error:
        STDERR.write(f"jobs get no cgroups: {tree}: {error.strerror}")
        return None
    return tree


def _enter_new(cgroup: Path) -> None:
    """Create and enter a cgroup; on OSError it does not exist."""
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
