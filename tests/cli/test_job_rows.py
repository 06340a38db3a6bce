"""Job records as job-list tells them, and the rows and JSON that people get."""

from __future__ import annotations

import os
from datetime import datetime
from datetime import time as clock_time
from typing import Any

import pytest

from flux_trio.cli.connection.job_query import RESULTS, read_filter
from flux_trio.cli.jobs.job_rows import FIELDS, FORMATS, JobRow
from flux_trio.cli.terminal.columns import Layout
from flux_trio.cli.terminal.shown_values import user_name
from flux_trio.messages import USERID_UNKNOWN
from flux_trio.protocols import ACTIVE, PENDING, JobResult, JobState

NOW = 2000.0
JOBID = 0x17E9FB8DF16C2E


def record(**more: Any) -> dict[str, Any]:
    """A job that has run from 1000 s to 1060 s."""
    return {
        "id": JOBID,
        "userid": USERID_UNKNOWN,
        "urgency": 16,
        "priority": 16,
        "t_submit": 990.0,
        "t_depend": 990.0,
        "t_run": 1000.0,
        "t_cleanup": 1060.0,
        "t_inactive": 1060.5,
        "state": int(JobState.INACTIVE),
        "success": True,
        "result": int(JobResult.COMPLETED),
        "waitstatus": 0,
        "exception_occurred": False,
        "name": "sleep",
        "cwd": "/tmp",
        "ntasks": 4,
        "ncores": 8,
        "duration": 300.0,
        "nnodes": 2,
        "ranks": "0-1",
        "nodelist": "node[0-1]",
    } | more


def running(**more: Any) -> dict[str, Any]:
    over = ("t_cleanup", "t_inactive", "success", "result", "waitstatus")
    return without(over, state=int(JobState.RUN), expiration=2090.0) | more


def pending(**more: Any) -> dict[str, Any]:
    over = ("t_run", "t_cleanup", "t_inactive", "success", "result", "waitstatus")
    unplaced = without((*over, "nnodes", "ranks", "nodelist"), state=int(JobState.SCHED))
    return unplaced | more


def begin(*time: int) -> str:
    """The description of a begin-time on the day of NOW."""
    moment = datetime.combine(datetime.fromtimestamp(NOW).date(), clock_time(*time))
    return f"begin-time={moment.timestamp():.3f}"


def without(keys: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {key: value for key, value in record().items() if key not in keys} | more


def failed(**more: Any) -> dict[str, Any]:
    return record(result=int(JobResult.FAILED), success=False) | more


def raised(kind: str, note: str = "", severity: int = 0) -> dict[str, Any]:
    exception = {"type": kind, "note": note, "severity": severity}
    return {f"exception_{key}": value for key, value in exception.items()} | {
        "exception_occurred": True
    }


def field(name: str, job: dict[str, Any]) -> object:
    return JobRow(job, NOW)[name]


def shown(form: str, *jobs: dict[str, Any]) -> list[str]:
    return list(
        Layout(FORMATS[form].format if form in FORMATS else form, FIELDS).lines(
            [JobRow(j, NOW) for j in jobs]
        )
    )


def test_the_default_columns_are_those_of_flux_jobs() -> None:
    assert shown("default", pending(name="a-long-name-of-a-job"), running(), record()) == [
        "       JOBID USER       NAME       ST NTASKS NNODES     TIME INFO",
        "  ƒuZZybuNNy 4294967295 a-long-na+  S      4      -       5m",
        "  ƒuZZybuNNy 4294967295 sleep       R      4      2   16.67m node[0-1]",
        "  ƒuZZybuNNy 4294967295 sleep      CD      4      2       1m node[0-1]",
    ]


def test_a_queue_has_a_column_when_a_job_has_one() -> None:
    assert shown("default", record())[0].split()[:2] == ["JOBID", "USER"]
    assert shown("default", record(queue="batch"))[0].split()[:2] == ["JOBID", "QUEUE"]


FAILED = {"annotations": {"sched": {"reason_pending": "plugin x failed"}}}


@pytest.mark.parametrize(
    ("job", "info"),
    [
        (running(), "node[0-1]"),
        (record(), "node[0-1]"),
        (pending(), ""),
        (pending(annotations={"sched": {"t_estimate": 2090.0}}), "eta:1.5m"),
        (pending(annotations={"sched": {"t_estimate": 1990.0}}), "eta:now"),
        (pending(annotations={"sched": {"reason_pending": "no room"}}), "no room"),
        (pending(urgency=0, priority=0), "held"),
        (pending(priority=0), "priority-hold"),
        (pending(state=int(JobState.PRIORITY)), "priority-wait"),
        (pending(state=int(JobState.PRIORITY), **FAILED), "plugin x failed"),
        (pending(state=int(JobState.DEPEND), dependencies=["a"], **FAILED), "plugin x failed"),
        (pending(state=int(JobState.DEPEND), dependencies=["a", "b"]), "depends:a,b"),
        (pending(state=int(JobState.DEPEND), dependencies=[begin(17, 30)]), "depends:begin@17:30"),
        (
            pending(state=int(JobState.DEPEND), dependencies=["a", begin(17, 30, 5)]),
            "depends:a,begin@17:30:05",
        ),
        (
            pending(state=int(JobState.DEPEND), dependencies=["begin-time=86400000.000"]),
            datetime.fromtimestamp(86400000).strftime("depends:begin@%b%d-%H:%M"),
        ),
        (
            pending(state=int(JobState.DEPEND), dependencies=[f"begin-time={1e308:.3f}"]),
            "depends:begin@Dec31-00:00",
        ),
        (
            pending(state=int(JobState.DEPEND), dependencies=["begin-time=soon"]),
            "depends:begin-time=soon",
        ),
        (pending(state=int(JobState.INACTIVE), result=2, **raised("alloc", "too big")), "alloc"),
    ],
)
def test_info_is_where_it_runs_or_why_it_does_not(job: dict[str, Any], info: str) -> None:
    assert field("contextual_info", job) == info


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (pending(), "scheduler has not answered for 30 s"),
        (
            pending(annotations={"sched": {"t_estimate": 2090.0}}),
            "scheduler has not answered for 30 s",
        ),
        (pending(urgency=0, priority=0), "held"),
        (pending(priority=0), "priority-hold"),
        (running(), "node[0-1]"),
    ],
)
def test_what_hinders_the_queue_is_the_reason_of_every_job_that_waits_for_it(
    job: dict[str, Any], text: str
) -> None:
    assert JobRow(job, NOW, "scheduler has not answered for 30 s")["contextual_info"] == text


@pytest.mark.parametrize(
    ("job", "status", "abbreviation"),
    [
        (pending(), "SCHED", "S"),
        (running(), "RUN", "R"),
        (record(), "COMPLETED", "CD"),
        (failed(), "FAILED", "F"),
        (record(result=4), "CANCELED", "CA"),
        (record(result=8), "TIMEOUT", "TO"),
    ],
)
def test_status_is_the_state_and_then_the_result(
    job: dict[str, Any], status: str, abbreviation: str
) -> None:
    assert (field("status", job), field("status_abbrev", job)) == (status, abbreviation)


def test_results_are_those_of_job_list() -> None:
    assert {number: name for number, (name, _) in RESULTS.items()} == {
        int(result): result.name for result in JobResult
    }


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (running(), ""),
        (record(), 0),
        (failed(waitstatus=3 << 8), 3),
        (failed(waitstatus=15), -15),
        (pending(state=64, result=4), -128),
        (pending(state=64, result=2), 1),
    ],
)
def test_the_return_code_is_that_of_the_job(job: dict[str, Any], code: object) -> None:
    assert field("returncode", job) == code


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (running(), ""),
        (record(), "Exit 0"),
        (failed(waitstatus=3 << 8), "Exit 3"),
        (failed(waitstatus=127 << 8), "command not found"),
        (failed(waitstatus=137 << 8), "Killed"),
        (failed(waitstatus=9), "Killed"),
        (failed(**raised("exec", "lost")), "Exit 0"),
        (failed(**raised("alloc", "too big")), "Exception: type=alloc note=too big"),
        (record(result=4, **raised("cancel")), "Canceled"),
        (record(result=4, **raised("cancel", "why")), "Canceled: why"),
        (record(result=8, **raised("timeout")), "Timeout"),
    ],
)
def test_the_reason_says_how_it_ended(job: dict[str, Any], reason: str) -> None:
    assert field("inactive_reason", job) == reason


@pytest.mark.parametrize(
    ("name", "job", "value"),
    [
        ("id", record(), JOBID),
        ("id.f58", record(), "ƒuZZybuNNy"),
        ("id.dec", record(), str(JOBID)),
        ("id.kvs", record(), "job.0017.e9fb.8df1.6c2e"),
        ("runtime", record(), 60.0),
        ("runtime", running(), 1000.0),
        ("runtime", pending(), 0.0),
        ("contextual_time", pending(), 300.0),
        ("t_remaining", running(), 90.0),
        ("t_remaining", running(expiration=0.0), 0.0),
        ("t_remaining", record(), 0.0),
        ("nodelist", pending(), ""),
        ("exception.type", record(**raised("cancel")), "cancel"),
        ("sched.resource_summary", record(annotations={"sched": {"resource_summary": "r"}}), "r"),
        ("annotations.user.x", record(annotations={"user": {"x": 1}}), 1),
        ("annotations.user.x.y", record(annotations={"user": {"x": 1}}), ""),
        ("user.x", record(), ""),
        ("state", running(), "RUN"),
        ("priority", pending(), 16),
        ("priority", pending(urgency=0, priority=0), 0),
        ("priority", {k: v for k, v in pending().items() if k != "priority"}, ""),
        ("priority", pending(state=int(JobState.PRIORITY), priority=7), 7),
        ("dependencies", pending(dependencies=["a", "b"]), "a,b"),
    ],
)
def test_a_field_has_the_value_of_flux_jobs(name: str, job: dict[str, Any], value: object) -> None:
    assert field(name, job) == value


def test_every_field_can_be_shown_of_every_job() -> None:
    for name in FIELDS:
        shown(f"{{{name}}}", pending(), running(), record())


def test_json_has_known_values_only() -> None:
    job = JobRow(pending(), NOW).to_json()
    assert job["jobid"] == "ƒuZZybuNNy"
    assert (job["id"], job["state"], job["status"]) == (JOBID, "SCHED", "SCHED")
    assert job["exception"] == {"occurred": False}
    assert not {"result", "runtime", "returncode", "t_run", "nodelist"} & job.keys()
    over = JobRow(record(expiration=0.0, **raised("cancel", "why")), NOW).to_json()
    assert (over["result"], over["returncode"], over["runtime"]) == ("COMPLETED", 0, 60.0)
    assert over["exception"] == {"occurred": True, "type": "cancel", "note": "why", "severity": 0}
    assert "expiration" not in over


@pytest.mark.parametrize(
    ("names", "states", "results"),
    [
        (["active"], ACTIVE, 0),
        (["pending,run"], PENDING | JobState.RUN, 0),
        (["Inactive", "failed"], JobState.INACTIVE, JobResult.FAILED),
        (["failed,canceled"], 0, JobResult.FAILED | JobResult.CANCELED),
    ],
)
def test_a_filter_is_of_states_and_results(names: list[str], states: int, results: int) -> None:
    assert read_filter(names) == (states, results)


def test_a_filter_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid filter specified: new"):
        read_filter(["new"])


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(USERID_UNKNOWN) == str(USERID_UNKNOWN)
    assert user_name(os.getuid()) != ""


def test_a_job_id_is_f58_or_the_number_that_a_format_asks_for() -> None:
    assert shown("{id} {id:>14} {id:d} {id:x}", record())[1] == (
        f"ƒuZZybuNNy     ƒuZZybuNNy {JOBID} {JOBID:x}"
    )
