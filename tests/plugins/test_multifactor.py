"""The plugin multifactor: priorities, limits, and the words of its rejections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accounts
import multifactor
import pytest
from multifactor import Multifactor

from flux_trio.jobtap import FluxError
from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness, Rejected
from flux_trio.testing.pytest_plugin import StartHarness

ANN, BOB, NOBODY = 1001, 1002, 1999
Edit = Callable[..., None]
Start = Callable[..., PluginHarness]


def submit(harness: PluginHarness, userid: int = ANN, **more: Any) -> HarnessJob:
    return harness.submit(userid=userid, **more)


class TestPriority:
    def test_is_the_sum_of_the_factors(self, start: Start) -> None:
        harness = start()
        assert submit(harness).priority == 100_000
        assert submit(harness, urgency=10).priority == 100_000 - 6 * 1_000

    def test_urgency_can_take_it_no_lower_than_zero(self, start: Start) -> None:
        harness = start(weights={"fairshare": 0})
        assert submit(harness, urgency=1).priority == 0

    def test_who_used_the_machine_ranks_behind_who_did_not(self, start: Start) -> None:
        harness = start()
        job = submit(harness)
        job.grant()
        job.start()
        harness.advance(3600)
        job.finish()
        harness.advance(60)
        assert submit(harness, BOB).priority == 100_000
        assert submit(harness, ANN).priority == 50_000

    def test_pending_jobs_are_asked_about_again(self, start: Start) -> None:
        harness = start()
        running, waiting = submit(harness), submit(harness)
        running.grant()
        running.start()
        harness.advance(3600)
        running.finish()
        assert waiting.priority == 100_000
        harness.advance(60)
        assert waiting.priority == 50_000

    def test_without_data_jobs_wait_until_there_is_some(
        self, tmp_path: Path, plugin_harness: StartHarness, edit: Edit
    ) -> None:
        plugin = Multifactor()
        plugin.conf = {"database": str(tmp_path / "site.db"), "record-usage": False}
        harness = plugin_harness(plugin)
        known, unknown = submit(harness), submit(harness, NOBODY)
        assert [known.state, unknown.state] == [JobState.PRIORITY] * 2
        edit("bank", "physics")
        edit("user", "ann", "bank=physics", f"userid={ANN}")
        harness.request("job-manager.multifactor.reload")
        assert known.state == JobState.SCHED
        text = f"cannot find user/bank or user/default bank entry for uid: {NOBODY}"
        assert unknown.context("exception")["note"] == text


class TestRejections:
    def rejection(self, harness: PluginHarness, userid: int = ANN, **more: Any) -> str:
        with pytest.raises(Rejected) as rejected:
            submit(harness, userid, **more)
        return str(rejected.value)

    def test_who_has_no_account(self, start: Start) -> None:
        text = f"cannot find user/bank or user/default bank entry for uid: {NOBODY}"
        assert self.rejection(start(), NOBODY) == text

    def test_whose_account_is_disabled(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "active=0")
        text = "user/bank entry has been disabled from flux-accounting DB"
        assert self.rejection(start()) == text

    def test_projects_that_are_not_the_users(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "projects=iron,gold")
        text = 'project "lead" not valid for user; valid projects for user: iron,gold'
        assert self.rejection(start(), attributes={"system.project": "lead"}) == text

    def test_more_active_jobs_than_allowed(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_active_jobs=1")
        harness = start()
        first = submit(harness)
        assert self.rejection(harness) == "user has max active jobs"
        first.cancel()
        submit(harness)

    def test_a_job_larger_than_it_could_ever_be(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_nodes=2")
        assert self.rejection(start(), nnodes=3, ntasks=3) == (
            "job size (3 node(s), 3 core(s)) is greater than max resources limits configured for "
            "association (2 node(s), unlimited core(s))"
        )

    def test_a_database_that_is_none(self, tmp_path: Path, plugin_harness: StartHarness) -> None:
        path = tmp_path / "site.db"
        path.write_text("not a database, and long enough to be looked at as one")
        plugin = Multifactor()
        plugin.conf = {"database": str(path)}
        with pytest.raises(Exception, match=r"multifactor: .*site\.db: file is not a database"):
            plugin_harness(plugin)


class TestSoftLimits:
    def test_jobs_beyond_the_limit_wait_for_room(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        first, second, third = (submit(harness) for _ in range(3))
        other = submit(harness, BOB)
        assert [job.state for job in (first, other)] == [JobState.SCHED] * 2
        assert second.dependencies == third.dependencies == {"max-running-jobs-user-limit"}
        first.run()
        assert [second.state, third.state] == [JobState.SCHED, JobState.DEPEND]

    def test_each_limit_has_its_dependency(self, start: Start, edit: Edit) -> None:
        limits = ("max_running_jobs=1", "max_nodes=2")
        edit("user", "ann", *limits)
        harness = start()
        submit(harness, nnodes=1, ntasks=1)
        held = submit(harness, nnodes=2, ntasks=2)
        assert held.dependencies == {"max-running-jobs-user-limit", "max-resources-user-limit"}

    def test_a_limit_that_is_raised_lets_jobs_go_on(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        _, waiting = submit(harness), submit(harness)
        edit("user", "ann", "max_running_jobs=2")
        harness.request("job-manager.multifactor.reload")
        assert waiting.state == JobState.SCHED

    def test_a_job_that_is_canceled_while_it_waits_is_forgotten(
        self, start: Start, edit: Edit
    ) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        first, second, third = (submit(harness) for _ in range(3))
        second.cancel()
        first.run()
        assert third.state == JobState.SCHED
        (user, *_) = harness.query("multifactor")["users"]
        assert (user["active_jobs"], user["held_jobs"]) == (1, [])


QUEUED = """
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug]
[queues.unlisted]
[queues.closed]
"""


@pytest.fixture
def queued(tmp_path: Path, edit: Edit, plugin_harness: StartHarness) -> PluginHarness:
    """Four queues, of which the database lists three; ann may use two of these."""
    edit("bank", "physics")
    edit("user", "ann", "bank=physics", f"userid={ANN}", "queues=batch,debug")
    edit("queue", "batch", "priority=1", "max_nodes=3")
    edit("queue", "debug", "priority=5", "max_running_jobs=1")
    edit("queue", "closed")
    plugin = Multifactor()
    path = str(tmp_path / "site.db")
    plugin.conf = {"database": path, "record-usage": False, "interval": 60.0}
    return plugin_harness(plugin, config=QUEUED)


def in_queue(harness: PluginHarness, queue: str, **more: Any) -> HarnessJob:
    return submit(harness, attributes={"system.queue": queue}, **more)


class TestQueues:
    def test_each_has_its_factor_and_one_that_is_not_listed_has_none(
        self, queued: PluginHarness
    ) -> None:
        queues = ("batch", "debug", "unlisted")
        assert [in_queue(queued, name).priority for name in queues] == [110_000, 150_000, 100_000]

    def test_each_has_its_limits_and_one_that_is_not_listed_has_none(
        self, queued: PluginHarness
    ) -> None:
        jobs = [in_queue(queued, "debug") for _ in range(2)]
        assert [job.dependencies for job in jobs] == [set(), {"max-run-jobs-queue"}]
        jobs = [in_queue(queued, "batch", nnodes=2, ntasks=2) for _ in range(2)]
        assert [job.dependencies for job in jobs] == [set(), {"max-resources-queue"}]
        jobs = [in_queue(queued, "unlisted", nnodes=9, ntasks=9) for _ in range(2)]
        assert [job.state for job in jobs] == [JobState.SCHED] * 2

    def test_refusal_says_that_the_queue_is_for_members_only(self, queued: PluginHarness) -> None:
        """Ann is a member of two queues; the database gets a third one that she is not in."""
        with pytest.raises(Rejected) as rejected:
            in_queue(queued, "closed")
        assert str(rejected.value).endswith(
            'queue "closed" not valid for user; valid queues for user: batch,debug '
            "(the accounts have this queue, so it is for members only)"
        )

    def test_job_of_a_full_queue_goes_on_in_another(self, queued: PluginHarness) -> None:
        _, held = (in_queue(queued, "debug") for _ in range(2))
        held.update({"attributes.system.queue": "batch"})
        assert held.state == JobState.SCHED

    def test_job_that_could_run_is_refused_to_move_to_a_full_queue(
        self, queued: PluginHarness
    ) -> None:
        in_queue(queued, "debug")
        free = in_queue(queued, "batch")
        text = "updating to queue debug while it is already at max-run-jobs limit is not allowed"
        with pytest.raises(FluxError, match=text):
            free.update({"attributes.system.queue": "debug"})
        assert queued.query("multifactor")["counters"]["queue_jobs"] == {
            str((ANN, "physics", "debug")): 1,
            str((ANN, "physics", "batch")): 1,
        }


class TestSeveralLimits:
    def test_job_waits_until_none_of_its_limits_holds_it(self, start: Start, edit: Edit) -> None:
        """The nodes are free first, when the number of jobs has come to its limit meanwhile."""
        edit("user", "ann", "max_running_jobs=2", "max_nodes=3")
        harness = start()
        big = submit(harness, nnodes=2, ntasks=2)
        held = submit(harness, nnodes=2, ntasks=2)
        small = submit(harness)
        assert held.dependencies == {"max-resources-user-limit"}
        edit("user", "ann", "max_running_jobs=1")
        harness.request("job-manager.multifactor.reload")
        big.run()
        assert held.dependencies == {"max-resources-user-limit", "max-running-jobs-user-limit"}
        small.run()
        assert held.state == JobState.SCHED

    @pytest.mark.parametrize("limit", ["max_nodes=2", "max_cores=2"])
    def test_resources_of_jobs_that_could_run_are_added_up(
        self, start: Start, edit: Edit, limit: str
    ) -> None:
        edit("user", "ann", limit)
        harness = start()
        first, second, third = (submit(harness, nnodes=1, ntasks=1) for _ in range(3))
        assert third.dependencies == {"max-resources-user-limit"}
        second.cancel()
        assert third.state == JobState.SCHED
        first.run()
        third.run()
        users = {each["userid"]: each for each in harness.query("multifactor")["users"]}
        assert users[ANN]["active_jobs"] == 0

    def test_jobs_of_one_request_are_counted_one_by_one(self, start: Start, edit: Edit) -> None:
        """Also before the first of them has left NEW."""
        edit("user", "ann", "max_active_jobs=2", "max_running_jobs=1")
        harness = start()
        jobs = [submit(harness) for _ in range(2)]
        with pytest.raises(Rejected, match="user has max active jobs"):
            submit(harness)
        assert [job.state for job in jobs] == [JobState.SCHED, JobState.DEPEND]


def test_bank_and_project_are_written_down(start: Start, edit: Edit) -> None:
    edit("user", "ann", "projects=iron", "default_project=iron")
    job = submit(start())
    assert job.context("jobspec-update") == {
        "attributes.system.bank": "physics",
        "attributes.system.project": "iron",
    }


def test_what_is_owed_is_told(start: Start, edit: Edit) -> None:
    edit("user", "bob", "shares=3")
    assert start().query("multifactor")["shares"] == {str(ANN): 0.25, str(BOB): 0.75}


def explained(harness: PluginHarness, job: HarnessJob) -> str:
    answer = harness.request("job-manager.explain", {"id": job.id})
    text: str = answer["said"][-1]["text"]
    return text


class TestExplain:
    def test_names_the_factors(self, start: Start) -> None:
        harness = start()
        assert explained(harness, submit(harness)) == "fair share 1 x 100000, bank physics"
        text = explained(harness, submit(harness, urgency=10))
        assert text == "fair share 1 x 100000 + urgency - 16 -6 x 1000, bank physics"

    def test_names_the_limit_that_holds_the_job(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        submit(harness)
        job = submit(harness, urgency=16)
        assert job.dependencies == {"max-running-jobs-user-limit"}
        assert explained(harness, job).endswith(
            "; the user has 1 of 1 jobs that may run, on 1 of any number of nodes"
        )

    def test_names_the_limit_of_cores(self, start: Start, edit: Edit) -> None:
        edit("user", "ann", "max_cores=3")
        harness = start()
        _, job = (submit(harness, ntasks=2) for _ in range(2))
        assert job.dependencies == {"max-resources-user-limit"}
        assert explained(harness, job).endswith(
            "; the user has 1 of any number of jobs that may run, "
            "on 1 of any number of nodes and 2 of 3 cores"
        )

    def test_names_the_limit_of_the_queue_that_holds_the_job(self, queued: PluginHarness) -> None:
        """The limits of the user, which do not hold it, are left out."""
        running, held = (in_queue(queued, "debug") for _ in range(2))
        assert explained(queued, running).endswith(", bank physics")
        assert explained(queued, held).endswith(
            ", bank physics; in queue debug the user has 1 of 1 jobs that may run, "
            "on 1 of any number of nodes"
        )
        _, held = (in_queue(queued, "batch", nnodes=2, ntasks=2) for _ in range(2))
        assert explained(queued, held).endswith(
            ", bank physics; in queue batch the user has 1 of any number of jobs that may run, "
            "on 2 of 3 nodes"
        )

    def test_says_that_there_is_no_data(self, plugin_harness: StartHarness, tmp_path: Path) -> None:
        accounts.main([str(tmp_path / "empty.db"), "show"], standalone_mode=False)
        plugin = Multifactor()
        plugin.conf = {"database": str(tmp_path / "empty.db")}
        harness = plugin_harness(plugin)
        assert explained(harness, submit(harness)) == "there is no data about users yet"


def test_job_that_is_explained_before_its_turn_counts_when_its_turn_comes(
    tmp_path: Path, plugin_harness: StartHarness, edit: Edit
) -> None:
    plugin = Multifactor()
    plugin.conf = {"database": str(tmp_path / "site.db"), "record-usage": False}
    harness = plugin_harness(plugin)
    begin = {"scheme": "begin-time", "value": str(harness.now + 60)}
    job = submit(harness, attributes={"system.dependencies": [begin]})
    edit("bank", "physics")
    edit("user", "ann", "bank=physics", f"userid={ANN}")
    harness.request("job-manager.multifactor.reload")
    assert job.state == JobState.DEPEND
    explained(harness, job)
    harness.advance(60)
    assert job.state == JobState.SCHED
    assert plugin.admitted_jobs[ANN, "physics"] == 1


def test_plugin_that_takes_the_place_of_another_reads_the_usage_that_it_has_written(
    start: Start, tmp_path: Path
) -> None:
    harness = start(**{"record-usage": True, "interval": 1e6})
    job = submit(harness)
    job.grant()
    job.start()
    harness.advance(3600)
    job.finish()
    conf = {"database": str(tmp_path / "site.db"), "interval": 1e6}
    payload = {"remove": "multifactor", "load": multifactor.__file__, "conf": conf}
    harness.request("job-manager.jobtap", payload)
    (ann, _) = harness.query("multifactor")["users"]
    assert ann["usage"] > 0
