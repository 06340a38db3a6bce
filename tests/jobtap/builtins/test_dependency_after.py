"""dependency-after: the schemes of RFC 26 that wait for another job."""

from __future__ import annotations

import pytest
import trio

from flux_trio import jobtap
from flux_trio.formats import FluidForm, format_fluid, parse_fluid
from flux_trio.messages import FluxError, topics
from flux_trio.testing import EPOCH
from tests.support.playing import Jobs, context, guest_of, names, simulated_jobs, when


async def test_after_is_satisfied_when_the_other_job_starts(autojump_clock):
    """26.schemes.2"""
    async with simulated_jobs() as jobs:
        first = await jobs.submit(nnodes=4, cores_per_task=4, seconds=10)
        second = await jobs.submit(nnodes=4, cores_per_task=4, seconds=10)  # waits for the first
        third = await jobs.submit(f"after:{second}")
        ended, waited = await jobs.events(second), await jobs.events(third)
        assert names(waited)[:4] == ["submit", "dependency-add", "validate", "dependency-remove"]
        assert context(waited, "dependency-add") == {"description": f"after-start={second}"}
        assert when(ended, "start") <= when(waited, "dependency-remove") < when(ended, "finish")
        assert when(await jobs.events(first), "finish") <= when(waited, "depend")


@pytest.mark.parametrize(
    ("scheme", "word", "status", "freed"),
    [
        ("afterany", "finish", 0, True),
        ("afterany", "finish", 256, True),
        ("afterok", "success", 0, True),
        ("afterok", "success", 256, False),
        ("afternotok", "failure", 0, False),
        ("afternotok", "failure", 256, True),
        ("afterexcept", "except", 256, False),
    ],
)
async def test_job_waits_for_the_end_of_another_and_goes_by_it(
    scheme: str, word: str, status: int, freed: bool, autojump_clock
):
    """26.schemes.4, 26.schemes.5, 26.schemes.6: INACTIVE first; else a fatal exception."""
    async with simulated_jobs() as jobs:
        first = format_fluid(await jobs.submit(seconds=10, status=status), "f58")
        second = await jobs.submit(f"{scheme}:{first}")
        ended, waited = await jobs.events(parse_fluid(first)), await jobs.events(second)
        description = f"after-{word}={first}"
        assert context(waited, "dependency-add") == {"description": description}
        if freed:
            assert context(waited, "dependency-remove") == {"description": description}
            assert when(waited, "depend") >= when(ended, "clean")
            assert "finish" in names(waited)
        else:
            assert names(waited)[3:] == ["exception", "clean"]
            assert context(waited, "exception") == {
                "type": "dependency",
                "severity": 0,
                "note": f"dependency {description} can never be satisfied",
                "userid": 1000,
            }


@pytest.mark.parametrize(
    ("scheme", "freed"),
    [("after", False), ("afterany", True), ("afterok", False), ("afternotok", True)],
)
async def test_job_that_is_canceled_before_it_starts_has_ended_too(
    scheme: str, freed: bool, autojump_clock
):
    """26.schemes.3, 26.schemes.4, 26.schemes.5, 26.schemes.6"""
    async with simulated_jobs() as jobs:
        first = await jobs.submit(urgency=0)
        second = await jobs.submit(f"{scheme}:{first}")
        await jobs.cancel(first)
        waited = await jobs.events(second)
        assert ("finish" in names(waited)) is freed
        if not freed:
            assert context(waited, "exception")["note"].endswith("job never started")


async def test_fatal_exception_satisfies_afterexcept(autojump_clock):
    async with simulated_jobs() as jobs:
        first = await jobs.submit(seconds=100)
        second = await jobs.submit(f"afterexcept:{first}")
        await jobs.events(first, "start")
        await jobs.cancel(first)
        assert "finish" in names(await jobs.events(second))


@pytest.mark.parametrize("form", ["dec", "hex", "dothex", "kvs", "f58", "f58plain"])
async def test_job_is_named_in_any_form_of_its_id(form: FluidForm, autojump_clock):
    """26.schemes.1"""
    async with simulated_jobs() as jobs:
        first = format_fluid(await jobs.submit(), form)
        try:
            second = await jobs.submit(f"afterok:{first}")
        except FluxError as error:
            pytest.fail(error.text)
        events = await jobs.events(second)
        assert context(events, "dependency-add") == {"description": f"after-success={first}"}
        assert "finish" in names(events)


async def test_jobs_that_have_ended_are_gone_by_at_once(autojump_clock):
    """26.schemes.5: in the same commit as the submission, so before validate."""
    async with simulated_jobs() as jobs:
        first = await jobs.submit()
        await jobs.events(first)
        second = await jobs.submit(f"afterok:{first}")
        assert names(await jobs.events(second))[:5] == [
            "submit",
            "dependency-add",
            "dependency-remove",
            "validate",
            "depend",
        ]
        for scheme, text in {
            "afternotok": f"dependency: afternotok: job {first} succeeded",
            "afterexcept": f"dependency: afterexcept: job {first}: no exception",
        }.items():
            assert await jobs.refused(f"{scheme}:{first}") == text


async def test_job_that_never_ran_can_be_waited_for_by_few(autojump_clock):
    async with simulated_jobs() as jobs:
        first = await jobs.submit(urgency=0)
        await jobs.cancel(first)
        await jobs.events(first)
        for scheme in ("after", "afterok", "afterexcept"):
            text = await jobs.refused(f"{scheme}:{first}")
            assert text == f"dependency: after: {first} never started"
        failed = await jobs.submit(status=256)
        await jobs.events(failed)
        text = await jobs.refused(f"afterok:{failed}")
        assert text == f"dependency: afterok: job {failed} failed or was canceled"
        await jobs.submit(f"afternotok:{first}")


async def test_what_is_no_job_of_ones_own_is_refused(autojump_clock):
    async with simulated_jobs() as jobs, guest_of(jobs.instance) as guest:
        first = await jobs.submit()
        assert await guest.refused(f"after:{first}") == f"after: Permission denied for job {first}"
        assert await jobs.refused("afterok:x") == ('dependency: afterok: "x" is not a valid jobid')
        assert await jobs.refused("afterany:ƒ22") == "dependency: afterany: id ƒ22: job not found"
        assert await jobs.refused("nosuch:1") == 'dependency scheme "nosuch" not supported'


async def test_canceled_job_is_waited_for_no_more(autojump_clock):
    async with simulated_jobs() as jobs:
        first = await jobs.submit(seconds=10)
        second = await jobs.submit(f"afterany:{first}")
        await jobs.cancel(second)
        assert names(await jobs.events(second))[-2:] == ["exception", "clean"]
        await jobs.events(first)
        assert list(jobs.instance.log) == []  # nothing went wrong


async def test_dependency_that_is_named_twice_counts_once(autojump_clock):
    async with simulated_jobs() as jobs:
        first = await jobs.submit()
        early = await jobs.submit(f"afterok:{first}", f"afterok:{first}")
        await jobs.events(first)
        late = await jobs.submit(f"afterok:{first}", f"afterok:{first}")
        for jobid in (early, late):
            events = await jobs.events(jobid)
            assert names(events).count("dependency-add") == 1
            assert names(events).count("dependency-remove") == 1
            assert "finish" in names(events)
        assert list(jobs.instance.log) == []


async def test_plugin_that_is_loaded_again_takes_up_who_waits(autojump_clock):
    """26.events.4"""
    async with simulated_jobs() as jobs:
        first = await jobs.submit(seconds=100)
        second = await jobs.submit(f"afterok:{first}")
        await jobs.events(second, "validate")
        again = {"remove": ".dependency-after", "load": ".dependency-after"}
        await jobs.call(topics.JOB_JOBTAP, again)
        events = await jobs.events(second)
        assert names(events).count("dependency-add") == 1
        assert "finish" in names(events)
        assert list(jobs.instance.log) == []


class SlowToMeet(jobtap.Plugin):
    """Takes 30 seconds with each new job that waits for another."""

    name = "slow-to-meet"

    @jobtap.on("job.new")
    async def meet(self, job: jobtap.Job) -> None:
        if job.dependencies:
            await trio.sleep(30)


@pytest.mark.parametrize("status", [0, 256])
async def test_job_that_is_new_when_the_other_ends_learns_of_it(status: int, autojump_clock):
    plugins = [SlowToMeet()]
    async with simulated_jobs(plugins=plugins) as jobs:
        first = await jobs.submit(seconds=10, status=status)
        second = await jobs.submit(f"afterok:{first}")
        events = await jobs.events(second)
        assert when(events, "validate") == pytest.approx(EPOCH + 30, abs=0.1)
        assert ("finish" in names(events)) is (status == 0)
        if status:
            assert context(events, "exception")["note"].endswith("can never be satisfied")
        assert list(jobs.instance.log) == []


class RefusesSlowly(jobtap.Plugin):
    """Refuses each job that is named "late", after 30 seconds."""

    name = "refuses-slowly"

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.jobid = 0

    @jobtap.on("job.validate")
    async def validate(self, job: jobtap.Job) -> None:
        if job.jobspec.attribute("system.job.name") == "late":
            self.jobid = job.id
            self.asked.set()
            await trio.sleep(30)
            raise jobtap.Reject("too late")


async def test_job_that_is_refused_after_another_waits_for_it_has_ended(autojump_clock):
    plugin = RefusesSlowly()
    async with (
        simulated_jobs(plugins=[plugin]) as jobs,
        jobs.instance.connect() as another,
        trio.open_nursery() as nursery,
    ):
        late = {"attributes": {"system.job.name": "late"}}
        nursery.start_soon(lambda: Jobs(another).refused(**late))
        await plugin.asked.wait()
        waiting = await jobs.submit(f"afterany:{plugin.jobid}")
        events = await jobs.events(waiting)
        assert when(events, "dependency-remove") == pytest.approx(EPOCH + 30, abs=0.1)
        assert "finish" in names(events)
