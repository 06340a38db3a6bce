"""perilog in a real instance: loaded by name from the configuration, with real processes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.instance import TWO_NODES, running_instance

pytestmark = pytest.mark.real

CONFIG = """
[job-manager]
plugins = [{ load = "perilog" }]
[job-manager.prolog]
command = ["sh", "-c", "echo $FLUX_JOB_RANKS; test -e %(flag)s || exec sleep 1000"]
timeout = "0.5s"
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


def _exception(eventlog: str) -> str:
    """The note of the exception in an eventlog."""
    events = [msgspec.json.decode(line) for line in eventlog.splitlines()]
    (note,) = [each["context"]["note"] for each in events if each["name"] == "exception"]
    return str(note)
