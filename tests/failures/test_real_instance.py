"""The whole instance is killed, and the next one goes on from what it had confirmed."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.support.instance import running_instance

pytestmark = pytest.mark.real


def test_killed_instance_has_lost_no_job_it_confirmed_and_no_process(tmp_path: Path) -> None:
    "16.schema.5; 32.start.5: pending jobs are pending, running ones run on and are started once."
    started = tmp_path / "started"
    with running_instance(tmp_path / "state") as first:
        job = f"echo x >> {started}; sleep 2"
        running = first.ok("submit", "-n1", "sh", "-c", job).strip()
        first.ok("job", "wait-event", "-q", running, "start")
        blockers = [first.ok("submit", "-n4", "true").strip() for _ in range(3)]
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    with running_instance(tmp_path / "state") as second:
        known = second.ok("jobs", "-A", "-a", "-n", "-o", "{id.f58}").split()
        assert set(known) == {running, *blockers}
        for jobid in known:
            second.ok("job", "wait-event", "-q", jobid, "clean")
            log = second.ok("job", "eventlog", jobid)
            assert not re.search(r" exception", log)
            assert [len(re.findall(rf" {name}\b", log)) for name in ("start", "finish")] == [1, 1]
    assert started.read_text() == "x\n"
