"""Short-first keeps its promise while the scheduler dies, and fails nowhere."""

import short_first

from flux_trio.lab import Crash, When


def test_shorter_job_starts_first_after_the_scheduler_has_died(world, faults):
    world.configure(nnodes=1, cores=1, plugins=[short_first.__file__])
    world.submit(limit=600.0, run=20.0)  # it has the only core
    world.submit(at=1.0, limit=7200.0)
    world.submit(at=2.0, limit=60.0)
    faults.append(Crash("sched", When("sched.alloc", nth=3), back=5.0))
    world.play()

    events = [
        (record.data["name"], record.data["id"]) for record in world.trace if record.kind == "event"
    ]
    first, long, short = [jobid for name, jobid in events if name == "submit"]
    assert [jobid for name, jobid in events if name == "start"] == [first, short, long]
