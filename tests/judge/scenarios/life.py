"""The everyday life of an instance: jobs that fit, wait, are canceled, reprioritized, refused."""

from __future__ import annotations

from tests.support.scenarios import Stage, scenario


@scenario()
async def everyday(stage: Stage) -> None:
    """Four cores: jobs that run, one that waits, some that change, one that never fits."""
    short = await stage.submit(5.0)
    wide = await stage.submit(20.0, ntasks=3)
    waiting = await stage.submit(5.0, ntasks=2)
    await stage.submit(5.0, ntasks=5)  # never: denied
    low = await stage.submit(5.0, ntasks=4)
    await stage.settle()
    await stage.set_urgency(low, 20)
    await stage.settle()
    await stage.cancel(waiting)
    await stage.settle(30.0)
    running = await stage.submit(30.0)
    await stage.settle()
    await stage.cancel(running)
    assert short < wide < waiting < low < running
    await stage.settle(40.0)


@scenario()
async def scheduler_reload(stage: Stage) -> None:
    """The scheduler comes and goes while a job runs, one waits and one ends."""
    await stage.submit(60.0, ntasks=2)
    await stage.submit(10.0, ntasks=2)
    await stage.submit(10.0, ntasks=3)
    await stage.settle()
    await stage.remove("sched")
    await stage.submit(10.0)
    await stage.settle(2.0)
    await stage.submit(10.0, urgency=20)
    await stage.settle(20.0)
    await stage.load("sched")
    await stage.settle(100.0)
