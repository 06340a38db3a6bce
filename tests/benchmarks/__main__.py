"""Run benchmarks: all of them, or those named. One JSON line each: name, value, unit, n.

They measure and never fail; the marks they are held against are in docs/design.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

from tests.benchmarks.backfilling import conservative_25k
from tests.benchmarks.deciding import alloc_decision
from tests.benchmarks.finished import list_40k, restart_200k
from tests.benchmarks.measure import Figure
from tests.benchmarks.monitoring import judge_lassen, monitor_overhead, trace_overhead
from tests.benchmarks.one_guest import one_guest
from tests.benchmarks.pending import cancel_5k, pending_bytes, sched_1m
from tests.benchmarks.plugins import load_plugin_100k, plugins_10, reprioritize_100k
from tests.benchmarks.real_jobs import real_true
from tests.benchmarks.reloading import reload_1k, reload_10k, reload_50
from tests.benchmarks.shrinking import shrinking
from tests.benchmarks.simulated import (
    simulate_1k_nodes,
    simulate_lassen,
    simulate_lassen_watched,
    simulate_week,
)
from tests.benchmarks.starting import first_job
from tests.benchmarks.submitting import submit_inproc, submit_socket
from tests.benchmarks.throughput import throughput, throughput_1k_nodes, throughput_10k_nodes
from tests.benchmarks.viewing import view_10k
from tests.benchmarks.worlds import worlds_cores, worlds_stack

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    each.__name__: each
    for each in (
        throughput,
        throughput_1k_nodes,
        throughput_10k_nodes,
        submit_inproc,
        submit_socket,
        reload_50,
        reload_1k,
        reload_10k,
        cancel_5k,
        alloc_decision,
        conservative_25k,
        real_true,
        first_job,
        restart_200k,
        list_40k,
        simulate_1k_nodes,
        simulate_lassen,
        simulate_lassen_watched,
        simulate_week,
        one_guest,
        judge_lassen,
        monitor_overhead,
        trace_overhead,
        plugins_10,
        reprioritize_100k,
        load_plugin_100k,
        pending_bytes,
        sched_1m,
        view_10k,
        worlds_cores,
        worlds_stack,
        shrinking,
    )
}


def main(names: list[str]) -> int:
    """Run what is named; 2 for a name that there is not."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(json.dumps({"name": name, **asdict(figure)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
