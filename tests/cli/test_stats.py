"""`flux-trio stats`, and its metrics as Prometheus reads them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from flux_trio.cli.admin.metrics import metrics
from flux_trio.cores.histogram import SHORT_S, Durations
from tests.support.instance import DEADLINE_S, RunningInstance, running_instance, until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def instance(own_instance: RunningInstance) -> RunningInstance:
    return own_instance


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    return found[f"flux_trio_{name}", tuple(sorted(labels.items()))]


def run_jobs(instance: RunningInstance) -> None:
    for _ in range(3):
        assert instance.invoke("run", "true").exit_code == 0
    instance.ok("submit", "--urgency=hold", "true")


def test_execution_service_of_another_program_may_have_other_statistics() -> None:
    found = {family.name for family in metrics({"job-exec": {"mine": 1}, "jobtap": {}})}
    assert "flux_trio_exec_jobs" in found


@pytest.mark.real
def test_metrics_are_those_of_the_instance(instance: RunningInstance) -> None:
    run_jobs(instance)
    found = samples(instance.ok("stats", "--prometheus"))
    assert of(found, "up") == 1
    assert of(found, "jobs", state="inactive") == 3
    assert of(found, "queue_jobs", queue="", state="sched") == 1
    assert of(found, "nodes", condition="all") == 2
    assert of(found, "requests_total", topic="job-ingest.submit") == 4
    assert of(found, "alloc_seconds_count") == 3
    assert 0 < of(found, "alloc_seconds_sum") < DEADLINE_S
    assert of(found, "kvs_commit_seconds_count") > 10
    assert of(found, "kvs_commit_seconds_bucket", le="+Inf") == of(
        found, "kvs_commit_seconds_count"
    )
    default = {"plugin": ".priority-default", "hook": "job.state.priority"}
    assert of(found, "hook_calls_total", **default) == 4
    assert (
        0 < of(found, "hook_seconds_max", **default) <= of(found, "hook_seconds_total", **default)
    )
    told = json.loads(instance.ok("stats"))
    assert told["job-manager"]["states"]["sched"] == 1
    assert sum(told["kvs"]["commit_seconds"]["counts"]) >= of(found, "kvs_commit_seconds_count")


@pytest.mark.real
def test_metrics_of_an_instance_without_a_scheduler(instance: RunningInstance) -> None:
    instance.ok("module", "remove", "sched")
    found = samples(instance.ok("stats", "--prometheus"))
    instance.ok("module", "load", "sched")
    assert ("flux_trio_requests_total", (("topic", "sched.alloc"),)) not in found
    assert of(found, "up") == 1


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return samples(answer.read().decode())


@pytest.mark.real
def test_metrics_are_served_whether_or_not_the_instance_runs(tmp_path: Path) -> None:
    with running_instance(tmp_path / "state") as instance:
        instance.invoke("run", "true")
        serving = instance.popen("stats", "--serve", "0")
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().split()[-1]
            assert url.startswith("http://127.0.0.1:")
            first = scrape(url)
            assert (of(first, "up"), of(first, "alloc_seconds_count")) == (1, 1)
            assert instance.stop() == 0
            until(lambda: scrape(url) == {("flux_trio_up", ()): 0})
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(DEADLINE_S) == 0
        finally:
            serving.kill()
            serving.communicate()


@pytest.mark.real
def test_port_that_is_taken_is_named(instance: RunningInstance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = instance.run("stats", "--serve", str(port))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert f"cannot listen at 127.0.0.1:{port}: " in refused.stderr


@pytest.mark.real
def test_without_the_library_the_extra_is_named(instance: RunningInstance) -> None:
    script = (
        "import sys; sys.modules['prometheus_client.core'] = None\n"
        "from flux_trio.cli import main; main(prog_name='flux-trio')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "stats", "--prometheus"],
        env=instance.env, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert 'pip install "flux-trio[metrics]"' in done.stderr


def test_memory_is_the_same_after_many_jobs() -> None:
    durations = Durations(SHORT_S)
    for n in range(10_000):
        durations.add(n / 100)
    assert len(durations.counts) == len(SHORT_S) + 1
    assert sum(durations.counts) == 10_000


@given(st.lists(st.floats(-1.0, 100.0)))
def test_each_duration_counts_at_the_first_bound_that_holds_it(lengths: list[float]) -> None:
    durations = Durations(SHORT_S)
    for length in lengths:
        durations.add(length)
    told: Any = durations.histogram()
    bounds = [*told.bounds, float("inf")]
    for index, bound in enumerate(bounds):
        assert sum(told.counts[: index + 1]) == sum(length <= bound for length in lengths)
    assert told.sum == pytest.approx(sum(max(length, 0.0) for length in lengths))
