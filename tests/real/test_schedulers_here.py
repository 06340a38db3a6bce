"""flux-core's schedulers and fluxion, unmodified, schedule for an instance of flux-trio.

They are loaded from their files by flux-core's own loaders. Each has a thousand jobs, and then
those of a log of Lassen, while the monitor judges the instance.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conformance.loading import CONFIG, LOGGED, NJOBS, load
from tests.real.conformance.testees import Examinee, others_here
from tests.support.live_scheduling import FLUXION, FLUXION_MODULES, fluxion_path
from tests.support.real_flux import NEEDS_FLUX, REAL

BROKEN = {"fluxion": {"20.nslots.3"}}
"""The clauses that a scheduler breaks here, and that are known of it."""


def schedulers() -> list[Examinee]:
    """Those of others that can be loaded here."""
    return [] if NEEDS_FLUX[1].args[0] else others_here()


FLUXION_TABLES = """
[sched-fluxion-qmanager]
queue-policy = "easy"
[sched-fluxion-qmanager.policy-params]
max-queue-depth = 77
[sched-fluxion-resource]
match-policy = "lonodex"
[queues.batch]
[policy.jobspec.defaults.system]
queue = "batch"
"""
ASKS_FLUXION = """
flux module remove sched-simple
flux module load {resource} load-allowlist=node,core,gpu
flux module load {feasibility}
flux module load {qmanager}
for name in resource qmanager; do
  flux python -c "import flux, json; \\
    print(json.dumps(flux.Flux().rpc('sched-fluxion-$name.params').get()['params']))"
done
flux run -q batch true
"""


@pytest.mark.real_flux
@NEEDS_FLUX[1]
@pytest.mark.skipif(
    None in map(fluxion_path, FLUXION), reason=f"no modules of fluxion in ${FLUXION_MODULES}"
)
def test_fluxion_reads_its_tables_of_the_configuration(tmp_path: Path) -> None:
    config, script = tmp_path / "current.toml", tmp_path / "asks.sh"
    config.write_text(CONFIG + FLUXION_TABLES)
    modules = {name.removeprefix("sched-fluxion-"): fluxion_path(name) for name in FLUXION}
    script.write_text("set -e\n" + ASKS_FLUXION.format(**modules))
    start = [sys.executable, "-m", "flux_trio", "start", "-c", str(config)]
    done = subprocess.run(
        [*start, "--statedir", str(tmp_path / "s"), "sh", str(script)],
        cwd=REAL.parents[1],
        env={**os.environ, "FLUX_URI": f"local://{tmp_path}/s/local-0"},
        capture_output=True,
        timeout=120,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    resource, qmanager = map(json.loads, done.stdout.splitlines())
    assert resource["policy"] == "lonodex"
    batch = qmanager["batch"]  # the queue, of which it makes one of its own
    assert (batch["queue-policy"], batch["policy-params"]) == ("easy", "max-queue-depth=77")


@pytest.mark.real_flux
@NEEDS_FLUX[1]
@pytest.mark.parametrize(
    "testee",
    schedulers() or [None],  # without flux-core it is skipped
    ids=lambda each: "none" if each is None else Path(each.scheduler).stem,
)
def test_a_thousand_jobs_and_a_log_are_scheduled_and_nothing_unknown_is_broken(
    testee: Examinee, tmp_path: Path
) -> None:
    loaded = load(testee, tmp_path)
    assert loaded.njobs == loaded.nsuccessful == NJOBS + LOGGED
    broken = {clause for clauses in loaded.broken.values() for clause in clauses}
    assert broken == BROKEN.get(testee.scheduler, set()), loaded.broken
