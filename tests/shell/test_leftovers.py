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


def test_process_that_ends_during_the_search_is_waited_for(tmp_path: Path) -> None:
    "Its children become the host's when it ends, which may be after the list was read."
    with sleeping() as parent, sleeping() as child:
        orphans = ScriptedOrphans(tmp_path, [[parent], [parent, child], []], ending=parent)
        leftovers = Leftovers(orphans, {}, {})
        assert leftovers.kill(ShellJob(1), running=()) == [parent]
        assert leftovers.kill(ShellJob(1), running=()) == [parent, child]
        assert leftovers.kill(ShellJob(1), running=()) == []


def test_process_of_a_running_job_is_left_alone_and_not_waited_for(tmp_path: Path) -> None:
    with sleeping() as parent, sleeping() as other:
        orphans = ScriptedOrphans(tmp_path, [[parent, other]], ending=parent)
        running = ShellJob(2)
        running.apply(Launched(0, other, starttime=1))
        leftovers = Leftovers(orphans, {2: running}, {other: 2})
        assert leftovers.kill(ShellJob(1), running=()) == [parent]
        os.kill(other, signal.SIGTERM)
        ended = os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert ended.si_status == signal.SIGTERM  # SIGKILL, which it did not get, would come first
