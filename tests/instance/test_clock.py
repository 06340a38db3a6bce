"""The wall clock is set, or the machine sleeps: dates follow the wall, durations what passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.cli.jobs.job_rows import JobRow
from flux_trio.clock import LOOK_S
from flux_trio.config import Config, ExecConfig, SchedConfig, parse_config
from flux_trio.cores.resource import EVENTLOG_KEY
from flux_trio.formats import Event, Jobspec, parse_eventlog
from flux_trio.messages import Level, topics
from flux_trio.testing.fakes import FakeScheduler
from flux_trio.trace import Kind
from tests.support.failing import HOUR, Scene, scene
from tests.support.kvs_words import lookup_of, value_of
from tests.support.perilog import Acting
from tests.support.setting import SettableClock

STEPS = (HOUR, -HOUR)


@asynccontextmanager
async def clocked(**more: Any) -> AsyncIterator[tuple[Scene, SettableClock]]:
    """An instance whose clock can be set."""
    clock = SettableClock()
    async with scene(clock=clock, **more) as s:
        yield s, clock


async def submit(s: Scene, run_s: float = HOUR, urgency: int = 16, **system: Any) -> int:
    attributes = {"system.exec.test.run_duration": run_s}
    attributes |= {f"system.{key}": value for key, value in system.items()}
    jobspec = Jobspec.from_command(["true"], attributes=attributes).to_json()
    asked = {"jobspec": jobspec, "urgency": urgency}
    return int((await s.call(topics.INGEST_SUBMIT, asked))["id"])


def not_before(moment: float) -> dict[str, Any]:
    return {"dependencies": [{"scheme": "begin-time", "value": str(moment)}]}


async def row(s: Scene, jobid: int, clock: SettableClock) -> JobRow:
    found = await s.call(topics.LIST_ID, {"id": jobid})
    return JobRow(found["job"], clock())


@pytest.mark.parametrize("step", STEPS)
async def test_begin_time_that_is_asked_for_after_a_step_is_as_far_ahead_as_it_says(
    autojump_clock: MockClock, step: float
) -> None:
    async with clocked() as (s, clock):
        clock.step(step)
        began = trio.current_time()
        jobid = await submit(s, **not_before(clock() + 2))
        await s.wait(jobid, "start")
        assert 2 <= trio.current_time() - began <= 2 + LOOK_S


async def test_begin_time_is_a_date_and_follows_the_wall(autojump_clock: MockClock) -> None:
    async with clocked() as (s, clock):
        began = trio.current_time()
        jobid = await submit(s, **not_before(clock() + HOUR / 2))
        await trio.sleep(10)
        clock.step(HOUR)
        await s.wait(jobid, "start")
        assert trio.current_time() - began <= 10 + LOOK_S


@pytest.mark.parametrize("step", STEPS)
async def test_limit_of_a_running_job_is_not_moved(autojump_clock: MockClock, step: float) -> None:
    async with clocked() as (s, clock):
        jobid = await submit(s, duration=60)
        await s.wait(jobid, "start")
        began = trio.current_time()
        await trio.sleep(10)
        clock.step(step)
        await s.wait(jobid)
        assert 59 <= trio.current_time() - began <= 60 + LOOK_S
        (exception,) = [e for e in await s.eventlog(jobid) if e.name == "exception"]
        assert (exception.context or {})["type"] == "timeout"


async def test_sleep_of_the_machine_counts(autojump_clock: MockClock) -> None:
    async with clocked() as (s, clock):
        jobid = await submit(s, duration=60)
        await s.wait(jobid, "start")
        began = trio.current_time()
        clock.sleep(HOUR)
        await s.wait(jobid)
        assert trio.current_time() - began <= 1 + LOOK_S
        assert s.log(Level.WARNING) == [], "the wall clock was not set"


@pytest.mark.parametrize("step", STEPS)
async def test_run_time_and_time_left_are_those_that_passed(
    autojump_clock: MockClock, step: float
) -> None:
    async with clocked() as (s, clock):
        jobid = await submit(s, run_s=50, duration=100)
        await s.wait(jobid, "start")
        await trio.sleep(10)
        clock.step(step)
        await trio.sleep(10)
        running = await row(s, jobid, clock)
        assert running.runtime == pytest.approx(20, abs=1)
        assert running.t_remaining == pytest.approx(80, abs=1)
        await s.wait(jobid)
        await trio.sleep(10)
        ended = await row(s, jobid, clock)
        assert ended.runtime == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    "anew", [(), ("job-manager",), ("job-list", "job-exec"), ("job-manager", "job-list")]
)
async def test_clock_that_is_set_back_stamps_no_event_earlier_than_the_one_before_it(
    autojump_clock: MockClock, anew: tuple[str, ...]
) -> None:
    "Jobs that wait, run and are held, and the drains of a node; services start anew or do not."
    async with clocked() as (s, clock):
        held = await submit(s, run_s=50, urgency=0)
        running = await submit(s, run_s=50, duration=100)
        await s.wait(running, "start")
        await trio.sleep(10)
        await s.call(topics.RESOURCE_DRAIN, {"targets": "1", "reason": "before"})
        clock.step(-HOUR)
        for name in anew:
            await s.supervisor.reload(name)
        await s.call(topics.RESOURCE_UNDRAIN, {"targets": "1"})
        await s.call(topics.JOB_URGENCY, {"id": held, "urgency": 16})
        await s.wait(held, "start")
        await trio.sleep(10)
        young = await row(s, held, clock)
        for jobid in (running, held):
            await s.wait(jobid)
            assert (await row(s, jobid, clock)).runtime >= 0
            assert_in_order(await s.eventlog(jobid))
        drains = await s.call(topics.KVS_LOOKUP, lookup_of(EVENTLOG_KEY))
        assert_in_order(parse_eventlog(value_of(drains)))
        if "job-list" not in anew:
            assert young.runtime == pytest.approx(10, abs=1)
            assert (await row(s, held, clock)).runtime == pytest.approx(50, abs=1)
            assert (await row(s, running, clock)).runtime == pytest.approx(50, abs=1)


def assert_in_order(events: Sequence[Event]) -> None:
    assert len(events) > 1
    stamps = [event.timestamp for event in events]
    assert stamps == sorted(stamps), events


@pytest.mark.parametrize("step", STEPS)
async def test_new_duration_after_a_step_counts_from_the_start(
    autojump_clock: MockClock, step: float
) -> None:
    async with clocked() as (s, clock):
        jobid = await submit(s, duration=60)
        await s.wait(jobid, "start")
        began = trio.current_time()
        await trio.sleep(10)
        clock.step(step)
        await trio.sleep(10)
        update = {"id": jobid, "updates": {"attributes.system.duration": 100}}
        await s.call(topics.JOB_UPDATE, update)
        await s.wait(jobid)
        assert 99 <= trio.current_time() - began <= 101 + LOOK_S


async def test_expiration_stays_as_written_and_decides_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    async with clocked() as (s, clock):
        jobid = await submit(s, duration=60)
        await s.wait(jobid, "start")
        clock.step(-HOUR)
        await trio.sleep(10)
        r = await s.call(topics.INFO_LOOKUP, {"id": jobid, "keys": ["R"], "flags": 0})
        began = trio.current_time()
        await s.supervisor.reload("job-exec")
        await s.wait(jobid)
        assert str(r["R"]).count("expiration") == 1
        assert trio.current_time() - began > HOUR / 2


async def test_end_that_the_scheduler_expects_moves_with_the_clock(
    autojump_clock: MockClock,
) -> None:
    "Else it would wait for a job that seems to be over, or never see an end."
    config = Config(exec=ExecConfig(simulate=True), sched=SchedConfig(policy="easy"))
    async with clocked(config=config) as (s, clock):
        long = await submit(s, run_s=100, duration=100)
        await s.wait(long, "start")
        clock.step(HOUR)
        whole = await submit(s, run_s=1, duration=1, **{"exec.test.x": 1})
        await s.wait(whole)
        found = await row(s, long, clock)
        assert found.t_remaining == pytest.approx(100, abs=5)


@pytest.mark.parametrize("step", STEPS)
async def test_silence_and_idle_time_are_those_that_passed(
    autojump_clock: MockClock, step: float
) -> None:
    async with clocked(without=("sched",)) as (s, clock):
        await s.load("sched", FakeScheduler())
        await submit(s)
        await trio.sleep(10)
        clock.step(step)
        await trio.sleep(10)
        assert (await s.status())["silent"] == ["scheduler has not answered for 20 s"]
        idle = {info.name: info.idle for info in s.supervisor.list()}
        assert idle["sched"] == pytest.approx(20, abs=2)


async def test_step_is_noted_in_the_log_and_the_trace(autojump_clock: MockClock) -> None:
    async with clocked() as (s, clock):
        for step in STEPS:
            clock.step(step)
            await trio.sleep(2 * LOOK_S)
        texts = [line.partition(": ")[2] for line in s.log(Level.WARNING)]
        assert texts == [
            "the wall clock was set forward by 3600.000 s",
            "the wall clock was set back by 3600.000 s",
        ]
        noted = [record.data for record in s.records if record.kind == Kind.CLOCK]
        assert noted == [{"by": HOUR}, {"by": -HOUR}]


async def test_limit_of_processes_is_not_moved(tmp_path: Path) -> None:
    "Real processes and real time: the clock is set by an hour at once, the limit is a second."
    async with clocked(statedir=tmp_path, config=Config()) as (s, clock):
        jobspec = Jobspec.from_command(["sleep", "600"], attributes={"system.duration": 1})
        began = trio.current_time()
        jobid = int((await s.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()}))["id"])
        await s.wait(jobid, "start")
        clock.step(HOUR)
        await s.wait(jobid)
        assert trio.current_time() - began >= 0.99
        (exception,) = [e for e in await s.eventlog(jobid) if e.name == "exception"]
        assert (exception.context or {})["type"] == "timeout"


async def test_prolog_has_no_more_time_because_the_machine_slept(autojump_clock: MockClock) -> None:
    config = parse_config(
        '[exec]\nsimulate = true\n[job-manager.prolog]\ncommand = ["x"]\ntimeout = "10m"\n'
    )
    plugins = [Acting({"seconds": 2 * HOUR})]
    async with clocked(config=config, plugins=plugins) as (s, clock):
        jobid = await submit(s)
        await s.wait(jobid, "prolog-start")
        await trio.sleep(1)  # it runs
        began = trio.current_time()
        clock.sleep(HOUR)
        await s.wait(jobid, "prolog-finish")
        assert trio.current_time() - began <= 2 * LOOK_S
        assert "exception" in await s.events(jobid)
