"""The plugin multifactor: priorities, limits, and the words of its rejections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accounts
import click.testing
import pytest
from multifactor import Multifactor

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

    def load(**conf: Any) -> PluginHarness:
        plugin = Multifactor()
        path = str(tmp_path / "site.db")
        plugin.conf = {"database": path, "record-usage": False, "interval": 60.0} | conf
        return plugin_harness(plugin)

    return load


def submit(harness: PluginHarness, userid: int = ANN, **more: Any) -> HarnessJob:
    return harness.submit(userid=userid, **more)


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
        with pytest.raises(Exception, match="multifactor: file is not a database"):
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


def test_bank_and_project_are_written_down(start: Callable[..., PluginHarness], edit: Edit) -> None:
    edit("user", "ann", "bank=physics", f"userid={ANN}", "projects=iron", "default_project=iron")
    job = submit(start())
    assert job.context("jobspec-update") == {
        "attributes.system.bank": "physics",
        "attributes.system.project": "iron",
    }


def test_what_is_owed_is_told(start: Callable[..., PluginHarness]) -> None:
    assert start().query("multifactor")["shares"] == {str(ANN): 0.5, str(BOB): 0.5}
