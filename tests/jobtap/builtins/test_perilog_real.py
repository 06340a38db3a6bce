"""perilog in a real instance: loaded by name from the configuration, with real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.instance import DEADLINE_S, TWO_NODES, running_instance

pytestmark = pytest.mark.real

CONFIG = """
[job-manager]
plugins = [{ load = "perilog" }]
[job-manager.prolog]
command = ["sh", "-c", "echo $FLUX_JOB_RANKS; test -e %(flag)s || exec sleep 1000"]
timeout = "3s"
[job-manager.epilog]
command = ["sh", "-c", "echo epilog of $FLUX_JOB_ID >> %(out)s"]
"""


def test_prolog_and_epilog_of_real_jobs(tmp_path: Path) -> None:
    """A prolog that takes too long is ended, and nothing of it is left."""
    flag, out = tmp_path / "flag", tmp_path / "out"
    config = TWO_NODES + CONFIG % {"flag": flag, "out": out}
    with running_instance(tmp_path / "state", config) as instance:
        flag.touch()
        good = instance.ok("submit", "-N2", "true").strip()
        instance.ok("job", "wait-event", good, "clean")
        flag.unlink()
        late = instance.ok("submit", "true").strip()
        instance.ok("job", "wait-event", late, "clean")
        note = _exception(instance.ok("job", "eventlog", "-f", "json", late))
        assert note == "prolog timed out on node0 (rank 0)"
        assert out.read_text() == f"epilog of {good}\nepilog of {late}\n"
        assert f"{good}: prolog (rank 0): stdout: 0-1" in instance.ok("dmesg")


def test_prolog_of_an_instance_that_was_killed_is_run_again(tmp_path: Path) -> None:
    """What the first one has left running is ended."""
    flag, pids = tmp_path / "flag", tmp_path / "pids"
    config = TWO_NODES + CONFIG % {"flag": flag, "out": tmp_path / "out"}
    config = config.replace("echo $FLUX_JOB_RANKS;", f"echo $$ >> {pids};").replace('"3s"', '"1m"')
    with running_instance(tmp_path / "state", config) as instance:
        job = instance.ok("submit", "true").strip()
        _wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"))
        instance.stop(signal.SIGKILL)
    first = int(pids.read_text())
    assert _runs(first)
    flag.touch()
    with running_instance(tmp_path / "state", config) as instance:
        instance.ok("job", "wait-event", job, "clean")
        assert len(pids.read_text().splitlines()) == 2
        _wait_for(lambda: not _runs(first))


def _wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _exception(eventlog: str) -> str:
    """The note of the exception in an eventlog."""
    events = [msgspec.json.decode(line) for line in eventlog.splitlines()]
    (note,) = [each["context"]["note"] for each in events if each["name"] == "exception"]
    return str(note)
