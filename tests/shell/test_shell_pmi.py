"""Tasks that ask for PMI: their job is told of, and no other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flux_trio.shell import pmi
from flux_trio.shell.protocol import Done, Started, WantsPmi
from tests.support.shell import Shell, hosts

pytestmark = pytest.mark.real

ASKS = """
import os
print("of", os.environ["PMI_SIZE"], flush=True)
if os.environ["PMI_RANK"] != "0":
    door = int(os.environ["PMI_FD"])
    try:
        os.write(door, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
        os._exit(5 if os.read(door, 1) == b"" else 6)
    except OSError:  # the other task has asked before
        os._exit(5)
"""


def descriptors(host: int) -> int:
    return len(list(Path(f"/proc/{host}/fd").iterdir()))


async def test_task_that_asks_is_noticed_and_reads_the_end_of_the_file(shell: Shell) -> None:
    shell.start(1, sys.executable, "-c", ASKS, ntasks=3)
    assert await shell.hear(Started) == Started(1)
    assert await shell.hear(WantsPmi) == WantsPmi(1)
    assert (await shell.hear(Done)).status == 5 << 8
    assert shell.output(1, 1) == "of 3\n"
    shell.forget(1)


async def test_tasks_that_do_not_ask_cost_nothing_when_they_have_ended(
    directory: Path, shell: Shell
) -> None:
    (host,) = hosts(directory)
    await shell.run(1, "true")
    before = descriptors(host)
    for jobid in range(2, 6):
        assert (await shell.run(jobid, "true", ntasks=2)).status == 0
    shell.forget(1, 2, 3, 4, 5)
    assert (await shell.run(6, "sh", "-c", "exit ${PMI_FD:-0}")).status == 0  # alone: none is due
    shell.forget(6)
    assert descriptors(host) <= before + 1


def test_further_jobs_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi, "DOORS_MAX", 1)
    doors = pmi.PmiDoors()
    with doors.door(1, 2) as first, doors.door(2, 2) as second:
        assert first is not None
        assert second is None
    ((_, ours),) = doors.came
    assert not doors.asked(ours)
    with doors.door(3, 2) as third:
        assert third is not None
        os.write(third, b"x")
    assert doors.asked(doors.came[1][1])
