"""The statistics of an instance as metrics for Prometheus, by its client library.

All metrics are read from what services count anyway (`stats-get`), when somebody asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from flux_trio.cli.admin.statistics import SERVICES
from flux_trio.messages import topics

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = "flux_trio"

# Numbers of one service: its name, the place in its statistics, the metric and its help.
GAUGES: Final = (
    (topics.JOB_MANAGER, ("sched", "waiting"), "jobs_waiting", "Jobs without an alloc request"),
    (topics.JOB_MANAGER, ("sched", "outstanding"), "allocs_outstanding", "Alloc requests sent"),
    (topics.JOB_INGEST, ("submitting",), "ingest_submitting", "Submissions that are being stored"),
    (topics.KVS, ("waiting",), "kvs_waiting", "Requests that wait for the store"),
    (topics.KVS, ("watches",), "kvs_watches", "Open watches of keys"),
    (topics.KVS, ("damaged",), "kvs_damaged", "Keys that were found to be damaged"),
    (topics.KVS, ("held", "requests"), "kvs_held", "Requests that wait for room on the disk"),
    (topics.BROKER, ("peers",), "peers", "Connections and modules"),
)
# Numbers by a label: the same, and the label.
LABELED: Final = (
    (topics.JOB_MANAGER, "states", "jobs", "Jobs by state", "state"),
    (topics.JOB_EXEC, "jobs", "exec_jobs", "Jobs of the execution service by phase", "phase"),
    (topics.RESOURCE, "nodes", "nodes", "Nodes by condition", "condition"),
)

Stats = Mapping[str, Any]


class InstanceCollector(Collector):
    """Asks the instance at each scrape; `ask` returns None if it cannot be reached."""

    def __init__(self, ask: Callable[[], Stats | None]) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Metric]:
        """Name no metric before a scrape: the instance may not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        stats = self._ask()
        up = GaugeMetricFamily(f"{PREFIX}_up", "Whether the instance answers")
        up.add_metric([], int(stats is not None))
        yield up
        if stats is not None:
            yield from metrics(stats)


def metrics(stats: Stats) -> Iterator[Metric]:
    """Yield the metrics of the statistics that `gather` returns."""
    for service, place, name, text in GAUGES:
        if service in stats:
            gauge = GaugeMetricFamily(f"{PREFIX}_{name}", text)
            gauge.add_metric([], _at(stats[service], place))
            yield gauge
    for service, key, name, text, label in LABELED:
        if service in stats:
            gauge = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
            # an execution service of another program may have other statistics
            for value, number in stats[service].get(key, {}).items():
                gauge.add_metric([value], number)
            yield gauge
    if topics.JOB_MANAGER in stats:
        yield _queues(stats[topics.JOB_MANAGER]["queues"])
        latency = stats[topics.JOB_MANAGER]["alloc_seconds"]
        yield _histogram("alloc_seconds", "Time from submit to alloc", latency)
    if topics.KVS in stats:
        commits = stats[topics.KVS]["commit_seconds"]
        yield _histogram("kvs_commit_seconds", "Time of a transaction of the store", commits)
    yield _requests(stats)
    yield from _hook_metrics(stats["jobtap"])


def _at(value: Any, place: tuple[str, ...]) -> float:
    for key in place:
        value = value[key]
    return float(value)


def _queues(queues: dict[str, dict[str, int]]) -> Metric:
    labels = ["queue", "state"]
    gauge = GaugeMetricFamily(
        f"{PREFIX}_queue_jobs", "Active jobs by queue and state", labels=labels
    )
    for queue, states in queues.items():
        for state, number in states.items():
            gauge.add_metric([queue, state], number)
    return gauge


def _histogram(name: str, text: str, histogram: dict[str, Any]) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}_{name}", text)
    bounds = [*map(str, histogram["bounds"]), "+Inf"]
    counts = itertools.accumulate(histogram["counts"])
    family.add_metric([], list(zip(bounds, counts, strict=True)), histogram["sum"])
    return family


def _requests(stats: Stats) -> Metric:
    family = CounterMetricFamily(
        f"{PREFIX}_requests", "Requests received, by topic", labels=["topic"]
    )
    for service in SERVICES:
        for topic, number in stats.get(service, {}).get("requests", {}).items():
            family.add_metric([topic], number)
    return family


def _hook_metrics(plugins: dict[str, dict[str, dict[str, float]]]) -> Iterator[Metric]:
    labels = ["plugin", "hook"]
    calls = CounterMetricFamily(f"{PREFIX}_hook_calls", "Calls of plugins", labels=labels)
    seconds = CounterMetricFamily(f"{PREFIX}_hook_seconds", "Time spent in plugins", labels=labels)
    longest = GaugeMetricFamily(f"{PREFIX}_hook_seconds_max", "The longest call", labels=labels)
    for plugin, hooks in plugins.items():
        for hook, figures in hooks.items():
            calls.add_metric([plugin, hook], figures["count"])
            seconds.add_metric([plugin, hook], figures["total"])
            longest.add_metric([plugin, hook], figures["max"])
    yield from (calls, seconds, longest)
