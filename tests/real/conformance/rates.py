"""How many jobs a second each scheduler gets through, in one live flux-core, by flux-core's own
src/test/throughput.py. The jobs are simulated, so that nothing but Flux takes time.

It is the program of an instance, and prints JSON, the rates of each scheduler:

    flux start python -m tests.real.conformance.rates NODES JOBS REPEATS SCHEDULER...
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import trio

from tests.support.live_scheduling import Scheduler, flux

CORES: Final = 128
REPEATS: Final = 3
JOBS: Final = 500
NODES: Final = 1000
_RATE: Final = re.compile(r"throughput: +([0-9.]+)")


async def _has_nodes(nodes: int) -> None:
    """Give the instance nodes that are not there, and no scheduler."""
    inventory = ["flux", "R", "encode", f"-r0-{nodes - 1}", f"-c0-{CORES - 1}"]
    inventory += [f"-Hnode[0-{nodes - 1}]"]
    encoded = (await trio.run_process(inventory, capture_stdout=True)).stdout.decode()
    await flux("module", "remove", "sched-simple")
    await flux("kvs", "put", f"resource.R={encoded.strip()}")
    await flux("module", "reload", "resource", "monitor-force-up")


async def _rate(script: Path, jobs: int) -> float:
    done = await trio.run_process(
        ["flux", "python", str(script), "-n", str(jobs)], capture_stdout=True
    )
    found = _RATE.search(done.stdout.decode())
    assert found is not None, done.stdout
    return float(found[1])


async def _with(scheduler: Scheduler, script: Path, jobs: int) -> float:
    is_ours = scheduler.is_ours
    await (scheduler.start() if is_ours else scheduler.load())
    try:
        return await _rate(script, jobs)
    finally:
        await (scheduler.end() if is_ours else scheduler.remove())


async def main(nodes: int, jobs: int, repeats: int, schedulers: list[str]) -> None:
    script = Path(os.environ["FLUX_SOURCE"]) / "src" / "test" / "throughput.py"
    found: dict[str, list[float]] = defaultdict(list)
    await _has_nodes(nodes)
    for _ in range(repeats):  # in turns, so that what else the machine does meets all of them
        for name in schedulers:
            found[name].append(await _with(Scheduler(name), script, jobs))
    print(json.dumps(found))


if __name__ == "__main__":
    trio.run(main, *map(int, sys.argv[1:4]), sys.argv[4:])
