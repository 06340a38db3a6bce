"""The plugin multifactor: priorities, limits, and the words of its rejections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accounts
import click.testing
import multifactor
import pytest
import trio
from multifactor import Multifactor

from flux_trio import jobtap
from flux_trio.jobtap import FluxError, PluginError
from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness, Rejected
from flux_trio.testing.pytest_plugin import StartHarness

ANN, BOB, NOBODY = 1001, 1002, 1999
Edit = Callable[..., None]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Edits the database, as the command does."""

    def set_row(*args: str) -> None:
        arguments = [str(tmp_path / "site.db"), "set", *args]
        result = click.testing.CliRunner().invoke(accounts.main, arguments)
        assert result.exit_code == 0, result.output

    return set_row


@pytest.fixture
def start(tmp_path: Path, edit: Edit, plugin_harness: StartHarness) -> Callable[..., PluginHarness]:
    """A harness with a bank of two users; `conf` goes to the plugin."""
    edit("bank", "physics")
    edit("user", "ann", "bank=physics", f"userid={ANN}")
    edit("user", "bob", "bank=physics", f"userid={BOB}")

    def load(*others: jobtap.Plugin, **conf: Any) -> PluginHarness:
        plugin = Multifactor()
        path = str(tmp_path / "site.db")
        plugin.conf = {"database": path, "record-usage": False, "interval": 60.0} | conf
        return plugin_harness(plugin, *others)

    return load


def submit(harness: PluginHarness, userid: int = ANN, **more: Any) -> HarnessJob:
    return harness.submit(userid=userid, **more)


class LongEpilog(jobtap.Plugin):
    """Each job has an epilog of 20 s."""

    @jobtap.on("job.state.cleanup")
    def cleanup(self, job: jobtap.Job) -> None:
        job.epilog_start("epilog")
        self.start_soon(self.finish, job.id)

    async def finish(self, jobid: int) -> None:
        await trio.sleep(20)
        job = self.jobs.get(jobid)
        assert job is not None
        job.epilog_finish("epilog")


class TestPriority:
    def test_is_the_sum_of_the_factors(self, start: Callable[..., PluginHarness]) -> None:
        harness = start()
        assert submit(harness).priority == 100_000
        assert submit(harness, urgency=10).priority == 100_000 - 6 * 1_000

    def test_urgency_can_take_it_no_lower_than_zero(
        self, start: Callable[..., PluginHarness]
    ) -> None:
        harness = start(weights={"fairshare": 0})
        assert submit(harness, urgency=1).priority == 0

    def test_who_used_the_machine_ranks_behind_who_did_not(
        self, start: Callable[..., PluginHarness]
    ) -> None:
        harness = start()
        job = submit(harness)
        job.grant()
        job.start()
        harness.advance(3600)
        job.finish()
        harness.advance(60)
        assert submit(harness, BOB).priority == 100_000
        assert submit(harness, ANN).priority == 50_000

    def test_pending_jobs_are_asked_about_again(self, start: Callable[..., PluginHarness]) -> None:
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

    def test_who_has_no_account(self, start: Callable[..., PluginHarness]) -> None:
        text = f"cannot find user/bank or user/default bank entry for uid: {NOBODY}"
        assert self.rejection(start(), NOBODY) == text

    def test_whose_account_is_disabled(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "active=0")
        text = "user/bank entry has been disabled from flux-accounting DB"
        assert self.rejection(start()) == text

    def test_projects_that_are_not_the_users(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "projects=iron,gold")
        text = 'project "lead" not valid for user; valid projects for user: iron,gold'
        assert self.rejection(start(), attributes={"system.project": "lead"}) == text

    def test_more_active_jobs_than_allowed(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_active_jobs=1")
        harness = start()
        first = submit(harness)
        assert self.rejection(harness) == "user has max active jobs"
        first.cancel()
        submit(harness)

    def test_a_job_larger_than_it_could_ever_be(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_nodes=2")
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
    def test_jobs_beyond_the_limit_wait_for_room(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=1")
        harness = start()
        first, second, third = (submit(harness) for _ in range(3))
        other = submit(harness, BOB)
        assert [job.state for job in (first, other)] == [JobState.SCHED] * 2
        assert second.dependencies == third.dependencies == {"max-running-jobs-user-limit"}
        first.run()
        assert [second.state, third.state] == [JobState.SCHED, JobState.DEPEND]

    def test_each_limit_has_its_dependency(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        limits = ("max_running_jobs=1", "max_nodes=2")
        edit("user", "ann", "bank=physics", f"userid={ANN}", *limits)
        harness = start()
        submit(harness, nnodes=1, ntasks=1)
        held = submit(harness, nnodes=2, ntasks=2)
        assert held.dependencies == {"max-running-jobs-user-limit", "max-resources-user-limit"}

    def test_a_limit_that_is_raised_lets_jobs_go_on(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=1")
        harness = start()
        _, waiting = submit(harness), submit(harness)
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=2")
        harness.request("job-manager.multifactor.reload")
        assert waiting.state == JobState.SCHED

    def test_a_job_that_is_canceled_while_it_waits_is_forgotten(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=1")
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
    def test_job_waits_until_none_of_its_limits_holds_it(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        """The nodes are free first, when the number of jobs has come to its limit meanwhile."""
        edit("user", "ann", "bank=physics", "max_running_jobs=2", "max_nodes=3")
        harness = start()
        big = submit(harness, nnodes=2, ntasks=2)
        held = submit(harness, nnodes=2, ntasks=2)
        small = submit(harness)
        assert held.dependencies == {"max-resources-user-limit"}
        edit("user", "ann", "bank=physics", "max_running_jobs=1")
        reload(harness)
        big.run()
        assert held.dependencies == {"max-resources-user-limit", "max-running-jobs-user-limit"}
        small.run()
        assert held.state == JobState.SCHED

    @pytest.mark.parametrize("limit", ["max_nodes=2", "max_cores=2"])
    def test_resources_of_jobs_that_could_run_are_added_up(
        self, start: Callable[..., PluginHarness], edit: Edit, limit: str
    ) -> None:
        edit("user", "ann", "bank=physics", limit)
        harness = start()
        first, second, third = (submit(harness, nnodes=1, ntasks=1) for _ in range(3))
        assert third.dependencies == {"max-resources-user-limit"}
        second.cancel()
        assert third.state == JobState.SCHED
        first.run()
        third.run()
        assert described(harness, ANN)["active_jobs"] == 0

    def test_jobs_of_one_request_are_counted_one_by_one(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        """Also before the first of them has left NEW."""
        edit("user", "ann", "bank=physics", "max_active_jobs=2", "max_running_jobs=1")
        harness = start()
        jobs = [submit(harness) for _ in range(2)]
        with pytest.raises(Rejected, match="user has max active jobs"):
            submit(harness)
        assert [job.state for job in jobs] == [JobState.SCHED, JobState.DEPEND]


def test_bank_and_project_are_written_down(start: Callable[..., PluginHarness], edit: Edit) -> None:
    edit("user", "ann", "bank=physics", f"userid={ANN}", "projects=iron", "default_project=iron")
    job = submit(start())
    assert job.context("jobspec-update") == {
        "attributes.system.bank": "physics",
        "attributes.system.project": "iron",
    }


def test_what_is_owed_is_told(start: Callable[..., PluginHarness]) -> None:
    assert start().query("multifactor")["shares"] == {str(ANN): 0.5, str(BOB): 0.5}


# --- a database that is edited while jobs are there


@pytest.fixture
def run(tmp_path: Path) -> Edit:
    """Any of the command's subcommands."""

    def invoke(*args: str) -> None:
        result = click.testing.CliRunner().invoke(accounts.main, [str(tmp_path / "site.db"), *args])
        assert result.exit_code == 0, result.output

    return invoke


def reload(harness: PluginHarness) -> None:
    harness.request("job-manager.multifactor.reload")


def described(harness: PluginHarness, userid: int) -> dict[str, Any]:
    users: list[dict[str, Any]] = harness.query("multifactor")["users"]
    return next(user for user in users if user["userid"] == userid)


class TestEdits:
    def test_job_of_a_user_who_is_deleted_is_not_counted_when_they_are_back(
        self, start: Callable[..., PluginHarness], edit: Edit, run: Edit
    ) -> None:
        harness = start()
        job = submit(harness)
        job.grant()
        run("delete", "user", "ann")
        reload(harness)
        job.start()
        job.finish()
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_active_jobs=1")
        reload(harness)
        assert described(harness, ANN)["active_jobs"] == 0
        assert submit(harness).state == JobState.SCHED

    def test_job_that_waits_for_room_of_a_user_who_is_deleted_is_ended_with_why(
        self, start: Callable[..., PluginHarness], edit: Edit, run: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=0")
        harness = start()
        job = submit(harness)
        assert job.dependencies == {"max-running-jobs-user-limit"}
        run("delete", "user", "ann", "--bank", "physics")
        reload(harness)
        assert job.state == JobState.INACTIVE
        assert "cannot find user/bank" in job.context("exception")["note"]

    def test_user_is_deleted_in_one_bank_of_two(
        self, start: Callable[..., PluginHarness], edit: Edit, run: Edit
    ) -> None:
        edit("bank", "chemistry")
        harness = start()
        edit("user", "ann", "bank=chemistry", f"userid={ANN}")
        run("delete", "user", "ann", "--bank", "physics")
        reload(harness)
        assert described(harness, ANN)["bank"] == "chemistry"

    def test_limit_below_what_runs_holds_the_next_until_enough_are_over(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        harness = start()
        jobs = [submit(harness) for _ in range(3)]
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=2")
        reload(harness)
        late = submit(harness)
        jobs[0].run()
        assert late.state == JobState.DEPEND
        jobs[1].run()
        assert late.state == JobState.SCHED

    def test_plugin_that_is_loaded_again_lets_go_on_whom_nothing_holds_any_more(
        self, start: Callable[..., PluginHarness], edit: Edit, tmp_path: Path
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=1")
        harness = start()
        running, held = submit(harness), submit(harness)
        harness.remove("multifactor")
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=2")
        conf = {"database": str(tmp_path / "site.db"), "record-usage": False}
        load = {"load": "plugins/multifactor.py", "conf": conf}
        harness.request("job-manager.jobtap", load)
        harness.advance(15)
        assert held.state == JobState.SCHED
        assert described(harness, ANN)["active_jobs"] == 2
        running.run()
        held.run()
        assert described(harness, ANN)["active_jobs"] == 0

    @pytest.mark.parametrize("state", [JobState.SCHED, JobState.RUN, JobState.CLEANUP])
    def test_plugin_that_is_loaded_again_counts_jobs_in_each_state(
        self, start: Callable[..., PluginHarness], edit: Edit, tmp_path: Path, state: JobState
    ) -> None:
        """Else a limit of one admits two."""
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=1")
        harness = start(LongEpilog())
        job = submit(harness)
        steps = {JobState.SCHED: 0, JobState.RUN: 2, JobState.CLEANUP: 3}[state]
        todo = [job.grant, job.start, job.finish]
        for step in todo[:steps]:
            step()
        assert job.state is state
        harness.remove("multifactor")
        conf = {"database": str(tmp_path / "site.db"), "record-usage": False}
        load = {"load": multifactor.__file__, "conf": conf}
        harness.request("job-manager.jobtap", load)
        late = submit(harness)
        assert late.dependencies == {"max-running-jobs-user-limit"}
        for step in todo[steps:]:
            step()
        harness.advance(20)
        assert job.state is JobState.INACTIVE
        assert late.state is JobState.SCHED

    def test_database_that_is_gone_or_in_use_is_told_and_read_later(
        self, start: Callable[..., PluginHarness], edit: Edit, tmp_path: Path
    ) -> None:
        harness = start()
        path = tmp_path / "site.db"
        path.rename(tmp_path / "away.db")
        harness.advance(60)
        assert "the accounts stay as they were" in harness.log[-1]
        (tmp_path / "away.db").rename(path)
        edit("user", "ann", "bank=physics", f"userid={ANN}", "active=0")
        with sqlite3.connect(path) as database:
            database.execute("BEGIN EXCLUSIVE")
            harness.advance(60)
            assert "locked" in harness.log[-1]
            with pytest.raises(FluxError, match="locked"):
                reload(harness)
        harness.advance(60)
        with pytest.raises(Rejected, match="disabled"):
            submit(harness)

    def test_usage_is_written_down_when_the_plugin_goes(
        self, start: Callable[..., PluginHarness], tmp_path: Path
    ) -> None:
        harness = start(**{"record-usage": True, "interval": 1e6})
        job = submit(harness)
        job.grant()
        job.start()
        harness.advance(100)
        job.finish()
        harness.remove("multifactor")
        with sqlite3.connect(tmp_path / "site.db") as database:
            ((used,),) = database.execute("SELECT usage FROM user WHERE name = 'ann'")
        assert used == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    "conf", [{"interval": 0}, {"half-life": 0}, {"interval": -1}, {"weights": {"queue": 1e300}}]
)
def test_conf_that_makes_no_sense_is_refused(
    start: Callable[..., PluginHarness], conf: dict[str, Any]
) -> None:
    with pytest.raises(PluginError, match=r"plugin multifactor: Expected `float`"):
        start(**conf)


def explained(harness: PluginHarness, job: HarnessJob) -> str:
    answer = harness.request("job-manager.explain", {"id": job.id})
    text: str = answer["said"][-1]["text"]
    return text


class TestExplain:
    def test_names_the_factors(self, start: Callable[..., PluginHarness]) -> None:
        harness = start()
        assert explained(harness, submit(harness)) == "fair share 1 x 100000, bank physics"
        text = explained(harness, submit(harness, urgency=10))
        assert text == "fair share 1 x 100000 + urgency - 16 -6 x 1000, bank physics"

    def test_names_the_limit_that_holds_the_job(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        submit(harness)
        job = submit(harness, urgency=16)
        assert job.dependencies == {"max-running-jobs-user-limit"}
        assert explained(harness, job).endswith(
            "; the user has 1 of 1 jobs that may run, on 1 of any number of nodes"
        )

    def test_names_the_limit_of_cores(
        self, start: Callable[..., PluginHarness], edit: Edit
    ) -> None:
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
    start: Callable[..., PluginHarness], tmp_path: Path
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
