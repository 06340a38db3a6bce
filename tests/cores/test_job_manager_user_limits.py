"""What one user may have of the job manager: active jobs, bytes of jobspecs, bytes of events."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from flux_trio.config import Config, JobManagerConfig, UserLimitsConfig
from flux_trio.cores.job_manager.jobs import ledger
from flux_trio.cores.job_manager.requests.user_limits import NOTE_BYTES_MAX, UPDATE_KEY_CHARS_MAX
from flux_trio.cores.pages import small_pages
from flux_trio.formats import format_eventlog
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, asked_by_guest
from tests.support.manager_script import ManagerScript


def script(**limits: Any) -> ManagerScript:
    """Job 1 is the guest's."""
    m = ManagerScript(peers=True, config=limited(**limits))
    m.submit(1, userid=GUEST_USERID)
    return m


def limited(**limits: Any) -> Config:
    return Config(job_manager=JobManagerConfig(user_limits=UserLimitsConfig(**limits)))


def answer(m: ManagerScript, request: Request) -> tuple[int, Any]:
    """The errnum and payload of the last answer to `request`."""
    m.put(request)
    answers = [each for each in m.messages if isinstance(each, Response)]
    (*_, last) = [each for each in answers if each.topic == request.topic]
    return last.errnum, last.payload


def refusals(m: ManagerScript, jobid: int, userid: int, **jobspec: Any) -> list[str]:
    """Why a job that is submitted is refused."""
    errnum, payload = answer(m, m.submission(jobid, userid=userid, **jobspec))
    assert errnum == 0
    return [reason for _, reason in payload["errors"]]


def ask(m: ManagerScript, topic: str, **payload: Any) -> tuple[int, Any]:
    return answer(m, asked_by_guest(topic, {"id": 1} | payload))


def test_number_of_active_jobs_of_a_guest_is_bounded_and_the_owners_is_not() -> None:
    m = script(jobs=2)
    assert refusals(m, 2, GUEST_USERID) == []
    text = f"user {GUEST_USERID} has 2 active jobs, the most that user-limits.jobs allows"
    assert refusals(m, 3, GUEST_USERID) == [text]
    assert refusals(m, 4, GUEST_USERID + 1) == []
    assert [refusals(m, 10 + n, OWNER_USERID) for n in range(5)] == [[]] * 5
    m.raise_(1)
    assert refusals(m, 5, GUEST_USERID) == []


def test_bytes_of_the_jobspecs_of_a_guest_are_bounded() -> None:
    m = script(jobspec_bytes=4000)
    big = {"attributes": {"system.note": "x" * 2000}}
    assert refusals(m, 2, GUEST_USERID, **big) == []
    (refusal,) = refusals(m, 3, GUEST_USERID, **big)
    assert "exceed user-limits.jobspec-bytes, 4000" in refusal
    m.raise_(2)
    assert refusals(m, 4, GUEST_USERID, **big) == []


ENVIRONMENT: dict[str, Any] = {"environment": {"X": "x" * 50_000}}


def test_environments_of_the_active_jobs_of_a_guest_are_bounded() -> None:
    m = script(stored_bytes=150_000)
    assert [refusals(m, jobid, GUEST_USERID, **ENVIRONMENT) for jobid in (2, 3)] == [[], []]
    (refusal,) = refusals(m, 4, GUEST_USERID, **ENVIRONMENT)
    assert re.fullmatch(
        r"the jobspec has 50\d\d\d bytes, attributes.system.environment 500\d\d of them: 11\d{4} "
        rf"bytes are stored of the active jobs of user {GUEST_USERID}, and with this one they "
        r"exceed user-limits.stored-bytes, 150000",
        refusal,
    )
    assert [refusals(m, 10 + n, OWNER_USERID, **ENVIRONMENT) for n in range(5)] == [[]] * 5
    assert refusals(m, 20, GUEST_USERID + 1, **ENVIRONMENT) == []
    m.raise_(2)
    assert refusals(m, 5, GUEST_USERID, **ENVIRONMENT) == []


def test_environments_count_after_a_restart() -> None:
    config = limited(stored_bytes=150_000)
    m = script(stored_bytes=150_000)
    assert [refusals(m, jobid, GUEST_USERID, **ENVIRONMENT) for jobid in (2, 3)] == [[], []]
    again = m.restarted(config=config)
    (refusal,) = refusals(again, 4, GUEST_USERID, **ENVIRONMENT)
    assert "exceed user-limits.stored-bytes" in refusal


def grew(m: ManagerScript, jobid: int, nbytes: int) -> None:
    """The kvs says how much is in the guest namespace of a job."""
    m.put(asked(topics.JOB_STORED, {"id": jobid, "nbytes": nbytes}, by="kvs"))


def test_guest_namespaces_of_the_active_jobs_of_a_guest_count() -> None:
    m = script(stored_bytes=150_000)
    assert refusals(m, 2, GUEST_USERID) == []
    grew(m, 2, 5000)
    grew(m, 2, 145_000)  # all of it, not more
    grew(m, 99, 1 << 30)  # it is over
    (refusal,) = refusals(m, 3, GUEST_USERID)
    assert "bytes are stored of the active jobs of user" in refusal
    assert refusals(m, 4, OWNER_USERID) == []
    grew(m, 4, 1 << 30)
    assert refusals(m, 5, OWNER_USERID) == []
    m.raise_(2)
    assert refusals(m, 6, GUEST_USERID) == []


def test_guest_namespaces_of_the_finished_jobs_of_a_guest_count() -> None:
    m = ManagerScript(peers=True, config=limited(finished_bytes=200_000))
    for jobid in (1, 2):
        assert refusals(m, jobid, GUEST_USERID) == []
        grew(m, jobid, 90_000)
        m.now += 1
        m.raise_(jobid)
    assert purged(m) == []
    end(m, 3)
    assert purged(m) == [1]


def room(m: ManagerScript, jobid: int | None, nbytes: int) -> tuple[int, Any]:
    """What the kvs is answered when a guest's namespace is about to hold so much."""
    return answer(m, asked(topics.JOB_STORE_ROOM, {"id": jobid, "nbytes": nbytes}, by="kvs"))


def test_jobspecs_and_guest_namespaces_are_one_account() -> None:
    m = script(stored_bytes=150_000)
    assert refusals(m, 2, GUEST_USERID, **ENVIRONMENT) == []
    assert room(m, 2, 50_000)[0] == 0
    assert room(m, 2, 60_000)[0] == 0  # all of it, not more
    errnum, text = room(m, 1, 50_000)
    assert errnum == Errno.ENOSPC
    assert re.fullmatch(
        rf"job-1: 11\d{{4}} bytes are stored of the active jobs of user {GUEST_USERID}, and with "
        "50000 more they exceed user-limits.stored-bytes, 150000",
        text,
    )
    (refusal,) = refusals(m, 3, GUEST_USERID, **ENVIRONMENT)
    assert "exceed user-limits.stored-bytes, 150000" in refusal
    assert room(m, 99, 1 << 30)[0] == 0  # it is over
    assert room(m, None, 1 << 30)[0] == 0  # the owner has made it
    m.raise_(2)
    assert room(m, 1, 50_000)[0] == 0


def test_another_configuration_is_another_bound_of_what_guests_store() -> None:
    m = script(stored_bytes=150_000)
    assert room(m, 1, 200_000)[0] == Errno.ENOSPC
    for most, errnum in ((300_000, 0), (150_000, Errno.ENOSPC), (0, 0)):
        config = limited(stored_bytes=most).to_json()
        assert answer(m, asked(topics.config_reload_of("job-manager"), {"config": config}))[0] == 0
        assert room(m, 1, 200_000)[0] == errnum


def low(m: ManagerScript, free: int) -> None:
    """The kvs says how much of its disk is free."""
    m.put(asked(topics.JOB_HINDRANCE, {"reason": "", "disk_free": free}, by="kvs"))


def test_guests_leave_a_part_of_the_disk_free() -> None:
    m = script(disk_free=1000)
    low(m, 999)
    text = "the disk has 999 bytes free: guests leave user-limits.disk-free, 1000"
    assert refusals(m, 2, GUEST_USERID) == [text]
    assert ask(m, topics.JOB_MEMO, memo={"a": 1}) == (Errno.ENOSPC, text)
    assert ask(m, topics.JOB_URGENCY, urgency=1) == (Errno.ENOSPC, text)
    update = {"updates": {"attributes.system.duration": 5}}
    assert ask(m, topics.JOB_UPDATE, **update) == (Errno.ENOSPC, text)
    assert room(m, 1, 1) == room(m, None, 1) == (Errno.ENOSPC, text)
    assert refusals(m, 3, OWNER_USERID) == []
    assert ask(m, topics.JOB_RAISE, type="cancel", severity=0)[0] == 0
    low(m, 1000)
    assert refusals(m, 4, GUEST_USERID) == []


def purged(m: ManagerScript) -> list[int]:
    told = [each for each in m.messages if getattr(each, "topic", "") == topics.JOB_PURGE_EVENT]
    return [jobid for each in told for jobid in each.payload["jobs"]]


def end(m: ManagerScript, *jobids: int, userid: int = GUEST_USERID) -> None:
    """Jobs that are submitted, and canceled a second later."""
    for jobid in jobids:
        assert refusals(m, jobid, userid, **ENVIRONMENT) == []
        m.now += 1
        m.raise_(jobid)


def test_oldest_finished_jobs_of_a_guest_are_purged_beyond_their_bytes() -> None:
    m = ManagerScript(peers=True, config=limited(finished_bytes=200_000))
    end(m, 1, 2, userid=OWNER_USERID)
    end(m, 3, 4)
    end(m, 5, userid=GUEST_USERID + 1)
    end(m, 6)
    assert purged(m) == []
    end(m, 7)
    assert purged(m) == [3]
    end(m, 8, 9, 10, userid=OWNER_USERID)
    end(m, 11)
    assert purged(m) == [3, 4]


def test_finished_jobs_of_a_guest_count_after_a_restart() -> None:
    config = limited(finished_bytes=200_000)
    m = ManagerScript(peers=True, config=config)
    end(m, 1, 2, 3)
    again = m.restarted(peers=True, config=config)
    again.now = m.now
    with small_pages(2):
        end(again, 4)
    assert purged(again) == [1]
    end(again, 5)
    assert purged(again) == [1, 2]


def test_job_that_is_purged_by_its_id_counts_no_more() -> None:
    m = ManagerScript(peers=True, config=limited(finished_bytes=200_000))
    end(m, 1, 2, 3)
    assert answer(m, asked(topics.JOB_PURGE_ID, {"id": 1, "force": True}))[0] == 0
    end(m, 4)
    assert purged(m) == [1]
    end(m, 5)
    assert purged(m) == [1, 2]


def test_costs_of_the_jobspecs_of_a_guest_are_bounded() -> None:
    m = script(jobspec_cost=1000)
    wanted = {"attributes": {"system.constraints": {"properties": ["ssd", "gpu"]}}}
    assert [refusals(m, jobid, GUEST_USERID, **wanted) for jobid in (2, 3)] == [[], []]
    assert refusals(m, 4, GUEST_USERID, **wanted) == [
        f"attributes.system.constraints costs 336: the jobspecs of the active jobs of user "
        f"{GUEST_USERID} cost 672, and with this one they exceed user-limits.jobspec-cost, 1000"
    ]
    assert refusals(m, 5, GUEST_USERID) == []  # it costs nothing
    assert refusals(m, 6, GUEST_USERID + 1, **wanted) == []
    assert [refusals(m, 10 + n, OWNER_USERID, **wanted) for n in range(5)] == [[]] * 5
    m.raise_(2)
    assert refusals(m, 7, GUEST_USERID, **wanted) == []


def test_jobspecs_of_inactive_jobs_are_forgotten_before_they_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "RECENT_BYTES_MAX", 50_000)
    m = script()
    for jobid in range(10, 20):
        noise = "".join(map(chr, random.Random(jobid).choices(range(33, 127), k=10_000)))
        assert refusals(m, jobid, GUEST_USERID, attributes={"system.note": noise}) == []
        m.raise_(jobid)
    known = [jobid for jobid in range(10, 20) if m.core.get(jobid) is not None]
    assert known == [16, 17, 18, 19]


def test_events_that_users_ask_for_are_bounded_in_bytes_for_each_job() -> None:
    m = script(eventlog_bytes=4000, memo_bytes=0)
    asked = [ask(m, topics.JOB_MEMO, memo={"key": "x" * 1000}) for _ in range(5)]
    assert [errnum for errnum, _ in asked] == [0, 0, 0, Errno.ENOSPC, Errno.ENOSPC]
    assert asked[-1][1].endswith("user-limits.eventlog-bytes is 4000")
    notes = {"severity": 3, "type": "note", "note": "x" * 1000}
    assert ask(m, topics.JOB_RAISE, **notes)[0] == Errno.ENOSPC
    every = notes | {"states": 0xFF, "userid": GUEST_USERID}
    assert ask(m, topics.JOB_RAISEALL, **every) == (0, {"count": 0, "errors": 1})
    for n in range(20):
        ask(m, topics.JOB_URGENCY, urgency=n % 2)
        ask(m, topics.JOB_UPDATE, updates={"attributes.system.duration": 5.0 + n})
    asked_for = {"memo", "urgency", "jobspec-update", "exception"}
    lines = format_eventlog([event for event in m.log(1) if event.name in asked_for])
    assert len(lines) <= 4000
    by_owner = Request(topics.JOB_RAISE, {"id": 1} | notes, 1, userid=OWNER_USERID, rolemask=1)
    assert answer(m, by_owner)[0] == 0  # who has room that no guest takes
    assert ask(m, topics.JOB_RAISE, severity=0, type="cancel")[0] == 0
    assert not m.job(1).is_active


def test_bound_on_events_holds_over_a_restart_of_the_job_manager() -> None:
    m = script(memo_bytes=0)
    for _ in range(20):
        assert ask(m, topics.JOB_MEMO, memo={"key": "x" * 50_000})[0] == 0
    again = ManagerScript(peers=True, kvs=m.kvs)
    assert (
        answer(again, asked_by_guest(topics.JOB_MEMO, {"id": 1, "memo": {"key": "x" * 50_000}}))[0]
        == Errno.ENOSPC
    )


def test_memos_of_a_job_are_bounded_together() -> None:
    m = script(memo_bytes=2000)
    for name in ("a", "b", "a"):
        assert ask(m, topics.JOB_MEMO, memo={name: "x" * 900})[0] == 0
    errnum, text = ask(m, topics.JOB_MEMO, memo={"c": "x" * 900})
    assert errnum == Errno.ENOSPC
    assert text.endswith("user-limits.memo-bytes is 2000")
    assert ask(m, topics.JOB_MEMO, memo={"a": None, "c": "x" * 900})[0] == 0


def test_memos_of_the_jobs_of_a_guest_are_bounded_together() -> None:
    m = script(memo_bytes_sum=2000)
    m.submit(2, userid=GUEST_USERID)
    m.submit(3, userid=OWNER_USERID)
    assert ask(m, topics.JOB_MEMO, memo={"a": "x" * 900})[0] == 0
    assert ask(m, topics.JOB_MEMO, id=2, memo={"a": "x" * 900})[0] == 0
    errnum, text = ask(m, topics.JOB_MEMO, id=2, memo={"b": "x" * 900})
    assert errnum == Errno.ENOSPC
    assert text.endswith("user-limits.memo-bytes-sum is 2000")
    assert answer(m, asked(topics.JOB_MEMO, {"id": 3, "memo": {"a": "x" * 9000}}))[0] == 0
    again = ManagerScript(peers=True, kvs=m.kvs, config=limited(memo_bytes_sum=2000))
    for life in (m, again):
        assert ask(life, topics.JOB_MEMO, id=2, memo={"b": "x" * 900})[0] == Errno.ENOSPC
    assert ask(again, topics.JOB_MEMO, id=2, memo={"a": None})[0] == 0
    assert ask(again, topics.JOB_MEMO, id=2, memo={"b": "x" * 900})[0] == 0
    again.raise_(1)
    assert ask(again, topics.JOB_MEMO, id=2, memo={"c": "x" * 900})[0] == 0


def test_memos_that_wait_for_a_hook_are_counted_too() -> None:
    m = script(memo_bytes=2000, memo_bytes_sum=2800)
    m.plugins.waiting.add("job.state.depend")
    m.submit(2, userid=GUEST_USERID)
    assert "job.state.depend" in m.plugins.asked
    memos = [asked_by_guest(topics.JOB_MEMO, {"id": 2, "memo": {key: "x" * 900}}) for key in "abc"]
    assert m.put(*memos[:2]) == []
    assert answer(m, memos[2])[0] == Errno.ENOSPC
    assert len([each for each in m.answer("job.state.depend") if "memo" in each]) == 2
    assert [ask(m, topics.JOB_MEMO, memo={key: "x" * 900})[0] for key in "ab"] == [0, Errno.ENOSPC]


def test_events_that_users_ask_for_are_bounded_for_all_jobs_of_a_guest() -> None:
    m = script(eventlog_bytes_sum=3000)
    m.submit(2, userid=GUEST_USERID)
    notes = {"severity": 3, "type": "note", "note": "x" * 1000}
    assert [ask(m, topics.JOB_RAISE, id=1 + n % 2, **notes)[0] for n in range(3)] == [
        0,
        0,
        Errno.ENOSPC,
    ]
    assert answer(m, asked(topics.JOB_RAISE, {"id": 1} | notes))[0] == 0
    assert ask(m, topics.JOB_RAISE, id=2, severity=0, type="cancel")[0] == 0
    assert ask(m, topics.JOB_RAISE, **notes)[0] == Errno.ENOSPC


@pytest.mark.parametrize("what", ["type", "note"])
def test_type_and_note_of_an_exception_are_bounded_in_bytes(what: str) -> None:
    m = script()
    asked = {"severity": 0, "type": "cancel", what: "é" * NOTE_BYTES_MAX}
    text = f"exception {what}: expected at most {NOTE_BYTES_MAX} bytes, got {2 * NOTE_BYTES_MAX}"
    assert ask(m, topics.JOB_RAISE, **asked) == (Errno.EINVAL, text)


def test_a_key_of_an_update_is_bounded() -> None:
    updates = {"attributes." + "x" * UPDATE_KEY_CHARS_MAX: 1}
    errnum, text = ask(script(), topics.JOB_UPDATE, updates=updates)
    assert errnum == Errno.EINVAL
    assert f"keys of at most {UPDATE_KEY_CHARS_MAX} characters" in text


def test_room_is_told_for_several_jobs_as_if_they_were_submitted_in_order() -> None:
    m = script(jobs=2)
    two = [{"size": 10, "stored": 10, "costs": {}}] * 2
    request = asked(topics.JOB_SUBMIT_ROOM, {"userid": GUEST_USERID, "jobspecs": two})
    _, payload = answer(m, request)
    first, second = payload["refusals"]
    assert first is None
    assert "user-limits.jobs" in second
    assert answer(m, m.submission(2, userid=GUEST_USERID)) == (0, {"errors": []})
    _, payload = answer(m, m.submission(3, userid=GUEST_USERID))
    assert payload["full"] == [GUEST_USERID]
