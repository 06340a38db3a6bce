"""Purging finished jobs, and what the index of jobs is for a job manager that starts."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import Config, JobManagerConfig
from flux_trio.cores.job_index import ACTIVE, ENDED
from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY
from flux_trio.cores.job_manager.jobs.purge import PAGE_JOBS
from flux_trio.messages import ROLE_OWNER, Errno, Event, topics
from flux_trio.messages.types import PRIVATE
from flux_trio.protocols import INACTIVE_REMOVE, JobState
from tests.support.asking import asked_by_guest
from tests.support.manager_script import ManagerScript, key


@pytest.fixture
def m() -> ManagerScript:
    """A job manager with finished jobs 1 to 5, one every 10 s, and an active one, 6."""
    m = ManagerScript(peers=True, everything=True)
    for jobid in range(1, 6):
        m.submit(jobid)
        m.raise_(jobid)
        m.now += 10
    m.submit(6)
    return m


def purge(m: ManagerScript, **wanted: Any) -> int:
    """How many were purged, or counted."""
    m.ask(topics.JOB_PURGE, wanted)
    count: int = m.last(topics.JOB_PURGE).payload["count"]
    return count


def left(m: ManagerScript) -> list[int]:
    """The jobs that anything is stored of."""
    return [jobid for jobid in range(1, 7) if m.kvs.keys(key(jobid))]


def limited(**limits: Any) -> Config:
    return Config(job_manager=JobManagerConfig(**limits))


def test_oldest_jobs_go_until_so_many_are_left(m: ManagerScript) -> None:
    assert purge(m, num_limit=2, force=True) == 3
    assert left(m) == [4, 5, 6]
    assert m.stats()["inactive_jobs"] == 2
    assert len(m.kvs.keys(ENDED)) == 2
    assert len(m.kvs.keys(ACTIVE)) == 1


def test_jobs_go_that_ended_too_long_ago(m: ManagerScript) -> None:
    assert purge(m, age_limit=35.0, force=True) == 2
    assert left(m) == [3, 4, 5, 6]
    assert purge(m, age_limit=1e305, force=True) == 0
    assert purge(m, age_limit=0, force=True) == 3
    assert left(m) == [6]


def test_one_limit_is_enough(m: ManagerScript) -> None:
    assert purge(m, age_limit=15.0, num_limit=5, force=True) == 4
    assert purge(m, age_limit=1000.0, num_limit=0, force=True) == 1


def test_without_force_jobs_are_only_counted(m: ManagerScript) -> None:
    assert purge(m, num_limit=2, batch=1) == 3
    assert purge(m, age_limit=35.0) == 2
    assert purge(m) == 0
    assert left(m) == [1, 2, 3, 4, 5, 6]


def test_batch_bounds_what_one_request_takes(m: ManagerScript) -> None:
    assert purge(m, num_limit=0, batch=2, force=True) == 2
    assert left(m) == [3, 4, 5, 6]


def test_many_jobs_go_in_commits_of_a_page() -> None:
    m = ManagerScript(peers=True)
    jobids = range(1, 2 * PAGE_JOBS + 2)
    m.submit(*jobids)
    m.ask(topics.JOB_RAISEALL, {"severity": 0, "type": "cancel", "states": 0x7F})
    assert purge(m, num_limit=PAGE_JOBS * 10, batch=10_000) == 0
    assert purge(m, num_limit=0) == len(jobids)
    m.commits_wait = True
    m.ask(topics.JOB_PURGE, {"num_limit": 1, "batch": 10_000, "force": True})
    answers = 0
    while m.commits:
        assert m.kvs.keys(ENDED)
        answers += sum(line.startswith(topics.JOB_PURGE) for line in m.commit())
    assert answers == 1
    assert m.last(topics.JOB_PURGE).payload == {"count": 2 * PAGE_JOBS}
    assert len(m.kvs.keys(ENDED)) == 1


def test_jobs_with_long_output_go_one_in_a_commit(m: ManagerScript) -> None:
    """A commit that unlinks gigabytes holds up all others."""
    for jobid in (2, 3):
        m.kvs.commit(["put", f"{key(jobid)}.guest.output.1", "x" * 1000])
    m.commits_wait = True
    m.ask(topics.JOB_PURGE, {"num_limit": 0, "force": True})
    gone = []
    while m.commits:
        m.commit()
        gone.append(m.last(topics.JOB_PURGE_EVENT).payload["jobs"])
    assert gone == [[1, 2], [3], [4, 5]]
    assert m.last(topics.JOB_PURGE).payload == {"count": 5}


def test_event_tells_of_it_once_it_is_durable(m: ManagerScript) -> None:
    m.commits_wait = True
    m.ask(topics.JOB_PURGE, {"num_limit": 3, "force": True})
    assert not any(each.topic == topics.JOB_PURGE_EVENT for each in m.messages)
    m.commit()
    times = [1_000_000_000, 1_010_000_000]
    assert m.last(topics.JOB_PURGE_EVENT).payload == {"jobs": [1, 2], "times": times}


def test_event_of_purge_and_of_a_job_set_aside_is_the_owners(m: ManagerScript) -> None:
    """3 Event Message Type: private restricts delivery; the ids of others' jobs are not told."""
    purge(m, num_limit=4, force=True)
    assert m.last(topics.JOB_PURGE_EVENT).flags & PRIVATE
    before = len(m.messages)
    damaged = {"key": f"{key(2)}.eventlog", "text": "its checksum is another"}
    m.put(Event(topics.KVS_DAMAGED_EVENT, damaged, rolemask=ROLE_OWNER))
    (aside,) = [e for e in m.messages[before:] if e.topic == topics.JOB_PURGE_EVENT]
    assert aside.payload["jobs"] == [2]
    assert aside.flags & PRIVATE


def test_plugins_hear_that_a_job_is_gone_and_can_not_look_it_up(m: ManagerScript) -> None:
    before = m.plugins.heard.count(INACTIVE_REMOVE)
    purge(m, num_limit=3, force=True)
    assert m.plugins.heard.count(INACTIVE_REMOVE) == before + 2
    assert m.core.get(1) is None
    assert m.core.get(3) is not None


def test_job_that_is_named_goes(m: ManagerScript) -> None:
    assert m.ask(topics.JOB_PURGE_ID, {"id": 3}) == ["job-manager.purge-id -> {'count': 1}"]
    assert left(m) == [1, 2, 3, 4, 5, 6]
    did = m.ask(topics.JOB_PURGE_ID, {"id": 3, "force": True})
    assert did[-1] == "job-manager.purge-id -> {'count': 1}"
    assert left(m) == [1, 2, 4, 5, 6]
    assert len(m.kvs.keys(ENDED)) == 4
    assert m.ask(topics.JOB_PURGE_ID, {"id": 3, "force": True}) == [
        "job-manager.purge-id -> ENOENT id not found"
    ]


def test_active_job_is_not_purged(m: ManagerScript) -> None:
    assert m.ask(topics.JOB_PURGE_ID, {"id": 6, "force": True}) == [
        "job-manager.purge-id -> EINVAL cannot purge active job"
    ]
    purge(m, num_limit=0, age_limit=0, force=True)
    assert left(m) == [6]
    assert m.state(6) == JobState.SCHED


@pytest.mark.parametrize("topic", [topics.JOB_PURGE, topics.JOB_PURGE_ID])
def test_guests_do_not_purge(m: ManagerScript, topic: str) -> None:
    (line,) = m.put(asked_by_guest(topic, {"id": 1, "force": True, "num_limit": 0}))
    assert line == f"{topic} -> EPERM Request requires owner credentials"
    assert left(m) == [1, 2, 3, 4, 5, 6]


def test_purge_that_cannot_be_stored_is_refused_and_the_next_one_goes_on(m: ManagerScript) -> None:
    m.commits_wait = True
    m.ask(topics.JOB_PURGE, {"num_limit": 4, "force": True})
    m.ask(topics.JOB_PURGE, {"num_limit": 3, "force": True})
    line, _ = m.refuse_commit(Errno.EIO, "disk: gone")
    assert line == "job-manager.purge -> EIO disk: gone"
    assert left(m) == [1, 2, 3, 4, 5, 6]
    m.commit()
    assert m.last(topics.JOB_PURGE).payload == {"count": 2}
    assert left(m) == [3, 4, 5, 6]


def test_job_that_is_named_twice_at_once_is_counted_once(m: ManagerScript) -> None:
    m.commits_wait = True
    m.ask(topics.JOB_PURGE_ID, {"id": 3, "force": True})
    m.ask(topics.JOB_PURGE_ID, {"id": 3, "force": True})
    m.ask(topics.JOB_PURGE, {"num_limit": 2, "force": True})
    answers = []
    while m.commits:
        answers += [line for line in m.commit() if " -> " in line]
    assert answers == [
        "job-manager.purge-id -> {'count': 1}",
        "job-manager.purge-id -> ENOENT id not found",
        "job-manager.purge -> {'count': 2}",
    ]
    assert m.stats()["inactive_jobs"] == 2
    assert left(m) == [4, 5, 6]


def test_purge_that_waits_is_not_done_when_its_sender_is_gone(m: ManagerScript) -> None:
    m.commits_wait = True
    m.ask(topics.JOB_PURGE_ID, {"id": 1, "force": True})
    m.ask(topics.JOB_PURGE_ID, {"id": 2, "force": True}, by="shortlived")
    m.ask(topics.JOB_PURGE, {"num_limit": 0, "force": True}, by="shortlived")
    m.gone("shortlived")
    while m.commits:
        m.commit()
    assert left(m) == [2, 3, 4, 5, 6]


def test_purge_under_way_ends_and_its_sender_that_is_gone_is_not_answered(m: ManagerScript) -> None:
    """6.disconnect.2"""
    m.commits_wait = True
    m.ask(topics.JOB_PURGE_ID, {"id": 1, "force": True}, by="shortlived")
    m.ask(topics.JOB_PURGE, {"num_limit": 3, "force": True})
    m.gone("shortlived")
    assert not any("->" in line for line in m.commit())
    assert m.commit()[-1] == "job-manager.purge -> {'count': 1}"
    assert left(m) == [3, 4, 5, 6]
    m.ask(topics.JOB_PURGE, {"num_limit": 0, "force": True}, by="shortlived")
    m.gone("shortlived")
    assert m.refuse_commit(Errno.EIO, "disk: gone") == []


@pytest.mark.parametrize("jobid", [-1, 1 << 64])
def test_id_that_no_job_can_have_is_refused(m: ManagerScript, jobid: int) -> None:
    (line,) = m.ask(topics.JOB_PURGE_ID, {"id": jobid})
    assert line.startswith("job-manager.purge-id -> EPROTO")
    assert purge(m, num_limit=2) == 3


def test_purge_on_a_full_disk_is_refused_and_does_not_wait_for_room(m: ManagerScript) -> None:
    m.commits_wait = True
    m.ask(topics.JOB_PURGE, {"num_limit": 4, "force": True})
    assert m.commits[0].payload["wait"] is False
    assert m.refuse_commit(Errno.ENOSPC, "no room") == ["job-manager.purge -> ENOSPC no room"]
    m.configure(limited(inactive_num_limit=0))
    m.wait(2)
    assert m.refuse_commit(Errno.ENOSPC, "no room") == []


# --- by the configuration


def test_jobs_beyond_the_configured_number_go(m: ManagerScript) -> None:
    m.configure(limited(inactive_num_limit=4))
    assert left(m) == [1, 2, 3, 4, 5, 6]
    m.wait(2)
    assert left(m) == [2, 3, 4, 5, 6]
    m.raise_(6)
    m.wait(2)
    assert left(m) == [3, 4, 5, 6]
    m.configure(limited())
    assert not m.timers


def test_no_job_is_older_than_the_infinite(m: ManagerScript) -> None:
    m.configure(limited(inactive_age_limit="inf"))
    m.wait(2)
    assert left(m) == [1, 2, 3, 4, 5, 6]


def test_purge_by_a_limit_that_is_lifted_meanwhile_ends() -> None:
    m = ManagerScript(peers=True)
    m.submit(*range(1, 2 * PAGE_JOBS + 2))
    m.ask(topics.JOB_RAISEALL, {"severity": 0, "type": "cancel", "states": 0x7F})
    m.configure(limited(inactive_num_limit=0))
    m.commits_wait = True
    m.wait(2)
    m.configure(limited())
    while m.commits:
        m.commit()
    assert len(m.kvs.keys(ENDED)) == PAGE_JOBS + 1


def test_jobs_beyond_the_configured_age_go_after_a_restart_too(m: ManagerScript) -> None:
    again = m.restarted(config=limited(inactive_age_limit="30s"))
    again.now = m.now
    again.wait(2)
    assert left(again) == [4, 5, 6]
    again.wait(10)
    assert left(again) == [5, 6]


# --- ids


def test_id_of_a_purged_job_is_not_used_again(m: ManagerScript) -> None:
    """Nor after a restart: the greatest id is written down when the job goes."""
    m.raise_(6)
    purge(m, num_limit=0, force=True)
    assert m.kvs.value(MAX_JOBID_KEY) == "6"
    again = m.restarted(peers=True)
    assert again.ask(topics.JOB_GETINFO) == ["job-manager.getinfo -> {'max_jobid': 6}"]
    assert again.submit(6) == [
        "job-manager.submit -> {'errors': "
        "[[6, 'job id 6 was used before, by a job that was refused or purged']]}"
    ]


def test_purged_job_is_unknown(m: ManagerScript) -> None:
    for again in (m, m.restarted()):
        assert again.raise_(1) == ["job-manager.raise -> ENOENT job is inactive"]
    purge(m, num_limit=0, force=True)
    for again in (m, m.restarted()):
        assert again.raise_(1) == ["job-manager.raise -> ENOENT unknown job id"]


def test_history_is_without_purged_jobs(m: ManagerScript) -> None:
    def history(m: ManagerScript) -> list[int]:
        m.put(asked_by_guest(topics.JOB_HISTORY, {"slice": "[:]"}))
        jobs: list[int] = m.last(topics.JOB_HISTORY).payload["jobs"]
        return jobs

    assert history(m) == [6, 5, 4, 3, 2, 1]
    purge(m, num_limit=3, force=True)
    assert history(m) == [6, 5, 4, 3]
    assert history(m.restarted()) == [6, 5, 4, 3]


# --- what a start reads


def test_start_reads_active_jobs_alone(m: ManagerScript) -> None:
    again = m.restarted()
    looked_up = [each for each in again.kvs_asked if each.topic == topics.KVS_OWN.lookup_all]
    keys = [each for request in looked_up for each in request.payload["keys"]]
    assert [each for each in keys if each.startswith("job.")] == [
        f"{key(6)}.{part}" for part in ("eventlog", "jobspec", "R")
    ]
    assert again.stats()["inactive_jobs"] == 5


def test_job_that_is_over_and_still_in_the_index_of_active_jobs_is_put_right() -> None:
    """A crash between the commit of its clean event and that of the index."""
    m = ManagerScript(peers=True)
    m.submit(1)
    m.raise_(1)
    (ended,) = m.kvs.keys(ENDED)
    m.kvs.commit(["unlink", ended], ["put", f"{ACTIVE}.{1:016x}", ""])
    again = m.restarted()
    assert again.kvs.keys(ENDED) == [ended]
    assert again.kvs.keys(ACTIVE) == []
    assert again.stats()["inactive_jobs"] == 1


def many_ended(pages: int) -> ManagerScript:
    """A job manager with so many pages of finished jobs, and one more; its commits wait."""
    m = ManagerScript(peers=True)
    m.submit(*range(1, pages * PAGE_JOBS + 2))
    m.ask(topics.JOB_RAISEALL, {"severity": 0, "type": "cancel", "states": 0x7F})
    m.commits_wait = True
    return m


def answers(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(topics.JOB_PURGE) and "->" in line]


def test_purge_of_one_job_does_not_wait_for_the_end_of_a_long_one() -> None:
    m = many_ended(10)
    last = 10 * PAGE_JOBS + 1
    m.ask(topics.JOB_PURGE, {"num_limit": 0, "batch": 10_000, "force": True})
    m.ask(topics.JOB_PURGE_ID, {"id": last, "force": True})
    said = [answers(m.commit()) for _ in range(11)]
    assert said[:2] == [[], ["job-manager.purge-id -> {'count': 1}"]]
    assert said[2:] == [[]] * 8 + [["job-manager.purge -> {'count': 2000}"]]
    assert m.kvs.keys(ENDED) == []


def test_long_purges_take_turns_and_count_no_job_twice() -> None:
    m = many_ended(6)
    for by in ("one", "two"):
        asked = {"num_limit": 0, "batch": 3 * PAGE_JOBS, "force": True}
        m.ask(topics.JOB_PURGE, asked, by=by)
    said = [answers(m.commit()) for _ in range(6)]
    each = ["job-manager.purge -> {'count': 600}"]
    assert said == [[], [], [], [], each, each]
    assert len(m.kvs.keys(ENDED)) == 1


def test_long_purge_that_has_begun_goes_on_when_its_sender_is_gone_between_its_turns() -> None:
    m = many_ended(3)
    asked = {"num_limit": 0, "batch": 10_000, "force": True}
    m.ask(topics.JOB_PURGE, asked, by="shortlived")
    m.ask(topics.JOB_PURGE, asked | {"batch": 1}, by="other")
    m.commit()
    m.gone("shortlived")
    said = []
    while m.commits:
        said += answers(m.commit())
    assert said == ["job-manager.purge -> {'count': 1}"]
    assert m.kvs.keys(ENDED) == []
