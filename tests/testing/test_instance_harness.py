"""What the calls of an instance under test do where nothing usual can happen."""

from __future__ import annotations

import sys
import threading

import pytest
import trio

from flux_trio.broker import ModuleCrashed
from flux_trio.testing import InstanceHarness, NothingHappens, PlayedExec, PlayedScheduler


@pytest.mark.parametrize("seed", range(3))
def test_crash_of_the_kvs_is_the_error_of_that_call_and_of_those_after_it(seed: int) -> None:
    with InstanceHarness(seed=seed) as instance:
        for call in (lambda: instance.crash("kvs"), instance.submit):
            with pytest.raises(ModuleCrashed, match="module kvs: ModuleKilled: killed on request"):
                call()


def test_call_after_the_end_of_the_block_is_refused() -> None:
    with InstanceHarness() as instance:
        pass
    with pytest.raises(RuntimeError, match="expected a call before the end of the instance harn"):
        instance.submit()


@pytest.mark.parametrize("end", ["unload", "crash"])
def test_request_that_nobody_answers_at_this_time_is_an_error(end: str) -> None:
    with InstanceHarness() as instance:
        getattr(instance, end)("job-manager")
        with pytest.raises(
            NothingHappens,
            match=r"expected an answer of job-ingest to job-ingest\.submit, but nothing more happ",
        ):
            instance.submit()
        instance.load("job-manager")
        instance.wait(instance.submit())


def test_function_that_waits_for_the_time_is_an_error_that_names_it() -> None:
    async def hour() -> None:
        await trio.sleep(3600)

    with InstanceHarness() as instance:
        with pytest.raises(NothingHappens, match="expected the end of hour, but nothing more"):
            instance.do(hour)
        instance.wait(instance.submit())


def test_function_that_waits_for_a_thread_or_a_process_is_awaited() -> None:
    async def outer_world() -> int:
        await trio.to_thread.run_sync(threading.Event().wait, 0.05)
        return (await trio.run_process([sys.executable, "-c", ""])).returncode

    with InstanceHarness() as instance:
        assert instance.do(outer_world) == 0


@pytest.mark.parametrize("end", ["finish", "fail"])
def test_played_execution_service_releases_all_ranks_of_the_job(end: str) -> None:
    with InstanceHarness() as instance:
        scheduler, execution = PlayedScheduler(instance), PlayedExec(instance)
        jobs = [instance.submit(nnodes=2, ntasks=4), instance.submit()]
        scheduler.grant(jobs[0], {0: 2, 1: 2})
        scheduler.grant(jobs[1], {3: 1})
        for job in jobs:
            if end == "finish":
                execution.start(job)
            getattr(execution, end)(job)
            assert job.state.name == "INACTIVE"
        assert jobs[0].context("release")["ranks"] == "0-1"
