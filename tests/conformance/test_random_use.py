"""Whatever its users do, and whichever service comes and goes, an instance breaks no clause."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from flux_trio.config import Config, ExecConfig, SchedConfig
from flux_trio.conformance.rules import ALL_RULES
from flux_trio.messages import FluxError, topics
from tests.support.judged import judge
from tests.support.scenarios import Stage, play_on

STEPS = 60
PAUSES_S = (0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 3.0)
END_S = 300.0
"""Longer than all jobs of a story take one after the other."""

CONFIGS = {
    "fifo": SchedConfig(),
    "limited": SchedConfig(mode="limited", limit=2),
    "easy": SchedConfig(policy="easy"),
}


class Story:
    """What happens, drawn from one seed."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.random = random.Random(seed)
        self.jobs: list[int] = []
        self.steps: dict[Callable[[], Awaitable[None]], int] = {  # and how often, in proportion
            self.submit: 12,
            self.cancel: 4,
            self.set_urgency: 4,
            self.update: 2,
            self.reload: 4,
            self.stop_queue: 1,
            self.drain: 1,
            self.fail_node: 1,
        }

    async def play(self) -> None:
        """All steps; then held jobs may run, and everything ends."""
        for _ in range(STEPS):
            await trio.sleep(self.random.choice(PAUSES_S))
            (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
            try:
                await step()
            except FluxError:
                continue  # a job that is over, or a service that is not there
        for jobid in self.jobs:
            try:
                await self.stage.set_urgency(jobid, 16)
            except FluxError:
                continue
        await self.stage.settle(END_S)

    async def submit(self) -> None:
        draw = self.random.choice
        jobid = await self.stage.submit(
            draw((0.0, 0.5, 2.0, 7.0)),
            urgency=draw((0, 5, 16, 16, 30)),
            duration=draw((0.0, 10.0)),
            ntasks=draw((1, 1, 2, 3, 4, 5)),
        )
        self.jobs.append(jobid)

    async def cancel(self) -> None:
        if self.jobs:
            await self.stage.cancel(self.random.choice(self.jobs))

    async def set_urgency(self) -> None:
        if self.jobs:
            urgency = self.random.choice((0, 1, 16, 20, 31))
            await self.stage.set_urgency(self.random.choice(self.jobs), urgency)

    async def update(self) -> None:
        if self.jobs:
            updates = {"attributes.system.duration": self.random.choice((5.0, 50.0))}
            jobid = self.random.choice(self.jobs)
            await self.stage.call(topics.JOB_UPDATE, id=jobid, updates=updates)

    async def reload(self) -> None:
        name = self.random.choice(("sched", "sched", "job-exec", "job-manager"))
        await self.stage.instance.supervisor.remove(name)
        await self.pause()
        await self.stage.instance.supervisor.load(name)

    async def stop_queue(self) -> None:
        await self.stage.call(topics.JOB_QUEUE_START, start=False)
        await self.pause()
        await self.stage.call(topics.JOB_QUEUE_START, start=True)

    async def drain(self) -> None:
        await self.stage.call(topics.RESOURCE_DRAIN, targets="0")
        await self.pause()
        await self.stage.call(topics.RESOURCE_UNDRAIN, targets="0")

    async def fail_node(self) -> None:
        await self.stage.call(topics.RESOURCE_DOWN, targets="1")
        await self.pause()
        await self.stage.call(topics.RESOURCE_UP, targets="1")

    async def pause(self) -> None:
        await trio.sleep(self.random.choice((0.0, 0.01, 1.0)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sched", CONFIGS)
def test_no_clause_is_broken_by_any_use(sched, seed):
    async def play(stage: Stage) -> None:
        await Story(stage, seed).play()

    config = Config(exec=ExecConfig(simulate=True), sched=CONFIGS[sched])
    found = judge(play_on(play, config, seed=seed), ALL_RULES).violations
    assert [f"{v.clause} at {v.record.n}: {v.text}" for v in found] == []
