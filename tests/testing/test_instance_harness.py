"""What the calls of an instance under test do where nothing usual can happen."""

from __future__ import annotations

import inspect
import math
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio import jobtap
from flux_trio.broker import ModuleCrashed
from flux_trio.formats import Jobspec
from flux_trio.messages import FluxError
from flux_trio.sim import make_machine
from flux_trio.testing import (
    InstanceHarness,
    NothingHappens,
    PlayedExec,
    PlayedScheduler,
    PluginHarness,
    WorldHarness,
)

JOBSPEC = Jobspec.from_command(["true"])


@pytest.mark.parametrize("seed", range(3))
def test_crash_of_the_kvs_is_the_error_of_that_call_and_of_those_after_it(seed: int) -> None:
    with InstanceHarness(seed=seed) as instance:
        for call in (lambda: instance.crash("kvs"), instance.submit):
            with pytest.raises(ModuleCrashed, match="module kvs: ModuleKilled: killed on request"):
                call()


@pytest.mark.parametrize("harness", [InstanceHarness, PluginHarness])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"jobspec": ["true"]}, "expected a Jobspec or an RFC 14 object, got ['true']; Jobspec.fr"),
        (
            {"jobspec": JOBSPEC, "ntasks": 2},
            "expected a jobspec, or ntasks for the default one, go",
        ),
        ({"jobspec": JOBSPEC, "attributes": {"system.bank": "a"}}, "or attributes for the default"),
    ],
)
def test_submit_refuses_what_it_would_not_use(
    harness: type[InstanceHarness] | type[PluginHarness], asked: dict[str, Any], said: str
) -> None:
    with harness() as h, pytest.raises(TypeError, match=re.escape(said)):
        h.submit(**asked)


def test_call_after_the_end_of_the_block_is_refused() -> None:
    with InstanceHarness() as instance:
        pass
    with pytest.raises(RuntimeError, match="expected a call before the end of the instance harn"):
        instance.submit()


@pytest.mark.parametrize("harness", [InstanceHarness, PluginHarness])
def test_call_before_the_block_is_refused(
    harness: type[InstanceHarness] | type[PluginHarness],
) -> None:
    made = harness()
    for call in (made.submit, lambda: made.log, lambda: made.advance(1.0)):
        with pytest.raises(
            RuntimeError, match=r"call in the `with` block of the .* harness, got o"
        ):
            call()
    with made:
        made.submit()


def test_module_of_an_instance_before_the_block_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected a call in the `with` block of the instance h"):
        InstanceHarness().crash("sched")


def test_module_that_does_not_exist_is_refused_with_those_there_are() -> None:
    with (
        InstanceHarness() as instance,
        pytest.raises(FluxError, match=r"no module nope; there are .*job-manager, .*sched"),
    ):
        instance.crash("nope")


def test_kvs_is_not_unloaded_as_the_instance_always_needs_it() -> None:
    with InstanceHarness() as instance:
        with pytest.raises(FluxError, match="module kvs is needed as long as the instance runs"):
            instance.unload("kvs")
        instance.wait(instance.submit())


@pytest.mark.parametrize("call", ["grant", "deny", "cancel", "start", "finish", "fail", "wait"])
def test_id_in_place_of_a_job_is_refused(call: str) -> None:
    with InstanceHarness() as instance:
        parts = (PlayedScheduler(instance), PlayedExec(instance), instance)
        part = next(each for each in parts if hasattr(each, call))
        with pytest.raises(TypeError, match=r"expected an InstanceJob, as `submit` .*, got 7"):
            getattr(part, call)(7)


def test_job_of_another_instance_is_not_granted() -> None:
    with InstanceHarness() as one, InstanceHarness() as other:
        scheduler = PlayedScheduler(one)
        with pytest.raises(ValueError, match="expected a job of this instance, got <InstanceJob "):
            scheduler.grant(other.submit())


def test_module_that_is_no_fake_is_refused() -> None:
    with (
        InstanceHarness() as instance,
        pytest.raises(TypeError, match=r"expected a FakeScheduler, .* got <object object at"),
    ):
        instance.play("nobody", object())  # type: ignore[arg-type]


def test_job_of_another_instance_is_not_waited_for() -> None:
    with InstanceHarness() as one, InstanceHarness() as other:
        job = other.submit()
        with pytest.raises(ValueError, match="expected a job of this instance, got <InstanceJob "):
            one.wait(job)
        other.wait(job)


@pytest.mark.parametrize("harness", [InstanceHarness, PluginHarness])
def test_second_block_of_a_harness_is_refused(
    harness: type[InstanceHarness] | type[PluginHarness],
) -> None:
    with harness() as made:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"one `with` block of the .*: make a new one"):
                made.__enter__()
        made.submit()
    with pytest.raises(RuntimeError, match=r"one `with` block of the .*: make a new one"), made:
        pass


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


class Count(jobtap.Plugin):
    """Counts jobs in its memory."""

    def __init__(self) -> None:
        self.njobs = 0

    @jobtap.on("job.new")
    def new(self, _job: jobtap.Job) -> None:
        self.njobs += 1


@pytest.mark.parametrize("end", ["crash", "unload"])
@pytest.mark.parametrize("source", [Count, lambda: Count(), "file"], ids=["class", "def", "file"])
def test_next_job_manager_has_new_plugins(source: Any, end: str, tmp_path: Path) -> None:
    if source == "file":
        source = tmp_path / "count.py"
        imports = "from __future__ import annotations\nfrom flux_trio import jobtap\n"
        source.write_text(imports + inspect.getsource(Count))
    with InstanceHarness(plugins=[source]) as instance:
        first: Any = instance.plugins[0]
        instance.wait(instance.submit())
        getattr(instance, end)("job-manager")
        instance.load("job-manager")
        second: Any = instance.plugins[0]
        assert second is not first
        assert (first.njobs, second.njobs) == (1, 0)
        instance.wait(instance.submit())
        assert (first.njobs, second.njobs) == (1, 1)


def test_plugin_that_a_test_has_made_itself_is_in_every_job_manager() -> None:
    with InstanceHarness(plugins=[mine := Count(), jobtap.Plugin]) as instance:
        instance.wait(instance.submit())
        instance.crash("job-manager")
        instance.load("job-manager")
        instance.wait(instance.submit())
        assert instance.plugins[0] is mine
        assert mine.njobs == 2


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


def test_no_free_core_and_no_free_nodes_are_said() -> None:
    with InstanceHarness(inventory=make_machine(2, 3)) as instance:
        scheduler = PlayedScheduler(instance)
        jobs = [instance.submit(run_s=1000.0) for _ in range(7)]
        for job in jobs[:6]:
            scheduler.grant(job)
        with pytest.raises(AssertionError, match="a free core: all 6 of the ranks 0-1 are alloc"):
            scheduler.grant(jobs[6])
        instance.advance(1000.0)
        scheduler.grant(jobs[6])
        instance.wait(jobs[6])
    with PluginHarness() as harness:
        harness.submit().grant()
        with pytest.raises(AssertionError, match="it needs 256 nodes, and 255 of the 256 nodes of"):
            harness.submit(nnodes=256).grant()
        harness.submit(nnodes=255).run()


@pytest.mark.parametrize("run_s", [-1.0, math.nan, None])
def test_run_time_that_is_no_time_is_refused(run_s: float) -> None:
    with (
        InstanceHarness() as instance,
        pytest.raises(ValueError, match=f"run_s: expected a duration .*, got {run_s}"),
    ):
        instance.submit(run_s=run_s)


def test_job_that_runs_for_ever_ends_when_it_is_cancelled() -> None:
    with InstanceHarness() as instance:
        job = instance.submit(run_s=math.inf)
        instance.advance(1e6)
        assert job.state.name == "RUN"
        job.cancel()
        instance.wait(job)


@pytest.mark.parametrize("seconds", [-5.0, math.nan, math.inf, 1e18, None])
def test_time_that_cannot_pass_is_refused(seconds: float) -> None:
    for harness in (InstanceHarness(), PluginHarness()):
        with harness:
            harness.advance(9e8)
            with pytest.raises(ValueError, match="advance: expected seconds from 0 to 100000000, "):
                harness.advance(seconds)


@pytest.mark.parametrize("count", [-3, 1.5])
def test_number_of_jobs_of_a_world_is_checked(count: int) -> None:
    world = WorldHarness()
    with pytest.raises(ValueError, match=f"count: expected a number of jobs, got {count}"):
        world.submit(count)
    assert world.submit(0) == 0
