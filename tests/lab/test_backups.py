"""Backups that are made while jobs start and end: each is whole or none, and who errs is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from flux_trio.cores.kvs.ops import Unlink
from flux_trio.lab import (
    DiskFull,
    JobPlan,
    LoseClient,
    OwnerRequest,
    Plan,
    Recover,
    RestartInstance,
    Setup,
    When,
    run_plan,
)
from flux_trio.lab.catalogue import Fault
from flux_trio.lab.plans import campaign_coverage as s
from flux_trio.lab.plans.rare_requests import with_backup
from flux_trio.lab.properties import copies
from flux_trio.lab.properties.copies import Copied
from flux_trio.lab.stories.campaign import play_seed
from flux_trio.lab.stories.outcome import Outcome
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.world import recovering
from flux_trio.lab.world.slices import InSlices, Stopped
from flux_trio.messages import Errno, Response, topics
from flux_trio.store.backup import BackupError, read_mark
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.trace import Record

AT_ITS_END = When(topics.KVS_OWN.backup, type="response")
BEFORE_ITS_END = When("job-exec.start", nth=16, type="response")


def plan_of(*faults: Fault, **changed: Any) -> Plan:
    """Jobs that start and end, and a backup in their midst."""
    jobs = tuple(JobPlan(at=float(number), run=1.0) for number in range(12))
    plan = Plan(
        1,
        nnodes=1,
        cores=4,
        jobs=jobs,
        actions=(OwnerRequest(1.2, "backup"),),
        faults=faults,
        store="sqlite",
        pages=2,
    )
    return replace(plan, **changed)


def played(plan: Plan) -> tuple[Outcome, set[str], list[int]]:
    """Return what became of a plan, its situations, and the errnums of answers to backups."""
    situations, answers = s.NotedSituations(), list[int]()

    def note(record: Record) -> None:
        message = record.message
        is_sent = record.kind == "send" and isinstance(message, Response)
        if is_sent and message.topic == topics.KVS_OWN.backup:
            answers.append(message.errnum)

    sinks = [situations.observe, note]
    outcome = run_plan(plan, sinks, properties=Setup().all_properties())
    return outcome, situations.occurred, answers


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_backup_has_all_that_is_stored_while_jobs_start_and_end(depth: str) -> None:
    outcome, occurred, answers = played(plan_of(depth=depth))
    assert outcome.problems == ()
    assert answers == [0]
    assert s.BACKED_UP in occurred


@pytest.mark.parametrize(
    ("depth", "tool"), [("cores", "nothing"), ("stack", "repair"), ("stack", "restore")]
)
def test_what_a_kill_leaves_of_a_backup_is_none(depth: str, tool: Any) -> None:
    plan = plan_of(Recover(BEFORE_ITS_END, tool), depth=depth)
    outcome, occurred, answers = played(plan)
    assert outcome.problems == ()
    assert answers == []
    assert {s.BACKUP_CUT, s.RECOVERED + tool} <= occurred


def left_of(plan: Plan) -> tuple[list[str], str]:
    """Play a plan; return the files of its backup, and why it is no complete one."""
    with PlanRun(plan) as plan_run:
        plan_run.play()
        directory = plan_run.world.disk.backup.directory
        assert directory is not None
        names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
        try:
            read_mark(directory)
        except BackupError as error:
            return names, error.text
    return names, ""


def test_what_a_kill_leaves_of_a_backup_says_that_it_is_none() -> None:
    names, reason = left_of(plan_of(Recover(BEFORE_ITS_END, "nothing")))
    assert {"backup.json", "state.sqlite"} <= set(names)
    assert reason.endswith("not a complete backup: its backup.json is empty")


@pytest.mark.parametrize(
    ("fault", "errnums"),
    [
        (LoseClient(BEFORE_ITS_END), []),
        (RestartInstance(BEFORE_ITS_END), [Errno.ENOSYS]),
        (DiskFull(BEFORE_ITS_END), [Errno.ENOSPC]),
    ],
)
def test_nothing_is_left_of_a_backup_that_is_stopped(fault: Fault, errnums: list[int]) -> None:
    outcome, _, answers = played(plan_of(fault))
    assert outcome.problems == ()
    assert outcome.struck == (fault,)
    assert answers == errnums
    assert left_of(plan_of(fault))[0] == []


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_instance_goes_on_from_a_backup_that_was_made_while_jobs_start_and_end(
    depth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(recovering, "take")  # none is made after the kill
    plan = plan_of(Recover(AT_ITS_END, "restore"), depth=depth)
    outcome, occurred, answers = played(plan)
    assert outcome.problems == ()
    assert answers == [0]
    assert {s.BACKED_UP, s.BACKUP_RESTORED} <= occurred


def test_store_in_memory_has_no_backup() -> None:
    outcome, occurred, answers = played(plan_of(store="memory"))
    assert outcome.problems == ()
    assert answers == [Errno.EINVAL]
    assert s.BACKED_UP not in occurred


# --- who errs is named


def test_backup_that_lacks_a_change_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SqliteStore.backup

    def lacking(self: SqliteStore, path: Path, between: Callable[[], None]) -> None:
        whole(self, path, between)
        copy = SqliteStore(path)
        copy.commit([Unlink(copy.dir("job")[0])])
        copy.close()

    monkeypatch.setattr(SqliteStore, "backup", lacking)
    outcome = run_plan(plan_of(), properties=[Copied])
    assert "copied" in outcome.broken


def test_commit_after_the_last_slice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SqliteStore.backup

    def late(self: SqliteStore, path: Path, between: Callable[[], None]) -> None:
        whole(self, path, between)
        between()

    monkeypatch.setattr(SqliteStore, "backup", late)
    outcome = run_plan(plan_of(), properties=[Copied])
    assert "copied" in outcome.broken


def test_rest_of_a_backup_that_is_called_complete_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "read_mark", lambda _: None)
    outcome = run_plan(plan_of(Recover(BEFORE_ITS_END, "nothing")), properties=[Copied])
    assert outcome.problems == ("copied: in a backup backup/state.sqlite: no such file",)


# --- what seeds draw


def test_seeds_draw_each_situation_of_backups_and_it_occurs() -> None:
    occurred: set[str] = set()
    for seed in (55, 116, 193):
        result = play_seed(seed, Setup(depth="stack"))
        assert s.BACKED_UP in result.drawn
        occurred |= result.occurred
    assert {s.BACKED_UP, s.BACKUP_CUT, s.BACKUP_RESTORED} <= occurred


def test_few_plans_get_a_backup_and_the_others_stay_as_they_are() -> None:
    plan = replace(plan_of(), actions=(OwnerRequest(2.0, "purge"),), store="memory", pages=0)
    drawn = [with_backup(Random(number), plan, 30.0) for number in range(1000)]
    backed_up = [each for each in drawn if each != plan]
    assert 15 < len(backed_up) < 45
    for each in backed_up:
        assert each.jobs == plan.jobs
        assert (each.actions[0], each.actions[1].what) == (plan.actions[0], "backup")


# --- a function in slices


def test_function_goes_on_while_somebody_waits_for_it() -> None:
    done: list[int] = []

    def three(between: Callable[[], None]) -> str:
        for number in range(3):
            done.append(number)
            between()
        return "three"

    work = InSlices(three)
    assert done == []
    assert [work.go_on() for _ in range(3)] == [False] * 3
    assert done == [0, 1, 2]
    assert work.go_on()
    assert work.result() == "three"


def test_function_that_raises_is_done() -> None:
    def raises(_between: Callable[[], None]) -> None:
        raise ValueError("here")

    work = InSlices(raises)
    assert work.go_on()
    with pytest.raises(ValueError, match="here"):
        work.result()


@pytest.mark.parametrize("nslices", [0, 1])
def test_function_that_is_stopped_tidies_up(nslices: int) -> None:
    said: list[str] = []

    def tidies(between: Callable[[], None]) -> None:
        try:
            between()
        finally:
            said.append("tidy")

    work = InSlices(tidies)
    for _ in range(nslices):
        assert not work.go_on()
    work.stop()
    assert said == ["tidy"] * nslices
    with pytest.raises(Stopped):
        work.result()
