"""The plugin multifactor: a database that is edited while jobs are there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio import jobtap
from flux_trio.jobtap import FluxError, PluginError
from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness, Rejected

ANN, BOB, NOBODY = 1001, 1002, 1999
Edit = Callable[..., None]
Start = Callable[..., PluginHarness]


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


def reload(harness: PluginHarness) -> None:
    harness.request("job-manager.multifactor.reload")


def described(harness: PluginHarness, userid: int) -> dict[str, Any]:
    users: list[dict[str, Any]] = harness.query("multifactor")["users"]
    return next(user for user in users if user["userid"] == userid)


class TestEdits:
    def test_job_of_a_user_who_is_deleted_is_not_counted_when_they_are_back(
        self, start: Start, edit: Edit, run: Edit
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
        self, start: Start, edit: Edit, run: Edit
    ) -> None:
        edit("user", "ann", "bank=physics", f"userid={ANN}", "max_running_jobs=0")
        harness = start()
        job = submit(harness)
        assert job.dependencies == {"max-running-jobs-user-limit"}
        run("delete", "user", "ann", "--bank", "physics")
        reload(harness)
        assert job.state == JobState.INACTIVE
        assert "cannot find user/bank" in job.context("exception")["note"]

    def test_user_is_deleted_in_one_bank_of_two(self, start: Start, edit: Edit, run: Edit) -> None:
        edit("bank", "chemistry")
        harness = start()
        edit("user", "ann", "bank=chemistry", f"userid={ANN}")
        run("delete", "user", "ann", "--bank", "physics")
        reload(harness)
        assert described(harness, ANN)["bank"] == "chemistry"

    def test_limit_below_what_runs_holds_the_next_until_enough_are_over(
        self, start: Start, edit: Edit
    ) -> None:
        harness = start()
        jobs = [submit(harness) for _ in range(3)]
        edit("user", "ann", "max_running_jobs=2")
        reload(harness)
        late = submit(harness)
        jobs[0].run()
        assert late.state == JobState.DEPEND
        jobs[1].run()
        assert late.state == JobState.SCHED

    def test_plugin_that_is_loaded_again_lets_go_on_whom_nothing_holds_any_more(
        self, start: Start, edit: Edit, load_again: Edit
    ) -> None:
        edit("user", "ann", "max_running_jobs=1")
        harness = start()
        running, held = submit(harness), submit(harness)
        edit("user", "ann", "max_running_jobs=2")
        load_again(harness)
        harness.advance(15)
        assert held.state == JobState.SCHED
        assert described(harness, ANN)["active_jobs"] == 2
        running.run()
        held.run()
        assert described(harness, ANN)["active_jobs"] == 0

    @pytest.mark.parametrize("state", [JobState.SCHED, JobState.RUN, JobState.CLEANUP])
    def test_plugin_that_is_loaded_again_counts_jobs_in_each_state(
        self, start: Start, edit: Edit, load_again: Edit, state: JobState
    ) -> None:
        """Else a limit of one admits two."""
        edit("user", "ann", "max_running_jobs=1")
        harness = start(LongEpilog())
        job = submit(harness)
        steps = {JobState.SCHED: 0, JobState.RUN: 2, JobState.CLEANUP: 3}[state]
        todo = [job.grant, job.start, job.finish]
        for step in todo[:steps]:
            step()
        assert job.state is state
        load_again(harness)
        late = submit(harness)
        assert late.dependencies == {"max-running-jobs-user-limit"}
        for step in todo[steps:]:
            step()
        harness.advance(20)
        assert job.state is JobState.INACTIVE
        assert late.state is JobState.SCHED

    def test_database_that_is_gone_or_in_use_is_told_and_read_later(
        self, start: Start, edit: Edit, tmp_path: Path
    ) -> None:
        harness = start()
        path = tmp_path / "site.db"
        path.rename(tmp_path / "away.db")
        harness.advance(60)
        assert "the accounts stay as they were" in harness.log[-1]
        (tmp_path / "away.db").rename(path)
        edit("user", "ann", "active=0")
        with sqlite3.connect(path) as database:
            database.execute("BEGIN EXCLUSIVE")
            harness.advance(60)
            assert "locked" in harness.log[-1]
            with pytest.raises(FluxError, match="locked"):
                reload(harness)
        harness.advance(60)
        with pytest.raises(Rejected, match="disabled"):
            submit(harness)

    def test_usage_is_written_down_when_the_plugin_goes(self, start: Start, tmp_path: Path) -> None:
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
def test_conf_that_makes_no_sense_is_refused(start: Start, conf: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match=r"plugin multifactor: Expected `float`"):
        start(**conf)
