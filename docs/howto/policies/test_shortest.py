"""Tests of shortest."""

from pathlib import Path

POLICY = f"{Path(__file__).with_name('shortest.py')}:Shortest"


def test_the_shortest_job_that_fits_starts_first(world):
    world.configure(nnodes=1, cores=1, policy=POLICY)
    world.submit(run=10.0)  # it has the only core
    world.submit(at=1.0, limit=300.0, run=20.0)
    world.submit(at=2.0, limit=60.0, run=20.0)
    world.play()

    events = [record.data for record in world.trace if record.kind == "event"]
    first, long, short = [event["id"] for event in events if event["name"] == "submit"]
    started = [event["id"] for event in events if event["name"] == "start"]
    assert started == [first, short, long]
