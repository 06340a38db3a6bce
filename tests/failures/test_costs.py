"""Jobspecs that are short and name very many hosts, in a real instance with little memory."""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.instance import RunningInstance, running_instance, until

pytestmark = pytest.mark.real

JOBS = 120
CONFIG = """
[access]
allow-guest-user = true
[exec]
simulate = true
[[resource.config]]
hosts = "node0"
cores = "0"
"""
LIMIT_BYTES = 1 << 30  # a list of the hosts of each job would take 1.4 GB


@contextmanager
def little_memory() -> Iterator[None]:
    """Processes that are started meanwhile have LIMIT_BYTES of addresses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def limited_instance(statedir: Path) -> Iterator[RunningInstance]:
    with ExitStack() as stack:
        with little_memory():
            instance = stack.enter_context(running_instance(statedir, CONFIG, judged=False))
        yield instance


def memory_mb(instance: RunningInstance) -> int:
    status = Path(f"/proc/{instance.process.pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kilobytes) // 1024


def states(instance: RunningInstance) -> list[str]:
    return instance.ok("jobs", "-A", "-c", "0", "-n", "-o", "{status}").split()


@pytest.mark.gate
def test_jobs_whose_constraints_name_many_hosts_end_no_instance(tmp_path: Path) -> None:
    """It starts again with them, and their owner cancels them."""
    with limited_instance(tmp_path / "state") as instance:
        before = memory_mb(instance)
        token = instance.ok("token", "--user", "nobody").strip()
        guest = RunningInstance(instance.statedir, instance.process, "")
        uri = (instance.statedir / "uri").read_text().strip()
        guest.env = {"FLUX_TRIO_URI": uri, "FLUX_TRIO_TOKEN": token}
        for number in range(JOBS):
            query = f"not host:x{number}n[0-200000]"
            guest.ok("submit", "-S", "exec.test.run_duration=1h", "--requires", query, "true")
        assert sorted(states(instance)) == ["RUN"] + ["SCHED"] * (JOBS - 1)
        assert memory_mb(instance) - before < 50
        assert instance.stop(signal.SIGKILL) == -signal.SIGKILL
    with limited_instance(tmp_path / "state") as instance:
        assert len(states(instance)) == JOBS
        assert memory_mb(instance) - before < 50
        assert (
            f"Canceled {JOBS} jobs" in instance.call("cancel", "--all", "--user", "nobody").stderr
        )
        until(lambda: states(instance) == [])
