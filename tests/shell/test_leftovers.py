"""The search for what remains of a job, where processes end while it is made."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flux_trio.shell.job import ShellJob
from flux_trio.shell.leftovers import Leftovers
from flux_trio.shell.orphans import Orphans
from flux_trio.shell.records import Launched


class ScriptedOrphans(Orphans):
    """Each search lists the next of `lists`, after which the process `ending` ends."""

    def __init__(self, directory: Path, lists: list[list[int]], ending: int) -> None:
        super().__init__(directory)
        self.lists = lists
        self._ending = ending

    def children(self) -> list[int]:
        listed = self.lists.pop(0)
        os.kill(self._ending, signal.SIGKILL)
        os.waitid(os.P_PID, self._ending, os.WEXITED | os.WNOWAIT)  # a zombie from now on
        return listed


@contextmanager
def sleeping() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_children_of_a_process_that_ends_during_the_search_are_found(tmp_path: Path) -> None:
    "They become the host's children when their parent ends, which may be after the list was read."
    with sleeping() as parent, sleeping() as child:
        orphans = ScriptedOrphans(tmp_path, [[parent], [parent, child]], ending=parent)
        assert Leftovers(orphans, {}, {}).kill(ShellJob(1), running=()) == [child]
        assert orphans.lists == []


def test_children_are_found_beside_a_process_of_another_job(tmp_path: Path) -> None:
    "The other job runs; what is found of it does not end the search."
    with sleeping() as parent, sleeping() as child, sleeping() as other:
        lists = [[parent, other], [parent, other, child]]
        orphans = ScriptedOrphans(tmp_path, lists, ending=parent)
        running = ShellJob(2)
        running.apply(Launched(0, other, starttime=1 << 62))  # so the child cannot be its own
        leftovers = Leftovers(orphans, {2: running}, {other: 2})
        assert leftovers.kill(ShellJob(1), running=()) == [child]


def test_search_ends_when_no_more_processes_end(tmp_path: Path) -> None:
    with sleeping() as parent:
        orphans = ScriptedOrphans(tmp_path, [[parent], [parent]], ending=parent)
        assert Leftovers(orphans, {}, {}).kill(ShellJob(1), running=()) == []
        assert orphans.lists == []
