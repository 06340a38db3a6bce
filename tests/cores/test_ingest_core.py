"""The ingest core as scripts: submissions in, commits and answers out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from flux_trio.cores.ingest.core import AGAIN_S, BATCH_JOBS_MAX
from flux_trio.cores.ingest.submissions import TEXT_BYTES_MAX
from flux_trio.cores.job_index import active_key, refusal_ops
from flux_trio.cores.turns import ClearTimer, Log, SetTimer, TimerFired
from flux_trio.formats import Jobspec, format_fluid, parse_event
from flux_trio.formats.signed_jobspec import sign
from flux_trio.messages import Errno, Flag, Request, Response, topics
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, gone, service_back
from tests.support.ingest_script import (
    JOBSPEC,
    NOW,
    Script,
    guests,
    ids_of,
    stored,
    submission,
    told,
)

# --- a batch


def test_turn_is_one_commit_then_one_submit_then_the_answers() -> None:
    """16.schema.2, 27.alloc.8: jobspec and eventlog are written before the job-manager learns of
    the job, so that the jobspec is there when sched.alloc comes.
    """
    script = Script()
    (commit,) = script(submission(1), submission(2, by="bob"), submission(3, urgency=20))
    assert [op[0] for op in stored(commit)] == ["append", "append", "append"] * 3
    (submit,) = script.answer(commit, {})
    assert submit.topic == "job-manager.submit"
    first, second, third = ids_of(submit)
    assert told(script.answer(submit, {"errors": []})) == [
        ("alice", 1, 0, {"id": first}),
        ("bob", 2, 0, {"id": second}),
        ("alice", 3, 0, {"id": third}),
    ]


def test_submitter_that_has_gone_is_not_answered_and_its_job_stays() -> None:
    """6.disconnect.2"""
    script = Script()
    (commit,) = script(submission(1), submission(2, by="bob"))
    script(gone(topics.JOB_INGEST, "alice"))
    (submit,) = script.answer(commit, {})
    _, second = ids_of(submit)
    assert told(script.answer(submit, {"errors": []})) == [("bob", 2, 0, {"id": second})]


def test_submitter_that_goes_while_its_limit_is_asked_about_is_not_answered() -> None:
    """6.disconnect.2"""
    script = Script()
    (commit,) = script(submission(1))
    (submit,) = script.answer(commit, {})
    (jobid,) = ids_of(submit)
    _, *_ = script.answer(submit, {"errors": [[jobid, "too many"]], "full": [OWNER_USERID]})
    (room,) = script(submission(2), submission(3, by="bob"))
    script(gone(topics.JOB_INGEST, "alice"))
    assert told(script.answer(room, {"refusals": ["too many", "too many"]})) == [
        ("bob", 3, Errno.EINVAL, "too many")
    ]


def test_job_has_a_directory_with_jobspec_and_eventlog() -> None:
    "16.schema.1: job.<jobid>, in the dothex form of the FLUID."
    script = Script()
    (commit,) = script(submission())
    (submit,) = script.answer(commit, {})
    (jobid,) = ids_of(submit)
    directory = format_fluid(jobid, "kvs")
    (put, place, jobspec), (append, log, _), index = stored(commit)
    assert (put, place) == ("append", f"{directory}.jobspec")
    assert (append, log) == ("append", f"{directory}.eventlog")
    assert json.loads(jobspec) == JOBSPEC
    assert index == ["append", active_key(jobid), ""]


@pytest.mark.parametrize(
    ("request_", "userid", "urgency", "flags"),
    [
        (submission(), OWNER_USERID, 16, 0),
        (submission(urgency=31, flags=2), OWNER_USERID, 31, 2),
        (guests(urgency=0, flags=1), GUEST_USERID, 0, 1),
    ],
)
def test_ingest_logs_one_event_submit_with_who_asked(
    request_: Request, userid: int, urgency: int, flags: int
) -> None:
    "16.schema.3; 21.events.3, 21.events.4, 21.events.5, 21.events.6, 21.events.7."
    script = Script()
    (commit,) = script(request_)
    event = parse_event(stored(commit)[1][2])
    assert (event.name, event.timestamp) == ("submit", NOW)
    assert event.context == {"userid": userid, "urgency": urgency, "flags": flags, "version": 1}
    (submit,) = script.answer(commit, {})
    assert isinstance(submit.payload, dict)
    (job,) = submit.payload["jobs"]
    assert job == {
        "id": job["id"],
        "userid": userid,
        "urgency": urgency,
        "t_submit": NOW,
        "flags": flags,
        "jobspec": JOBSPEC,
    }


def test_what_comes_while_a_batch_is_under_way_is_the_next_batch() -> None:
    script = Script()
    (first,) = script(submission(1))
    (second,) = script(submission(2))
    (submit_second,) = script.answer(second, {})
    (submit_first,) = script.answer(first, {})
    assert [tag for _, tag, _, _ in told(script.answer(submit_first, {"errors": []}))] == [1]
    assert [tag for _, tag, _, _ in told(script.answer(submit_second, {"errors": []}))] == [2]


def test_batches_are_bounded() -> None:
    script = Script()
    commits = script(*(submission(tag) for tag in range(1, BATCH_JOBS_MAX + 2)))
    assert [len(stored(commit)) // 3 for commit in commits] == [BATCH_JOBS_MAX, 1]


def test_submitter_that_wants_no_answer_gets_none() -> None:
    script = Script()
    quiet = Request("job-ingest.submit", {"jobspec": JOBSPEC}, 1, int(Flag.NORESPONSE))
    assert script.submit(quiet) == []


# --- refusals


def broken(**changes: Any) -> dict[str, Any]:
    return {**JOBSPEC, **changes}


@pytest.mark.parametrize(
    ("request_", "errnum", "text"),
    [
        (
            submission(jobspec=broken(resources=[])),
            Errno.EINVAL,
            "jobspec.resources: expected at least one resource, got []",
        ),
        (
            submission(jobspec=broken(version=2)),
            Errno.EINVAL,
            "jobspec.version: expected the integer 1, got 2",
        ),
        (
            submission(jobspec=broken(attributes={"system": {"cwd": "/caf\udce9"}})),
            Errno.EINVAL,
            r"jobspec.attributes.system.cwd: expected text in UTF-8, got '/caf\xe9'",
        ),
        (
            submission(jobspec="true"),
            Errno.EPROTO,
            "job-ingest.submit: payload: Expected `object`, got `str` - at `$.jobspec`",
        ),
        (
            asked("job-ingest.submit"),
            Errno.EPROTO,
            "job-ingest.submit: payload: expected jobspec or J",
        ),
        (
            submission(urgency=32),
            Errno.EPROTO,
            "job-ingest.submit: payload: Expected `int` <= 31 - at `$.urgency`",
        ),
        (
            submission(urgency=-1),
            Errno.EPROTO,
            "job-ingest.submit: payload: Expected `int` >= 0 - at `$.urgency`",
        ),
        (guests(urgency=17), Errno.EINVAL, "only the instance owner can submit with urgency >16"),
        (asked("job-ingest.x"), Errno.ENOSYS, "no method x in service job-ingest"),
    ],
)
def test_refusal_is_immediate_and_stores_nothing(request_: Request, errnum: int, text: str) -> None:
    "14.submit.1: malformed jobspec is rejected immediately at submission."
    (answer,) = Script()(request_)
    assert isinstance(answer, Response)
    assert (answer.errnum, answer.payload) == (errnum, text)


def test_unknown_system_attributes_are_no_reason_to_refuse() -> None:
    """14.attributes.1"""
    system = JOBSPEC["attributes"]["system"] | {"favourite-colour": "blue"}
    (commit,) = Script()(submission(jobspec=broken(attributes={"system": system})))
    assert commit.topic == "kvs.commit"


@pytest.mark.parametrize("request_", [guests(urgency=16), submission(urgency=31)])
def test_greatest_urgency_that_one_may_ask_for(request_: Request) -> None:
    (answer,) = Script().submit(request_)
    assert answer.errnum == 0


def test_refused_one_does_not_hold_up_the_others() -> None:
    script = Script()
    refusal, commit = script(submission(1, jobspec={}), submission(2))
    assert (refusal.matchtag, refusal.errnum) == (1, Errno.EINVAL)
    assert len(stored(commit)) == 3


def test_failed_commit_is_an_error_to_each_and_leaves_nothing() -> None:
    script = Script()
    (commit,) = script(submission(1), submission(2, by="bob"))
    assert told(script.answer(commit, "disk: full", Errno.ENOSPC)) == [
        ("alice", 1, Errno.ENOSPC, "cannot store the job: disk: full"),
        ("bob", 2, Errno.ENOSPC, "cannot store the job: disk: full"),
    ]
    (commit,) = script(submission(3))
    assert len(stored(commit)) == 3


def test_job_that_the_job_manager_refuses_is_an_error_and_the_others_are_in() -> None:
    """14.submit.2: the job manager has removed it."""
    script = Script()
    (commit,) = script(submission(1), submission(2), submission(3))
    (submit,) = script.answer(commit, {})
    _, refused, _ = ids_of(submit)
    answers = script.answer(submit, {"errors": [[refused, "too big for you"]]})
    assert [(tag, errnum) for _, tag, errnum, _ in told(answers)] == [
        (1, 0),
        (2, Errno.EINVAL),
        (3, 0),
    ]
    assert answers[1].payload == "too big for you"


def test_batch_that_the_job_manager_fails_is_removed() -> None:
    script = Script()
    (commit,) = script(submission(1), submission(2))
    (submit,) = script.answer(commit, {})
    *answers, unlink = script.answer(submit, "no space left", Errno.ENOSPC)
    text = "cannot submit the job: no space left"
    assert told(answers) == [("alice", n, Errno.ENOSPC, text) for n in (1, 2)]
    assert stored(unlink) == [op for jobid in ids_of(submit) for op in refusal_ops(jobid)]
    assert not unlink.wants_response


# --- a job manager that does not answer


def test_batch_that_a_job_manager_has_not_answered_is_submitted_to_the_next_one() -> None:
    """The next one may have read the jobs back and may run them, so they are not refused."""
    script = Script()
    (commit,) = script(submission(1), submission(2, by="bob"), submission(3))
    (submit,) = script.answer(commit, {})
    why = "job-manager ended: killed"
    assert script.answer(submit, why, Errno.ENOSYS) == []
    assert told(script(submission(4))) == [("alice", 4, Errno.ENOSYS, why)]
    assert script(gone(topics.JOB_INGEST, "bob")) == []
    assert script(service_back("kvs")) == []
    (again,) = script(service_back("job-manager"))
    assert (again.topic, again.payload) == (submit.topic, submit.payload)
    first, second, third = ids_of(again)
    answers = script.answer(again, {"errors": [[third, "too big"]]})
    assert told(answers) == [("alice", 1, 0, {"id": first}), ("alice", 3, Errno.EINVAL, "too big")]
    assert script(service_back("job-manager")) == []
    (commit,) = script(submission(5))
    assert ids_of(*script.answer(commit, {}))[0] > third > second


def test_batch_that_a_full_job_manager_has_not_taken_is_submitted_again_later() -> None:
    script = Script()
    (commit,) = script(submission(1))
    (submit,) = script.answer(commit, {})
    (timer,) = script.answer(submit, "try again later", Errno.EAGAIN)
    assert timer == SetTimer("again", NOW + AGAIN_S)
    assert told(script(submission(2))) == [("alice", 2, Errno.EAGAIN, "try again later")]
    (again,) = script(TimerFired("again"))
    assert (again.topic, again.payload) == (submit.topic, submit.payload)
    assert script.answer(again, "try again later", Errno.EAGAIN) == [timer]
    clear, again = script(service_back("job-manager"))  # it has ended meanwhile
    assert clear == ClearTimer("again")
    assert again.payload == submit.payload
    assert told(script.answer(again, {"errors": []})) == [
        ("alice", 1, 0, {"id": ids_of(submit)[0]})
    ]


def test_timer_that_fires_as_the_job_manager_comes_back_asks_no_second_time() -> None:
    script = Script()
    (commit,) = script(submission(1))
    (submit,) = script.answer(commit, {})
    script.answer(submit, "try again later", Errno.EAGAIN)
    clear, again = script(service_back("job-manager"), TimerFired("again"))
    assert clear == ClearTimer("again")
    assert again.payload == submit.payload


def test_last_id_is_asked_for_again_when_the_inbox_of_the_job_manager_was_full() -> None:
    script = Script(max_jobid=None)
    (timer,) = script.answer(script.getinfo, "try again later", Errno.EAGAIN)
    assert timer == SetTimer("again", NOW + AGAIN_S)
    (getinfo,) = script(TimerFired("again"))
    assert script(TimerFired("again")) == []
    assert script.answer(getinfo, {"max_jobid": 0}) == []
    assert script.submit(submission(1))[0].errnum == 0


def test_batches_without_an_answer_are_counted() -> None:
    script = Script()
    (commit,) = script(submission(1))
    (submit,) = script.answer(commit, {})
    script.answer(submit, "job-manager ended", Errno.ENOSYS)
    (stats,) = script(asked(topics.stats_of(topics.JOB_INGEST), None))
    assert stats.payload["submitting"] == 1


# --- the rest


def test_answer_to_nothing_that_was_asked_is_logged() -> None:
    (action,) = Script()(Response("kvs.commit", {}, 0, 99))
    assert action == Log(4, "kvs.commit: an answer to nothing that was asked")


@pytest.mark.parametrize(("path", "most"), TEXT_BYTES_MAX.items())
def test_texts_that_lists_show_have_a_length_in_bytes(path: str, most: int) -> None:
    def jobspec(text: str) -> Any:
        return Jobspec.from_command(("true",), attributes={path: text}).to_json()

    ingest = Script()
    fits = "/" + "ö" * ((most - 1) // 2)
    assert told(ingest.submit(submission(jobspec=jobspec(fits))))[0][2] == 0
    ((_, _, errnum, text),) = told(ingest(submission(jobspec=jobspec(fits + "ö"))))
    assert errnum == Errno.EINVAL
    assert f"attributes.{path}: expected at most {most} bytes" in text


def full_user(script: Script) -> None:
    """The job manager refuses a job of a guest who has met a limit."""
    (commit,) = script(guests())
    (submit,) = script.answer(commit, {})
    (jobid,) = ids_of(submit)
    full = {"errors": [[jobid, "20 jobs, the most"]], "full": [GUEST_USERID]}
    script.answer(submit, full)


def test_job_beyond_a_limit_is_refused_before_it_is_stored_once_its_user_has_met_it() -> None:
    script = Script()
    full_user(script)
    (room,) = script(guests())
    size = len(json.dumps(JOBSPEC, separators=(",", ":")))
    assert (room.topic, room.payload) == (
        "job-manager.submit-room",
        {"userid": GUEST_USERID, "jobspecs": [{"size": size, "stored": size, "costs": {}}]},
    )
    (answer,) = script.answer(room, {"refusals": ["20 jobs, the most"]})
    assert (answer.errnum, answer.payload) == (Errno.EINVAL, "20 jobs, the most")
    (commit,) = script(submission())  # others are not asked about
    assert commit.topic == "kvs.commit"


def test_jobs_that_have_room_are_stored_and_no_more_is_asked() -> None:
    script = Script()
    full_user(script)
    (room,) = script(guests(), guests(urgency=3))
    answer, commit = script.answer(room, {"refusals": [None, "full"]})
    assert answer.payload == "full"
    assert len(stored(commit)) == 3
    (submit,) = script.answer(commit, {})
    assert told(script.answer(submit, {"errors": []}))[0][2] == 0
    (room,) = script(guests())  # as long as one was refused
    (commit,) = script.answer(room, {"refusals": [None]})
    assert len(stored(commit)) == 3
    (commit,) = script(guests())
    assert commit.topic == "kvs.commit"


def test_jobs_to_be_checked_are_answered_when_the_job_manager_goes() -> None:
    script = Script()
    full_user(script)
    (room,) = script(guests())
    (answer,) = script.answer(room, "job-manager is gone", Errno.ENOSYS)
    assert (answer.errnum, answer.payload) == (
        Errno.ENOSYS,
        "cannot submit the job: job-manager is gone",
    )


def test_a_signed_jobspec_is_taken_from_the_user_who_has_signed_it() -> None:
    script = Script()
    text = msgspec.json.encode(JOBSPEC)
    request = asked("job-ingest.submit", {"J": sign(OWNER_USERID, text)})
    (commit,) = script(request)
    assert json.loads(stored(commit)[0][2]) == JOBSPEC

    other = asked("job-ingest.submit", {"J": sign(OWNER_USERID + 1, text)})
    ((_, _, errnum, said),) = told(script(other))
    assert (errnum, said) == (Errno.EPERM, f"signer={OWNER_USERID + 1} != requestor={OWNER_USERID}")


@pytest.mark.parametrize(
    ("payload", "errnum", "text"),
    [
        ({}, Errno.EPROTO, "job-ingest.submit: payload: expected jobspec or J"),
        ({"J": "x"}, Errno.EINVAL, "J: expected 3 parts that dots separate"),
        ({"J": sign(OWNER_USERID, b"[]")}, Errno.EINVAL, ""),
        ({"J": sign(OWNER_USERID, b"{")}, Errno.EINVAL, ""),
    ],
)
def test_a_submission_without_a_readable_jobspec_is_refused(
    payload: dict[str, Any], errnum: int, text: str
) -> None:
    ((_, _, got, said),) = told(Script()(asked("job-ingest.submit", payload)))
    assert got == errnum
    assert said.startswith(text)
