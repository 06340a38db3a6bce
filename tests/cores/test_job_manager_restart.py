"""A new job manager over what an earlier one left: all state from the eventlogs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.config import Config, JobManagerConfig, UserLimitsConfig
from flux_trio.cores.job_index import active_key, submit_op
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs_calls import READ_CHARS_MAX
from flux_trio.cores.turns import Exit
from flux_trio.formats import format_eventlog
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import VALIDATE, HookAnswer, JobState
from flux_trio.services.at_once import PluginTurns
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked
from tests.support.eventlogs import event
from tests.support.instant_kvs import InstantKvs
from tests.support.manager_script import (
    PRIORITIZE,
    START,
    USERID,
    ManagerScript,
    ScriptedPlugins,
    key,
)

SUBMITTED = "job-manager.submit -> {'errors': []}"


def test_pending_job_gets_flux_restart_and_is_asked_for_again(m: ManagerScript) -> None:
    """16.schema.5, 21.events.19, 21.states.9: in SCHED it goes by PRIORITY."""
    m.submit(1)
    m.alloc(1)
    m.submit(2)
    again = m.restarted()
    assert again.names(2)[-3:] == ["priority", "flux-restart", "priority"]
    assert again.attach_sched()[0] == "job-manager.sched-ready -> {'count': 1}"
    assert again.last("sched.alloc").payload["id"] == 2


def test_environments_of_jobs_are_read_in_slices_and_not_kept(m: ManagerScript) -> None:
    for jobid in range(1, 9):
        m.submit(jobid, environment={"X": "x" * (READ_CHARS_MAX // 3)})
    again = m.restarted()
    lookups = [each for each in again.kvs_asked if each.topic == topics.KVS_OWN.lookup_all]
    assert [len(each.payload["keys"]) for each in lookups[-3:]] == [24, 16, 7]
    assert all(each.payload["chars_max"] == READ_CHARS_MAX for each in lookups[-3:])
    assert {again.state(jobid) for jobid in range(1, 9)} == {JobState.SCHED}
    kept = again.core._parts.ledger.jobs.values()
    assert [each.kept_jobspec.nbytes < 1000 for each in kept] == [True] * 8


def test_jobs_that_wait_or_run_get_no_flux_restart() -> None:
    m = ManagerScript(hooks=["job.state.depend"], peers=True)
    m.submit(1)
    again = m.restarted(hooks=["job.state.depend"])
    assert again.names(1)[-1] == "validate"
    assert again.answer("job.state.depend") == []
    assert again.state(1) == JobState.SCHED

    m = ManagerScript(peers=True)
    m.running(1)
    assert m.restarted().names(1)[-1] == "start"


def test_job_that_waited_for_its_priority_waits_again() -> None:
    m = ManagerScript(hooks=[PRIORITIZE], peers=True)
    m.submit(1)
    again = m.restarted(peers=True)
    assert again.names(1)[-1] == "priority"


def test_resources_are_those_the_eventlogs_tell_of(m: ManagerScript) -> None:
    """16.schema.8, 27.hello.4: alloc without free."""
    m.running(1)
    m.running(2)
    m.execute(2, "finish", "release final")
    m.running(3)
    m.execute(3, "finish", "release final")
    m.freed(3)
    m.submit(4)
    m.store_r(4, {0: [3]})  # R alone is no allocation
    again = m.restarted()
    job = {"priority": 16, "userid": USERID, "t_submit": START}
    assert again.hello() == [
        f"job-manager.sched-hello -> {dict(id=1, **job)}",
        f"job-manager.sched-hello -> {dict(id=2, **job)}",
        "job-manager.sched-hello -> ENODATA",
    ]
    assert again.ready() == [
        "job-manager.sched-ready -> {'count': 1}",
        "sched.free 2",
        "sched.alloc 4",
    ]


def test_running_job_is_found_again_with_reattach(m: ManagerScript) -> None:
    """32.start.9, 32.hello.8: true exactly with start and no finish."""
    m.running(1)
    m.submit(2)
    m.alloc(2)
    again = m.restarted()
    assert again.attach_exec() == [
        "job-manager.exec-hello -> {}",
        "job-exec.start 1 reattach",
        "job-exec.start 2",
    ]


def test_job_in_cleanup_is_asked_about_unless_it_finished(m: ManagerScript) -> None:
    """16.schema.5, readings: Final release without finish.

    The service dies while a job is in CLEANUP.
    """
    m.running(1)
    m.raise_(1)
    m.running(2)
    m.execute(2, "finish")
    again = m.restarted()
    assert again.names(2)[-1] == "release"
    assert again.attach_exec()[1:] == ["job-exec.start 1 reattach"]
    again.attach_sched()
    again.execute(1, "finish 15", "release final")
    assert again.last("sched.free").payload == {"id": 1}


def test_inactive_job_stays_known(m: ManagerScript) -> None:
    m.submit(1)
    m.raise_(1)
    again = m.restarted()
    assert again.raise_(1) == ["job-manager.raise -> ENOENT job is inactive"]
    assert again.stats()["states"]["inactive"] == 1
    assert again.ask("job-manager.getinfo") == ["job-manager.getinfo -> {'max_jobid': 1}"]


def test_ids_go_on_behind_the_greatest_of_all_jobs(m: ManagerScript) -> None:
    m.submit(1, 7)
    assert m.ask("job-manager.getinfo") == ["job-manager.getinfo -> {'max_jobid': 7}"]
    again = m.restarted()
    assert again.ask("job-manager.getinfo") == ["job-manager.getinfo -> {'max_jobid': 7}"]
    again.raise_(7)
    assert again.restarted().ask("job-manager.getinfo") == [
        "job-manager.getinfo -> {'max_jobid': 7}"
    ]


def test_greatest_id_is_that_of_a_stored_job_that_was_never_submitted(m: ManagerScript) -> None:
    """A job-ingest that ended after its commit: the next one is told of its last id."""
    m.submit(1)
    m.kvs.commit(["put", f"{key(9)}.jobspec", "{}"])
    assert m.ask("job-manager.getinfo") == ["job-manager.getinfo -> {'max_jobid': 9}"]


def test_cancel_of_an_earlier_life_is_finished(m: ManagerScript) -> None:
    """A crash between exception and clean."""
    m.submit(1)
    exception = event("exception", type="cancel", severity=0, note="")
    m.kvs.commit(["append", f"{key(1)}.eventlog", format_eventlog([exception])])
    assert m.restarted().state(1) == JobState.INACTIVE


def test_updates_of_the_jobspec_are_kept(m: ManagerScript) -> None:
    """33.defaults.9, 21.events.8: original and replay give the current jobspec."""
    m.submit(1)
    m.post(1, "jobspec-update", **{"attributes.system.duration": 60})
    again = m.restarted(peers=True)
    system = again.last("sched.alloc").payload["jobspec"]["attributes"]["system"]
    assert system["duration"] == 60
    assert "environment" not in system


def test_job_that_was_stored_but_not_answered_is_validated(m: ManagerScript) -> None:
    m.submission(1)  # stored by ingest, never submitted
    assert m.restarted(peers=True).last("sched.alloc").payload["id"] == 1


def test_job_that_is_read_back_before_ingest_submits_it_is_accepted(m: ManagerScript) -> None:
    """Ingest has stored it, and submits it only when everything is read back."""
    submission = m.submission(1)
    again = m.restarted(peers=True)
    assert again.put(submission) == [SUBMITTED]
    assert again.state(1) == JobState.SCHED
    assert again.names(1).count("submit") == 1


def test_jobs_that_have_gone_on_are_accepted_when_ingest_submits_them_again(
    m: ManagerScript,
) -> None:
    """The answer to the first submit was lost with its job manager."""
    submission = m.submission(1, 2)
    m.put(submission)
    m.alloc(1)
    m.raise_(2)
    again = m.restarted(peers=True)
    assert (again.state(1), again.state(2)) == (JobState.RUN, JobState.INACTIVE)
    assert again.put(submission) == [SUBMITTED]
    assert again.state(1) == JobState.RUN


def test_job_that_is_submitted_again_while_it_is_validated_is_answered_after_that(
    m: ManagerScript,
) -> None:
    submission = m.submission(1)
    again = m.restarted(hooks=[VALIDATE])
    assert again.put(submission) == []
    assert again.answer(VALIDATE) == [SUBMITTED]
    assert again.state(1) == JobState.SCHED
    again = m.restarted()
    assert again.put(submission) == [SUBMITTED]


def test_job_that_is_refused_at_restart_is_refused_when_ingest_submits_it_again(
    m: ManagerScript,
) -> None:
    """Also when it is submitted before the plugin has answered. It never runs."""
    refused = "job-manager.submit -> {'errors': [[1, 'no']]}"
    submission = m.submission(1)
    again = m.restarted(hooks=[VALIDATE])
    assert again.put(submission) == []
    assert again.answer(VALIDATE, reject="no") == [refused]
    assert again.put(submission) == [refused]
    assert again.names(1) == []


REFUSED: dict[str, dict[str, Any]] = {
    "by a plugin": {"answers": {VALIDATE: HookAnswer(reject="no")}},
    "by a limit": {
        "config": Config(job_manager=JobManagerConfig(user_limits=UserLimitsConfig(jobs=1)))
    },
}


@pytest.mark.parametrize("how", REFUSED.values(), ids=REFUSED)
def test_refusal_stands_when_the_job_manager_ends_before_ingest_has_the_answer(
    how: dict[str, Any],
) -> None:
    """33.validation.4, 21.events.13: the next one does not find the job, and refuses it again."""
    m = ManagerScript()
    m.submit(1, userid=GUEST_USERID)
    m = m.restarted(**how)
    submission = m.submission(2, userid=GUEST_USERID)
    (refused,) = m.put(submission)
    assert "'errors': [[2, " in refused
    assert m.kvs.keys(key(2)) == []
    assert m.kvs.value(active_key(2)) is None
    for _ in range(2):
        m = m.restarted(peers=True)
        assert m.put(submission) == [
            "job-manager.submit -> {'errors': "
            "[[2, 'job id 2 was used before, by a job that was refused or purged']]}"
        ]
        assert m.names(2) == []
        assert m.state(1) == JobState.SCHED


def test_refusal_is_answered_when_the_job_is_removed() -> None:
    """21.events.13: nobody is told of a refusal that the next job manager would not know of."""
    m = ManagerScript(hooks=[VALIDATE], commits_wait=True)
    assert m.submit(1) == ["ask job.validate 1"]
    (commit,) = m.answer(VALIDATE, reject="no")
    assert commit == "commit 1: unlink"
    assert m.kvs.value(active_key(1)) == ""
    assert m.commit() == ["job-manager.submit -> {'errors': [[1, 'no']]}"]
    assert m.kvs.value(active_key(1)) is None


def test_submission_without_a_refusal_costs_one_append_for_each_job() -> None:
    m = ManagerScript(commits_wait=True)
    m.submit(1, 2)
    (commit,) = m.commits
    assert isinstance(commit.payload, dict)
    assert [op[:2] for op in commit.payload["ops"]] == [
        ["append", f"{key(jobid)}.eventlog"] for jobid in (1, 2)
    ]


def test_job_of_an_id_in_use_is_refused_and_the_other_job_of_this_id_is_kept(
    m: ManagerScript,
) -> None:
    """A submit request that arrives twice."""
    submission = m.submission(1)
    assert m.put(submission)[0] == SUBMITTED
    assert m.put(submission) == [
        "job-manager.submit -> {'errors': [[1, 'job id 1 is already in use']]}"
    ]
    assert m.restarted().state(1) == JobState.SCHED


def test_job_that_is_refused_at_restart_is_removed(m: ManagerScript) -> None:
    """21.events.13: with its eventlog."""
    m.submission(1)
    again = m.restarted(hooks=[VALIDATE])
    assert again.answer(VALIDATE, reject="no") == []
    assert again.names(1) == []
    assert again.stats()["states"]["new"] == 0


def test_validation_at_restart_goes_on_after_the_answer(m: ManagerScript) -> None:
    m.submission(1)
    again = m.restarted(hooks=[VALIDATE])
    again.answer(VALIDATE)
    assert again.state(1) == JobState.SCHED


def test_requests_wait_until_all_has_been_read_back() -> None:
    """Nothing is answered from half of the jobs."""
    kvs = InstantKvs()
    before = ManagerScript(kvs=kvs)
    before.submission(1)
    plugins = ScriptedPlugins((), {}, [])
    core = PluginTurns(JobManagerCore(1000), plugins)
    queues, marks = core.start(START)
    assert core.turn(START, [asked("job-manager.stats-get")]) == []
    assert core.turn(START, kvs.take(queues, "job-manager")) == []
    actions = core.turn(START, kvs.take(marks, "job-manager"))
    while actions[-1].topic != "kvs.commit":
        (read,) = actions  # nothing is answered meanwhile
        actions = core.turn(START, kvs.take(read, "job-manager"))
    answers = core.turn(START, kvs.take(actions[-1], "job-manager"))
    assert answers[0].payload["states"]["depend"] == 1


def test_job_whose_eventlog_is_none_is_set_aside_and_logged(m: ManagerScript) -> None:
    m.kvs.commit(["put", f"{key(1)}.eventlog", "what?\n"], submit_op(1))
    (line,) = m.restarted().began
    text = f"log 2: {key(1)}: moved to job-lost+found: {key(1)}.eventlog: not a job eventlog: "
    assert line.startswith(text)


def test_store_that_cannot_be_read_ends_the_service() -> None:
    core = JobManagerCore(1000)
    _, marks = core.start(START)
    error = Response(marks.topic, "disk: gone", Errno.EIO, marks.matchtag)
    assert core.turn(START, [error]) == [Exit("cannot read the jobs: disk: gone")]


def test_old_eventlog_without_a_version_is_taken(m: ManagerScript) -> None:
    """21.criteria.9: optional keys of today may be missing."""
    m.submit(1)
    old = [event("submit", userid=1, urgency=16, flags=0), *m.log(1)[1:]]
    m.kvs.commit(["put", f"{key(1)}.eventlog", format_eventlog(old)])
    assert m.restarted(peers=True).last("sched.alloc").payload["id"] == 1


def stored(m: ManagerScript, jobid: int, constraints: Any) -> None:
    """Change what is stored of a job's jobspec, as an earlier version may have accepted it."""
    place = f"{key(jobid)}.jobspec"
    jobspec = msgspec.json.decode(m.kvs.value(place) or "")
    jobspec["attributes"]["system"]["constraints"] = constraints
    m.kvs.commit(["put", place, msgspec.json.encode(jobspec).decode()])


def test_pending_jobs_whose_jobspecs_cost_too_much_end_with_an_exception_at_a_start() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    m.submit(2)
    m.submit(3, userid=GUEST_USERID)
    for jobid in (1, 2, 3):
        stored(m, jobid, {"or": [{}] * 20_000})
    again = m.restarted(peers=True)
    assert again.state(1) == JobState.RUN  # it has its resources
    for jobid in (2, 3):
        assert again.state(jobid) == JobState.INACTIVE
        exception = again.context(jobid, "exception")
        assert exception["type"] == "jobspec"
        assert exception["note"] == (
            "attributes.system.constraints: expected a cost of at most 1048576, got 1280194"
        )
    assert not [each for each in again.messages if each.topic == topics.SCHED_ALLOC]


def test_pending_jobs_of_a_guest_beyond_its_cost_end_at_a_start_and_the_oldest_stay() -> None:
    m = ManagerScript(peers=True)
    m.submit(1, userid=OWNER_USERID)
    for jobid in (2, 3, 4):
        m.submit(jobid, userid=GUEST_USERID)
    for jobid in (1, 2, 3, 4):
        stored(m, jobid, {"properties": ["ssd"]})  # 4 values and keys: 64 each, and 13 characters
    limits = UserLimitsConfig(jobspec_cost=600)
    again = m.restarted(peers=True, config=Config(job_manager=JobManagerConfig(user_limits=limits)))
    states = [again.state(jobid) for jobid in (1, 2, 3, 4)]
    assert states == [JobState.SCHED, JobState.SCHED, JobState.SCHED, JobState.INACTIVE]


def test_stored_jobspec_that_is_no_json_is_set_aside(m: ManagerScript) -> None:
    m.submit(1)
    m.submit(2)
    m.kvs.commit(["put", f"{key(1)}.jobspec", "[1]"])
    again = m.restarted(peers=True)
    assert again.state(2) == JobState.SCHED
    assert again.core.get(1) is None
    reason = f"{key(1)}.jobspec: expected an object, got [1]"
    aside = key(1).replace("job.", "job-lost+found.", 1)
    assert again.kvs.value(f"{aside}.reason") == reason
