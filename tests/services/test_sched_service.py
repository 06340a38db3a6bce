"""The sched service under Trio: it takes the name, serves, and leaves when it must."""

from __future__ import annotations

import functools

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.messages import Errno, FluxError
from flux_trio.services.sched import run
from tests.support.serving import World

MAIN = functools.partial(run, config=Config())


async def test_acquires_and_answers_for_its_name() -> None:
    """27.background.2."""
    world = World()
    resource = world.handle("resource")
    resource.register("resource")
    async with world.serving("sched", MAIN):
        (acquire,) = await resource.receive()
        assert acquire.topic == "resource.acquire"
        with pytest.raises(FluxError) as info:
            world.handle("other").register("sched")
        assert info.value.errnum == Errno.EEXIST
        assert (await world.client().ask("sched.stats-get"))["policy"] == "fifo"


async def test_does_not_come_up_with_a_policy_that_there_is_not() -> None:
    world = World()
    config = parse_config("[queues.a]\npolicy.scheduler.policy = 'best'")
    with pytest.raises(FluxError, match=r"queues\.a\.policy\.scheduler\.policy"):
        await run(world.handle("sched"), config)
