"""perilog in a simulated instance: what follows what, under the virtual clock."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.jobtap.builtins.perilog import Perilog
from flux_trio.messages import topics
from flux_trio.testing.fakes import FakeExec
from tests.support.failing import scene
from tests.support.perilog import Acting
from tests.support.playing import OwnJobs, context, names, simulated_jobs, when

BOTH = """
[job-manager.prolog]
command = ["prolog"]
[job-manager.epilog]
command = ["epilog"]
"""
HOUR = 3600.0


def acting(
    plugin: Acting, config: str = BOTH, *others: jobtap.Plugin
) -> AbstractAsyncContextManager[OwnJobs]:
    return simulated_jobs(config=parse_config(config), plugins=[plugin, *others])


async def test_prolog_holds_the_start_and_epilog_the_resources(autojump_clock):
    plugin = Acting({"seconds": 10}, {"seconds": 20})
    async with acting(plugin) as jobs:
        job = await jobs.submit(nnodes=2, seconds=5)
        events = await jobs.events(job)
        assert names(events)[4:] == [
            "alloc",
            "prolog-start",
            "prolog-finish",
            "start",
            "finish",
            "epilog-start",
            "release",
            "epilog-finish",
            "free",
            "clean",
        ]
        for what in ("prolog", "epilog"):
            description = f"job-manager.{what}"
            assert context(events, f"{what}-start") == {"description": description}
            assert context(events, f"{what}-finish") == {"description": description, "status": 0}
        assert when(events, "start") - when(events, "alloc") == pytest.approx(10, abs=0.1)
        assert when(events, "free") - when(events, "finish") == pytest.approx(20, abs=0.1)
        _, _, environment = plugin.played[0]
        assert environment["FLUX_JOB_RANKS"] == "0-1"
        assert environment["FLUX_JOB_USERID"] == "1000"
        assert environment["FLUX_JOB_ID"].startswith("ƒ")


async def test_failing_prolog_ends_the_job_and_the_epilog_follows(autojump_clock):
    async with acting(Acting({"status": 256}, {"seconds": 20})) as jobs:
        events = await jobs.events(await jobs.submit())
        assert names(events)[5:] == [
            "prolog-start",
            "exception",
            "epilog-start",
            "prolog-finish",
            "epilog-finish",
            "free",
            "clean",
        ]
        assert context(events, "exception") == {
            "type": "prolog",
            "severity": 0,
            "note": "prolog exited with code=1 on node0 (rank 0)",
            "userid": 1000,
        }
        assert context(events, "prolog-finish")["status"] == 256
        assert when(events, "free") - when(events, "exception") == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("part", "note"),
    [
        ({"status": 15}, "prolog killed by signal 15 on node0 (rank 0)"),
        ({"status": 137 << 8}, "prolog killed by signal 9 on node0 (rank 0)"),
        ({"error": "not there"}, "prolog exited with code=127 on node0 (rank 0)"),
        ({"seconds": 1801}, "prolog timed out on node0 (rank 0)"),
    ],
)
async def test_exception_says_how_the_prolog_failed(
    part: dict[str, Any], note: str, autojump_clock
):
    async with acting(Acting(part)) as jobs:
        events = await jobs.events(await jobs.submit())
        assert context(events, "exception")["note"] == note


async def test_failing_epilog_is_only_noted(autojump_clock):
    async with acting(Acting(epilog={"status": 256})) as jobs:
        events = await jobs.events(await jobs.submit())
        assert names(events)[-4:] == ["exception", "epilog-finish", "free", "clean"]
        assert context(events, "exception") == {
            "type": "epilog",
            "severity": 2,
            "note": "epilog exited with code=1 on node0 (rank 0)",
            "userid": 1000,
        }


async def test_cancel_ends_the_prolog(autojump_clock):
    async with acting(Acting({"seconds": HOUR})) as jobs:
        job = await jobs.submit()
        await jobs.events(job, "prolog-start")
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert names(events)[5:] == [
            "prolog-start",
            "exception",
            "epilog-start",
            "prolog-finish",
            "epilog-finish",
            "free",
            "clean",
        ]
        assert context(events, "prolog-finish")["status"] == 15
        assert [each.context["type"] for each in events if each.name == "exception"] == ["cancel"]


async def test_prolog_may_be_left_alone_by_a_cancel(autojump_clock):
    config = BOTH.replace('["prolog"]', '["prolog"]\ncancel-on-exception = false')
    async with acting(Acting({"seconds": 100}), config) as jobs:
        job = await jobs.submit()
        begun = await jobs.events(job, "prolog-start")
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert context(events, "prolog-finish")["status"] == 0
        waited = when(events, "prolog-finish") - when(begun, "prolog-start")
        assert waited == pytest.approx(100, abs=0.1)
        assert "start" not in names(events)
        assert names(events)[-4:] == ["prolog-finish", "epilog-finish", "free", "clean"]


async def test_prolog_that_is_deaf_is_killed_and_its_node_drained(autojump_clock):
    config = BOTH.replace('["prolog"]', '["prolog"]\ntimeout = "1m"\nkill-timeout = 5.0')
    async with acting(Acting({"seconds": HOUR, "deaf": True}), config) as jobs:
        job = await jobs.submit()
        events = await jobs.events(job)
        held = when(events, "exception") - when(events, "prolog-start")
        assert held == pytest.approx(65, abs=0.1)
        assert context(events, "prolog-finish")["status"] == 9
        (drained,) = (await jobs.call(topics.RESOURCE_STATUS))["drained"].items()
        assert drained[0] == "0"
        assert drained[1]["reason"].startswith("prolog timed out for job ƒ")


async def test_epilog_waits_for_the_processes_of_a_canceled_job(autojump_clock):
    plugin = Acting(epilog={"seconds": 20})
    async with acting(plugin, "[job-manager.epilog]\ncommand = ['epilog']") as jobs:
        job = await jobs.submit(seconds=HOUR)
        await jobs.events(job, "start")
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert plugin.played
        assert names(events)[-4:] == ["release", "epilog-finish", "free", "clean"]
        assert when(events, "free") - when(events, "finish") == pytest.approx(20, abs=0.1)


async def test_job_that_never_ran_has_neither(autojump_clock):
    plugin = Acting()
    async with acting(plugin) as jobs:
        job = await jobs.submit(urgency=0)
        await jobs.cancel(job)
        await jobs.events(job)
        assert plugin.played == []


async def test_per_rank_runs_once_on_each_and_drains_those_that_fail(autojump_clock):
    config = BOTH.replace('["prolog"]', '["prolog"]\nper-rank = true')
    plugin = Acting({"status": 256})
    async with acting(plugin, config) as jobs:
        events = await jobs.events(await jobs.submit(nnodes=2))
        assert sorted(rank for what, rank, _ in plugin.played if what == "prolog") == [0, 1]
        note = context(events, "exception")["note"]
        assert note == "prolog exited with code=1 on node[0-1] (rank 0-1)"
        drained = (await jobs.call(topics.RESOURCE_STATUS))["drained"]
        assert list(drained) == ["0-1"]


@pytest.mark.parametrize("reason", [None, "the admin's"])
async def test_node_that_the_admin_has_drained_keeps_its_reason_and_the_others_are_drained(
    reason: str | None, autojump_clock
):
    """flux-resource(1): as with drain --update."""
    config = BOTH.replace('["epilog"]', '["epilog"]\nper-rank = true')
    async with acting(Acting(epilog={"status": 256}), config) as jobs:
        job = await jobs.submit(nnodes=2, seconds=10)
        await jobs.events(job, "start")
        await jobs.call(topics.RESOURCE_DRAIN, {"targets": "0", "reason": reason})
        await jobs.events(job)
        drained = (await jobs.call(topics.RESOURCE_STATUS))["drained"]
        reasons = {targets: each["reason"] for targets, each in drained.items()}
        assert reasons["0"].startswith(reason or "epilog failed for job ƒ")
        assert reasons["1"].startswith("epilog failed for job ƒ")


async def test_excluded_node_is_not_drained_and_the_others_are(autojump_clock):
    config = BOTH.replace('["epilog"]', '["epilog"]\nper-rank = true')
    async with acting(Acting(epilog={"status": 256, "seconds": 10}), config) as jobs:
        job = await jobs.submit(nnodes=2)
        await jobs.events(job, "release")
        await jobs.call(topics.RESOURCE_EXCLUDE, {"targets": "0"})
        await jobs.events(job)
        assert list((await jobs.call(topics.RESOURCE_STATUS))["drained"]) == ["1"]


async def test_node_is_drained_when_the_resource_service_is_back_and_held_until_then(
    autojump_clock,
):
    config = parse_config(BOTH.replace('["epilog"]', '["epilog"]\nper-rank = true'))
    plugin = Acting(epilog={"status": 256, "seconds": 10})
    async with simulated_jobs(config=config, plugins=[plugin]) as jobs:
        job = await jobs.submit()
        await jobs.events(job, "release")
        await jobs.instance.supervisor.remove("resource")
        await trio.sleep(30)
        assert "epilog-finish" not in names(await jobs.so_far(job))
        await jobs.instance.supervisor.load("resource")
        assert "free" not in names(await jobs.so_far(job))
        await jobs.events(job, "epilog-finish")
        assert list((await jobs.call(topics.RESOURCE_STATUS))["drained"]) == ["0"]


@pytest.mark.parametrize("per_rank", ["true", "false"])
@pytest.mark.parametrize("deaf", [False, True])
async def test_cancel_during_a_prolog_drains_nothing(per_rank: str, deaf: bool, autojump_clock):
    config = BOTH.replace('["prolog"]', f'["prolog"]\nper-rank = {per_rank}')
    async with acting(Acting({"seconds": HOUR, "deaf": deaf}), config) as jobs:
        job = await jobs.submit(nnodes=2)
        await jobs.events(job, "prolog-start")
        await jobs.cancel(job)
        await jobs.events(job)
        assert (await jobs.call(topics.RESOURCE_STATUS))["drained"] == {}


async def test_cancel_drains_only_the_node_where_the_prolog_had_failed_before(autojump_clock):
    config = BOTH.replace('["prolog"]', '["prolog"]\nper-rank = true')
    plugin = Acting({"seconds": HOUR})
    plugin.parts_by_rank[1] = {"seconds": 1, "status": 256}
    async with acting(plugin, config) as jobs:
        job = await jobs.submit(nnodes=2)
        await jobs.events(job, "prolog-start")
        await trio.sleep(10)
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert context(events, "prolog-finish")["status"] == 256
        ((targets, drain),) = (await jobs.call(topics.RESOURCE_STATUS))["drained"].items()
        assert (targets, drain["reason"][:18]) == ("1", "prolog failed for ")


@pytest.mark.parametrize("cancel_on_exception", ["true", "false"])
async def test_second_exception_ends_no_epilog(cancel_on_exception: str, autojump_clock):
    """readings: Severity 0 exceptions after the first. They change nothing."""
    more = f'["epilog"]\ncancel-on-exception = {cancel_on_exception}'
    config = BOTH.replace('["epilog"]', more)
    async with acting(Acting(epilog={"seconds": 100}), config) as jobs:
        job = await jobs.submit(seconds=HOUR)
        await jobs.events(job, "start")
        await jobs.cancel(job)
        begun = await jobs.events(job, "release")
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert context(events, "epilog-finish")["status"] == 0
        waited = when(events, "epilog-finish") - when(begun, "release")
        assert waited == pytest.approx(100, abs=0.1)
        assert (await jobs.call(topics.RESOURCE_STATUS))["drained"] == {}


@pytest.mark.parametrize(("cancel_on_exception", "status"), [("true", 15), ("false", 0)])
async def test_first_exception_ends_an_epilog_only_if_that_is_asked_for(
    cancel_on_exception: str, status: int, autojump_clock
):
    more = f'["epilog"]\ncancel-on-exception = {cancel_on_exception}'
    async with acting(Acting(epilog={"seconds": 100}), BOTH.replace('["epilog"]', more)) as jobs:
        job = await jobs.submit()
        await jobs.events(job, "release")
        await jobs.cancel(job)
        events = await jobs.events(job)
        assert context(events, "epilog-finish")["status"] == status
        assert (await jobs.call(topics.RESOURCE_STATUS))["drained"] == {}


WITHOUT_EPILOG = parse_config(BOTH.partition("[job-manager.epilog]")[0]).to_json()


async def test_job_waits_no_longer_for_an_epilog_that_is_taken_out_of_the_configuration(
    autojump_clock,
):
    plugin = Acting(epilog={"seconds": HOUR})
    async with acting(plugin) as jobs:
        job = await jobs.submit(seconds=60)
        await jobs.events(job, "release")
        await trio.testing.wait_all_tasks_blocked()  # its start is logged, and told to the plugin
        assert [what for what, _, _ in plugin.played] == ["prolog", "epilog"]
        await jobs.call(topics.CONFIG_LOAD, {"config": WITHOUT_EPILOG})
        removed = trio.current_time()
        events = await jobs.events(job)
        assert trio.current_time() - removed < 1
        assert (await jobs.call(topics.RESOURCE_STATUS))["drained"] == {}
        assert "exception" not in names(events)


async def test_epilog_that_waits_for_processes_and_is_taken_out_of_the_configuration_never_runs(
    autojump_clock,
):
    """The processes outlive the cancel: a simulated job would be over at once."""
    plugin, execution = Acting(epilog={"seconds": HOUR}), FakeExec()
    async with scene(("job-exec",), parse_config(BOTH), plugins=[plugin]) as s:
        await s.load("job-exec", execution)
        job = await s.submit()
        await s.wait(job, "prolog-finish")
        await trio.testing.wait_all_tasks_blocked()  # the start request has come
        execution.tell(job, "start")
        await s.cancel(job)
        assert (await s.events(job))[-3:] == ["start", "exception", "epilog-start"]
        await s.call(topics.CONFIG_LOAD, {"config": WITHOUT_EPILOG})
        await trio.sleep(HOUR)
        assert (await s.events(job))[-1] == "epilog-start"
        execution.tell(job, "finish", "release")
        removed = trio.current_time()
        await s.wait(job)
        assert trio.current_time() - removed < 1
        assert [what for what, _, _ in plugin.played] == ["prolog"]
        assert context(await s.eventlog(job), "epilog-finish")["status"] == 0


async def test_without_processes_of_its_own_an_instance_pretends(autojump_clock):
    async with simulated_jobs(config=parse_config(BOTH), plugins=[Perilog()]) as jobs:
        events = await jobs.events(await jobs.submit())
        assert context(events, "prolog-finish")["status"] == 0
        assert context(events, "epilog-finish")["status"] == 0


async def test_without_commands_it_does_nothing(autojump_clock):
    async with acting(Acting(), "") as jobs:
        assert "prolog-start" not in names(await jobs.events(await jobs.submit()))


async def test_prolog_of_a_plugin_that_was_removed_is_run_again_once_it_is_back(autojump_clock):
    plugin = Acting({"seconds": 100})
    async with acting(plugin) as jobs:
        job = await jobs.submit()
        begun = await jobs.events(job, "prolog-start")
        await jobs.call(topics.JOB_JOBTAP, {"remove": "perilog"})
        await trio.sleep(1000)
        assert names(await jobs.so_far(job))[-1] == "prolog-start"
        await jobs.call(topics.JOB_JOBTAP, {"load": "perilog"})
        events = await jobs.events(job)
        assert names(events).count("prolog-start") == 1
        waited = when(events, "prolog-finish") - when(begun, "prolog-start")
        assert waited == pytest.approx(1100, abs=0.1)
        assert "finish" in names(events)


class Slow(jobtap.Plugin):
    """A plugin that answers about a job that starts, or ends, a little later."""

    name = "slow"

    @jobtap.on("job.state.run", "job.state.cleanup")
    async def later(self, _job: jobtap.Job) -> None:
        await trio.sleep(5)


async def test_prolog_and_epilog_begin_when_their_start_is_logged(autojump_clock):
    """That is when all plugins have answered; before, no epilog could be finished."""
    plugin = Acting({"seconds": 10}, {"seconds": 20})
    async with acting(plugin, BOTH, Slow()) as jobs:
        events = await jobs.events(await jobs.submit(seconds=5))
        for what, seconds in (("prolog", 10), ("epilog", 20)):
            start, finish = when(events, f"{what}-start"), when(events, f"{what}-finish")
            assert finish - start == pytest.approx(seconds, abs=0.1)
