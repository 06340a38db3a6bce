"""job-manager.wait: results of waitable jobs, each told once."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.editions.job_requests import ANY_JOB
from flux_trio.messages import topics
from flux_trio.protocols import JobFlag
from tests.support.asking import asked, asked_by_guest
from tests.support.manager_script import ManagerScript

WAIT = topics.JOB_WAIT


def waitable(m: ManagerScript, *jobids: int) -> None:
    request = m.submission(*jobids)
    assert isinstance(request.payload, dict)
    for job in request.payload["jobs"]:
        job["flags"] = int(JobFlag.WAITABLE)
    m.put(request)


@pytest.fixture
def m() -> ManagerScript:
    """Jobs 1 and 2 are waitable and run, 3 is not waitable."""
    m = ManagerScript(peers=True)
    for jobid in (1, 2):
        waitable(m, jobid)
        m.alloc(jobid)
        m.execute(jobid, "start")
    m.running(3)
    return m


def wait(m: ManagerScript, jobid: int = ANY_JOB, **how: Any) -> list[str]:
    return m.put(asked(WAIT, {"id": jobid}, **how))


def told(did: list[str]) -> list[str]:
    return [line.split(" -> ")[1] for line in did if line.startswith(WAIT)]


def over(m: ManagerScript, jobid: int, status: int = 0) -> list[str]:
    did = m.execute(jobid, f"finish {status}", "release final")
    return told(did + m.freed(jobid))


OK = "{'id': 1, 'success': True, 'errstr': '', 'waitstatus': 0}"


def test_who_waits_hears_when_the_job_is_over(m: ManagerScript) -> None:
    assert wait(m, 1) == []
    assert over(m, 2) == []
    assert over(m, 1) == [OK]


def test_a_result_is_kept_and_told_once(m: ManagerScript) -> None:
    over(m, 1)
    assert told(wait(m, 1)) == [OK]
    text = "ECHILD invalid job id, or job may be inactive and not waitable"
    assert told(wait(m, 1)) == [text]


@pytest.mark.parametrize(
    ("status", "errstr"),
    [(256, "task(s) exited with exit code 1"), (9, "task(s) ended by signal 9")],
)
def test_a_failure_says_how(m: ManagerScript, status: int, errstr: str) -> None:
    over(m, 1, status)
    expected = {"id": 1, "success": False, "errstr": errstr, "waitstatus": status}
    assert told(wait(m, 1)) == [str(expected)]


def test_an_exception_says_which(m: ManagerScript) -> None:
    m.raise_(1)
    over(m, 1, 15)
    expected = {"id": 1, "success": False, "errstr": "Fatal exception type=cancel "}
    assert told(wait(m, 1)) == [str(expected)]


def test_any_job_is_the_next_that_ends_then_no_more(m: ManagerScript) -> None:
    over(m, 1)
    assert told(wait(m)) == [OK]
    assert wait(m) == []
    assert over(m, 2) == [OK.replace("1", "2", 1)]
    assert told(wait(m)) == ["ECHILD there are no more waitable jobs"]


def test_more_who_wait_than_jobs_are_told_so(m: ManagerScript) -> None:
    assert wait(m, tag=1) == []
    assert wait(m, tag=2) == []
    assert told(wait(m, tag=3)) == ["ECHILD there are no more waitable jobs"]
    assert told(wait(m, 1, tag=4)) == ["ECHILD there are no more waitable jobs"]  # to the second


def test_a_job_that_is_refused_is_not_waited_for() -> None:
    m = ManagerScript(hooks=["job.validate"], peers=True)
    waitable(m, 1)
    assert wait(m) == []
    assert told(m.answer("job.validate", reject="no")) == []
    assert told(wait(m)) == ["ECHILD there are no more waitable jobs"]


@pytest.mark.parametrize(
    ("jobid", "text"),
    [
        (3, "job was not submitted with FLUX_JOB_WAITABLE"),
        (9, "invalid job id, or job may be inactive and not waitable"),
    ],
)
def test_a_job_that_cannot_be_waited_for_says_why(m: ManagerScript, jobid: int, text: str) -> None:
    assert told(wait(m, jobid)) == [f"ECHILD {text}"]


def test_one_may_wait_for_a_job(m: ManagerScript) -> None:
    wait(m, 1, tag=1)
    assert told(wait(m, 1, tag=2)) == ["ECHILD job id already has a waiter"]


def test_who_has_gone_takes_no_result(m: ManagerScript) -> None:
    wait(m, 1, by="bob")
    wait(m, by="bob", tag=2)
    m.gone("bob")
    assert over(m, 1) == []
    assert told(wait(m, 1)) == [OK]


def test_only_the_owner_waits(m: ManagerScript) -> None:
    assert told(m.put(asked_by_guest(WAIT, {"id": 1})))[0].startswith("EPERM ")


def test_a_job_of_an_earlier_life_is_waited_for() -> None:
    m = ManagerScript(peers=True)
    request = m.submission(1)
    log = "job.0000.0000.0000.0001.eventlog"
    text = m.kvs.value(log)
    assert text is not None
    m.kvs.commit(["put", log, text.replace('"flags":0', '"flags":2')])
    m.put(request)
    again = m.restarted(peers=True)
    assert wait(again, 1) == []
    again.alloc(1)
    again.execute(1, "start")
    assert over(again, 1) == [OK]


def test_any_job_is_minus_1_on_fluxs_own_wire(m: ManagerScript) -> None:
    over(m, 1)
    assert told(wait(m, -1)) == [OK]


def test_alloc_query_counts_jobs_before_at_and_after_the_scheduler(m: ManagerScript) -> None:
    m.ask("job-manager.alloc-query")
    counts = {"queue_length": 0, "alloc_pending": 0, "running": 3}
    assert m.last("job-manager.alloc-query").payload == counts
    over(m, 1)
    m.submit(4)
    m.ask("job-manager.alloc-query")
    counts = {"queue_length": 0, "alloc_pending": 1, "running": 2}
    assert m.last("job-manager.alloc-query").payload == counts
