"""The job manager's queues: where a job goes, what stops and starts, what survives, who waits."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import CONSTRAINTS_KEY, DURATION_KEY, QUEUE_KEY, Config, parse_config
from flux_trio.cores.job_manager.calls import User, UserFound
from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import CONF_UPDATE, VALIDATE, AskHook, HookAnswer, JobState
from flux_trio.store.backup.restoring import stopped_checkpoint
from tests.support.asking import asked, asked_by_guest, gone
from tests.support.manager_script import CANCEL, ManagerScript, allocs, key

TWO = parse_config("""
[policy.jobspec.defaults.system]
duration = "10m"
queue = "batch"

[queues.batch]
requires = { properties = ["batch"] }

[queues.debug]
policy.jobspec.defaults.system.duration = "1m"
""")
CHANGED = parse_config("""
[policy.jobspec.defaults.system]
queue = "batch"

[queues.batch]
requires = { properties = ["other"] }
""")
ONE = parse_config("[queues.only]")
CLOSED = parse_config("""
[queues.closed.policy.access]
allow-user = ["alice"]
allow-group = ["physics"]
""")
CLOSED_ALL = parse_config("[policy.access]\nallow-user = ['alice']")
BATCH = {"properties": ["batch"]}


@pytest.fixture
def two() -> ManagerScript:
    """Two queues, with scheduler and execution service."""
    return ManagerScript(config=TWO, peers=True)


def status(m: ManagerScript, name: str | None = None) -> dict[str, Any]:
    m.ask(topics.JOB_QUEUE_STATUS, {} if name is None else {"name": name})
    payload = m.last(topics.JOB_QUEUE_STATUS).payload
    assert isinstance(payload, dict)
    return payload


def refusals(m: ManagerScript) -> list[list[Any]]:
    """What the last submission was answered."""
    errors: list[list[Any]] = m.last(topics.JOB_SUBMIT).payload["errors"]
    return errors


# --- how a job gets into its queue


def test_what_the_job_did_not_say_is_a_jobspec_update_before_validation(two: ManagerScript) -> None:
    """33.assignment.2, 33.defaults.6, 33.defaults.7, 33.defaults.9, 33.queues.4: in sched.alloc."""
    stored = two.submission(1)
    two.put(stored)
    assert two.names(1)[:3] == ["submit", "jobspec-update", "validate"]
    assert two.context(1, "jobspec-update") == {
        QUEUE_KEY: "batch",
        DURATION_KEY: 600.0,
        CONSTRAINTS_KEY: BATCH,
    }
    system = two.last(topics.SCHED_ALLOC).payload["jobspec"]["attributes"]["system"]
    named = [system.get(key) for key in ("queue", "duration", "constraints")]
    assert named == ["batch", 600.0, BATCH]


def test_stored_jobspec_stays_as_it_came(two: ManagerScript) -> None:
    """33.defaults.8"""
    submission = two.submission(1)
    before = two.kvs.value(f"{key(1)}.jobspec")
    two.put(submission)
    assert two.kvs.value(f"{key(1)}.jobspec") == before


def test_what_the_job_says_stands(two: ManagerScript) -> None:
    """33.defaults.1, 33.assignment.1: and nothing is logged where nothing is added."""
    two.submit(1, queue="debug", duration=5.0)
    assert "jobspec-update" not in two.names(1)


def test_plugins_see_the_queue_when_they_validate() -> None:
    """33.assignment.3"""
    seen = []

    def validate(question: AskHook) -> HookAnswer:
        assert question.job is not None
        seen.append(question.job.current_jobspec_bytes())
        return HookAnswer()

    m = ManagerScript(config=TWO, answers={VALIDATE: validate})
    m.submit(1)
    assert b'"queue":"batch"' in seen[0]
    assert b'"constraints":{"properties":["batch"]}' in seen[0]


@pytest.mark.parametrize(
    ("config", "queue", "text"),
    [
        (TWO, "nosuch", "Invalid queue 'nosuch' specified"),
        (Config(), "batch", "Invalid queue 'batch' specified"),
        (ONE, None, "a named queue is required"),
    ],
)
def test_unknown_queue_is_refused(config: Config, queue: str | None, text: str) -> None:
    """33.validation.1, 33.impl.3, 33.impl.4"""
    m = ManagerScript(config=config)
    m.submit(1, queue=queue, duration=1.0)
    assert refusals(m) == [[1, text]]
    assert m.stats()["states"]["new"] == 0


def test_refused_job_has_no_part_in_those_that_are_taken(two: ManagerScript) -> None:
    """33.validation.4"""
    first, other = two.submission(1), two.submission(2, queue="nosuch")
    jobs = [*first.payload["jobs"], *other.payload["jobs"]]  # type: ignore[index,call-overload]
    two.ask(topics.JOB_SUBMIT, {"jobs": jobs})
    assert [jobid for jobid, _ in refusals(two)] == [2]
    assert two.state(1) == JobState.SCHED


def test_rejected_by_a_plugin_after_its_queue_was_assigned_leaves_no_job() -> None:
    """33.validation.4, 33.access.5"""
    m = ManagerScript(config=TWO, answers={VALIDATE: HookAnswer(reject="not now")})
    m.submit(1)
    assert refusals(m) == [[1, "not now"]]
    assert m.ask(topics.JOB_DRAIN) == ["job-manager.drain -> {}"]


def test_job_not_acknowledged_before_a_restart_is_assigned_once() -> None:
    """33.assignment.2: what its queue required then is what it keeps."""
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    again = m.restarted(config=TWO)
    assert again.names(1).count("jobspec-update") == 1
    assert again.state(1) == JobState.SCHED
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    changed = m.restarted(config=CHANGED)
    assert changed.names(1).count("jobspec-update") == 1
    assert changed.context(1, "jobspec-update")[CONSTRAINTS_KEY] == BATCH
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    other = m.restarted(config=parse_config("[queues.other]"))
    assert not [name for name in other.kvs.stored() if name.startswith("job.")]


# --- access


def test_user_or_group_on_a_list_may_submit_and_others_may_not() -> None:
    """33.access.1-3, 33.validation.3, 33.background.5"""
    users = {
        1: User("alice", frozenset({"staff"})),
        2: User("bob", frozenset({"staff", "physics"})),
        3: User("carol", frozenset({"staff"})),
        4: User(),
    }
    m = ManagerScript(config=CLOSED, users=users)
    for userid in users:
        m.submit(userid, userid=userid, queue="closed")
    assert [m.state(jobid) for jobid in (1, 2)] == [JobState.SCHED] * 2
    m.submit(5, userid=3, queue="closed")
    assert refusals(m) == [[5, "user carol has no access to queue closed"]]
    m.submit(6, userid=4, queue="closed")
    assert refusals(m) == [[6, "userid 4 has no access to queue closed"]]


def test_owner_is_a_user_like_others() -> None:
    """33.access.2: nobody who is on no list may submit."""
    m = ManagerScript(config=CLOSED_ALL, users={1000: User("flux")})
    m.submit(1, userid=1000)
    assert refusals(m) == [[1, "user flux has no access to this instance"]]


def test_open_queue_asks_no_user_database() -> None:
    """33.access.4, 33.criteria.2"""
    m = ManagerScript(config=TWO)
    assert not [line for line in m.submit(1, 2) if line.startswith("find user")]


def test_job_waits_for_the_user_database_and_others_do_not() -> None:
    m = ManagerScript(config=CLOSED, users={1: User("alice")})
    assert m.submit(1, 2, userid=77, queue="closed") == ["find user 77"]
    m.submit(3, userid=1, queue="closed")
    assert m.state(3) == JobState.SCHED
    assert "job-manager.submit -> {'errors': []}" in m.put(UserFound(77, User("alice")))
    assert [m.state(jobid) for jobid in (1, 2)] == [JobState.SCHED] * 2


def test_plugin_may_refuse_whom_a_list_allows() -> None:
    """33.access.5"""
    answers = {VALIDATE: HookAnswer(reject="no bank")}
    m = ManagerScript(config=CLOSED, users={1: User("alice")}, answers=answers)
    m.submit(1, userid=1, queue="closed")
    assert refusals(m) == [[1, "no bank"]]


def test_job_of_before_that_is_canceled_while_its_user_is_asked_for_stays_canceled() -> None:
    m = ManagerScript(config=CLOSED, users={1: User("alice")}, hooks=[VALIDATE])
    m.submit(1, userid=1, queue="closed")
    again = m.restarted(config=CLOSED)
    assert again.began == ["find user 1"]
    again.raise_(1)
    again.put(UserFound(1, User("alice")))
    assert "validate" not in again.names(1)
    assert again.names(1)[-1] == "clean"


def test_job_that_is_canceled_before_it_is_validated_again_is_answered_as_accepted() -> None:
    """Its queue is opened meanwhile, so its second submission asks for no user."""
    m = ManagerScript(config=CLOSED)
    submission = m.submission(1, userid=1, queue="closed")
    again = m.restarted(config=CLOSED)
    assert again.began == ["find user 1"]
    again.configure(parse_config("[queues.closed]"))
    assert again.put(submission) == []
    assert again.raise_(1)[-1] == "job-manager.raise -> {}"
    assert again.put(UserFound(1, User("alice"))) == ["job-manager.submit -> {'errors': []}"]
    assert again.names(1)[-1] == "clean"


# --- enable and disable


def test_disabled_queue_refuses_with_its_reason_and_goes_on_with_its_jobs(
    two: ManagerScript,
) -> None:
    """33.admin.1, 33.admin.3"""
    two.submit(1, urgency=0)
    two.enable("batch", enable=False, reason="closed")
    two.submit(2)
    assert refusals(two) == [[2, "job submission to batch is disabled: closed"]]
    two.submit(3, queue="debug")
    assert two.state(3) == JobState.SCHED
    assert allocs(two.urgency(1, 16)) == [1]
    assert status(two, "batch") == {"enable": False, "start": True, "disable_reason": "closed"}
    two.enable("batch")
    two.submit(4)
    assert refusals(two) == []
    assert status(two, "batch") == {"enable": True, "start": True}


def test_all_queues_are_disabled_and_enabled_at_once(two: ManagerScript) -> None:
    """33.admin.2"""
    two.enable(enable=False, reason="closed")
    for jobid, queue in ((1, "batch"), (2, "debug")):
        two.submit(jobid, queue=queue)
        assert refusals(two) == [[jobid, f"job submission to {queue} is disabled: closed"]]
    two.enable()
    two.submit(3, queue="batch")
    two.submit(4, queue="debug")
    assert [two.state(jobid) for jobid in (3, 4)] == [JobState.SCHED] * 2


def test_anonymous_queue_is_disabled_without_a_name() -> None:
    """33.impl.3: flux-core's words have no name then."""
    m = ManagerScript()
    m.ask(topics.JOB_QUEUE_ENABLE, {"enable": False, "all": False, "reason": "no more jobs"})
    m.submit(1)
    assert refusals(m) == [[1, "job submission is disabled: no more jobs"]]


# --- start and stop


def test_stopped_queue_is_sent_to_no_scheduler_and_the_other_goes_on(two: ManagerScript) -> None:
    """14.attributes.5, 33.admin.4, 33.admin.6, 33.admin.7, 33.background.1-2: it takes jobs as
    before.
    """
    two.submit(1, 2)
    two.submit(3, queue="debug")
    assert two.queue("batch", start=False, reason="maintenance") == [
        "sched.cancel 1",
        "sched.cancel 2",
        "job-manager.queue-start -> {}",
    ]
    two.alloc(1, CANCEL)
    two.alloc(2, CANCEL)
    assert allocs(two.submit(4)) == []
    assert allocs(two.submit(5, queue="debug")) == [5]
    two.urgency(2, 20)
    assert status(two, "batch") == {"enable": True, "start": False, "stop_reason": "maintenance"}
    assert status(two, "debug") == {"enable": True, "start": True}
    assert allocs(two.queue("batch", start=True)) == [2, 1, 4]


def test_all_queues_stop_and_start_at_once(two: ManagerScript) -> None:
    """33.admin.5"""
    two.submit(1)
    two.submit(2, queue="debug")
    assert two.queue(start=False)[:2] == ["sched.cancel 1", "sched.cancel 2"]
    for jobid in (1, 2):
        two.alloc(jobid, CANCEL)
    assert sorted(allocs(two.queue(start=True))) == [1, 2]


def test_no_scheduler_hears_of_a_stopped_queue(two: ManagerScript) -> None:
    """33.criteria.5, 33.admin.7: not the next one either."""
    two.queue("batch", start=False)
    two.submit(1)
    two.gone("sched")
    assert allocs(two.attach_sched()) == []
    sent = [message.topic for message in two.messages if message.topic.startswith("sched.")]
    assert sent == []


def test_job_moved_into_a_stopped_queue_is_taken_back(two: ManagerScript) -> None:
    """33.admin.7"""
    two.queue("debug", start=False)
    two.submit(1)
    assert "sched.cancel 1" in two.post(1, "jobspec-update", **{QUEUE_KEY: "debug"})
    assert allocs(two.alloc(1, CANCEL)) == []
    assert allocs(two.queue("debug", start=True)) == [1]


def test_queue_may_begin_stopped() -> None:
    """As all named queues of flux-core do."""
    m = ManagerScript(config=parse_config("[queues.only]\nstarted = false"), peers=True)
    assert allocs(m.submit(1, queue="only")) == []
    assert allocs(m.queue("only", start=True)) == [1]


def test_queue_without_a_scheduler_says_so() -> None:
    m = ManagerScript(config=TWO)
    offline = {"enable": True, "start": False, "stop_reason": "Scheduler is offline"}
    assert status(m, "batch") == {**offline, "blocked": "scheduler"}
    m.queue("batch", start=False, reason="why")
    assert status(m, "batch") == offline


def test_queue_says_what_a_scheduler_did_that_was_dropped() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.put(Response("sched.alloc", "no", int(Errno.EPROTO)))
    assert status(m, None)["stop_reason"] == ("Scheduler has broken the protocol: sched.alloc: no")
    m.gone("sched")
    m.hello()
    m.ready()
    assert "stop_reason" not in status(m, None)


# --- what is asked


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        (topics.JOB_QUEUE_START, {"start": False}, "Use --all to apply this command to all queues"),
        (topics.JOB_QUEUE_ENABLE, {"enable": True}, "Use --all to apply this command to all queue"),
        (topics.JOB_QUEUE_START, {"start": True, "name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_QUEUE_ENABLE, {"enable": False}, "reason is required for disable"),
        (topics.JOB_QUEUE_STATUS, {}, "a named queue is required"),
        (topics.JOB_QUEUE_STATUS, {"name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_DRAIN, {"name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_IDLE, {"name": "x"}, "'x' is not a valid queue"),
    ],
)
def test_what_cannot_be_done_is_said_in_flux_cores_words(
    two: ManagerScript, topic: str, payload: dict[str, Any], text: str
) -> None:
    (line,) = two.ask(topic, payload)
    assert line.startswith(f"{topic} -> EINVAL {text}")


def test_queues_are_listed_with_the_default(two: ManagerScript) -> None:
    """33.criteria.4, 33.impl.3-4: the anonymous queue has no name."""
    two.put(asked_by_guest(topics.JOB_QUEUE_LIST))
    listed = two.last(topics.JOB_QUEUE_LIST).payload
    assert listed == {"queues": ["batch", "debug"], "default": "batch"}
    m = ManagerScript()
    m.ask(topics.JOB_QUEUE_LIST)
    assert m.last(topics.JOB_QUEUE_LIST).payload == {"queues": []}


def test_guests_look_and_do_not_change(two: ManagerScript) -> None:
    for topic in (topics.JOB_QUEUE_START, topics.JOB_QUEUE_ENABLE):
        (line,) = two.put(asked_by_guest(topic, {"start": False, "enable": True, "all": True}))
        assert "EPERM" in line
    two.put(asked_by_guest(topics.JOB_QUEUE_STATUS, {"name": "batch"}))
    assert two.last(topics.JOB_QUEUE_STATUS).payload["enable"] is True


# --- restart


def test_states_and_reasons_survive_a_restart(two: ManagerScript) -> None:
    """33.admin.1, 33.admin.4: and requests wait until they are known."""
    two.submit(1)
    two.queue("batch", start=False, reason="maintenance")
    two.enable("debug", enable=False, reason="closed")
    again = two.restarted(config=TWO)
    assert allocs(again.attach_sched()) == []
    assert status(again, "batch")["stop_reason"] == "maintenance"
    assert status(again, "debug")["disable_reason"] == "closed"
    assert allocs(again.queue("batch", start=True)) == [1]


def test_change_that_is_not_to_be_kept_ends_with_the_instance(two: ManagerScript) -> None:
    two.queue("debug", start=False, reason="for good")
    two.queue("batch", start=False, nocheckpoint=True)
    two.enable("batch", enable=False, reason="today", nocheckpoint=True)
    two.queue("debug", start=True, nocheckpoint=True)
    two.enable("debug", enable=True)  # is kept, and keeps nothing else
    again = two.restarted(config=TWO, peers=True)
    assert status(again, "batch") == {"enable": True, "start": True}
    stopped = {"enable": True, "start": False, "stop_reason": "for good"}
    assert status(again, "debug") == stopped


def test_switch_that_is_not_to_be_kept_is_not_kept_by_the_other_one(two: ManagerScript) -> None:
    two.queue("batch", start=False, nocheckpoint=True)
    two.enable("batch", enable=False, reason="for good")
    two.enable("debug", enable=False, reason="today", nocheckpoint=True)
    two.queue("debug", start=False, reason="for good")
    again = two.restarted(config=TWO, peers=True)
    kept = {"enable": False, "start": True, "disable_reason": "for good"}
    assert status(again, "batch") == kept
    assert status(again, "debug") == {"enable": True, "start": False, "stop_reason": "for good"}


def test_started_is_only_how_a_queue_begins(two: ManagerScript) -> None:
    config = parse_config("[queues.only]\nstarted = false")
    m = ManagerScript(config=config)
    m.queue("only", start=True)
    assert status(m.restarted(config=config, peers=True), "only")["start"] is True


def test_answer_waits_until_the_change_is_kept() -> None:
    m = ManagerScript(config=TWO, peers=True, commits_wait=True)
    assert m.queue("batch", start=False) == ["commit queues"]
    assert m.commit() == ["job-manager.queue-start -> {}"]


def test_a_change_is_kept_and_its_client_that_has_gone_is_not_answered() -> None:
    """6.disconnect.2"""
    m = ManagerScript(config=TWO, peers=True, commits_wait=True)
    m.ask(topics.JOB_QUEUE_START, {"start": False, "name": "batch"}, by="shortlived")
    m.queue("debug", start=False)
    m.gone("shortlived")
    assert m.commit() == []
    assert m.commit() == ["job-manager.queue-start -> {}"]
    assert status(m, "batch")["start"] is False


def test_the_next_client_of_that_name_is_answered() -> None:
    """6.disconnect.2"""
    m = ManagerScript(config=TWO, peers=True, commits_wait=True)
    stop, start = ({"start": each, "name": "batch"} for each in (False, True))
    m.put(
        asked(topics.JOB_QUEUE_START, stop, tag=1),
        gone(topics.JOB_MANAGER, "alice"),
        asked(topics.JOB_QUEUE_START, start, tag=2),
    )
    assert m.commit() == []
    assert m.commit() == ["job-manager.queue-start -> {}"]


def test_checkpoint_that_cannot_be_read_stops_all_queues(two: ManagerScript) -> None:
    """What an administrator stopped must not go on by itself."""
    two.kvs.commit(["put", CHECKPOINT_KEY, "{"])
    again = two.restarted(config=TWO)
    (line,) = again.began
    assert line.startswith(f"log 2: {CHECKPOINT_KEY}: ")
    again.attach_sched()
    assert status(again, "batch")["stop_reason"] == "what was kept of the queues cannot be read"


def test_restart_stops_the_queues_that_were_started_if_the_site_wants_it() -> None:
    """flux-config-job-manager(5), stop-queues-on-restart: also at the first restart."""
    config = parse_config("[job-manager]\nstop-queues-on-restart = true\n[queues.a]\n[queues.b]")
    m = ManagerScript(config=config, peers=True)
    assert status(m, "a")["start"] is True
    again = m.restarted(config=config, peers=True)
    restarted = "Automatically stopped due to restart"
    assert status(again, "a") == {"enable": True, "start": False, "stop_reason": restarted}
    again.queue("a", start=True)
    again.queue("b", start=False, reason="by hand")
    third = again.restarted(config=config, peers=True)
    assert status(third, "a")["stop_reason"] == restarted
    assert status(third, "b")["stop_reason"] == "by hand"
    without = third.restarted(config=parse_config("[queues.a]\n[queues.b]"), peers=True)
    assert status(without, "a")["stop_reason"] == restarted


BATCH_ALONE = parse_config("[queues.batch]")
STOPPED_AT_FIRST = parse_config("[queues.batch]\nstarted = false")


@pytest.mark.parametrize("restarts", [False, True], ids=["loaded", "restarted"])
def test_queue_that_comes_back_is_as_it_was(two: ManagerScript, restarts: bool) -> None:
    """The anonymous queue likewise."""

    def with_config(m: ManagerScript, config: Config) -> ManagerScript:
        if restarts:
            return m.restarted(config=config, peers=True)
        m.configure(config)
        return m

    two.queue("debug", start=False, reason="stopped")
    two.enable("debug", enable=False, reason="disabled")
    anonymous = with_config(two, Config())
    assert status(anonymous) == {"enable": True, "start": True}
    anonymous.queue(start=False, reason="all of it")
    again = with_config(anonymous, TWO)
    assert status(again, "batch") == {"enable": True, "start": True}
    assert status(again, "debug") == {
        "enable": False,
        "start": False,
        "disable_reason": "disabled",
        "stop_reason": "stopped",
    }
    assert status(with_config(again, Config()))["stop_reason"] == "all of it"


@pytest.mark.parametrize("first", [BATCH_ALONE, STOPPED_AT_FIRST], ids=["started", "stopped"])
@pytest.mark.parametrize("restarts", [False, True], ids=["loaded", "restarted"])
def test_queue_that_comes_back_is_not_as_the_configuration_begins_it(
    first: Config, restarts: bool
) -> None:
    m = ManagerScript(config=first, peers=True)
    m.configure(Config())
    other = STOPPED_AT_FIRST if first is BATCH_ALONE else BATCH_ALONE
    if restarts:
        m = m.restarted(config=other, peers=True)
    else:
        m.configure(other)
    assert status(m, "batch")["start"] is (first is BATCH_ALONE)


def test_queue_that_the_configuration_began_as_stopped_stays_so() -> None:
    m = ManagerScript(config=STOPPED_AT_FIRST, peers=True)
    assert status(m.restarted(config=BATCH_ALONE, peers=True), "batch")["start"] is False


def test_queue_that_comes_back_in_a_copy_is_stopped(two: ManagerScript) -> None:
    two.queue("debug", start=True)
    text = stopped_checkpoint(two.kvs.value(CHECKPOINT_KEY), "a copy")
    two.kvs.commit(["put", CHECKPOINT_KEY, text])
    copy = two.restarted(config=BATCH_ALONE, peers=True)
    copy.configure(TWO)
    assert status(copy, "debug")["stop_reason"] == "a copy"


# --- a new configuration


def test_new_configuration_has_other_queues_and_those_that_stay_keep_their_state(
    two: ManagerScript,
) -> None:
    two.submit(1)
    two.submit(2, queue="debug")
    two.queue("batch", start=False, reason="why")
    two.alloc(1, CANCEL)
    without = parse_config("[queues.batch]\n[policy.jobspec.defaults.system]\nqueue = 'batch'")
    assert two.configure(without) == ["sched.cancel 2", "job-manager.config-reload -> {}"]
    two.alloc(2, CANCEL)
    two.submit(3, queue="debug")
    assert refusals(two) == [[3, "Invalid queue 'debug' specified"]]
    assert status(two, "batch")["stop_reason"] == "why"
    assert allocs(two.configure(TWO)) == [2]


def test_configuration_that_a_plugin_refuses_leaves_the_old_one_in_force() -> None:
    """And all plugins go by the old one again."""
    m = ManagerScript(config=TWO, answers={CONF_UPDATE: _refuse_one_queue}, peers=True)
    (line,) = m.configure(ONE)
    assert line == "job-manager.config-reload -> {'refusal': 'one queue is not enough'}"
    assert [question.args for question in m.plugins.questions] == [ONE, TWO]
    m.submit(1)
    assert m.state(1) == JobState.SCHED


def _refuse_one_queue(question: AskHook) -> HookAnswer:
    few = len(question.args.queues) < 2
    return HookAnswer(reject="one queue is not enough") if few else HookAnswer()


def test_plugin_may_think_about_a_configuration() -> None:
    m = ManagerScript(config=TWO, hooks=[CONF_UPDATE])
    assert m.configure(ONE) == ["ask conf.update"]
    m.submit(1)
    assert m.state(1) == JobState.SCHED
    assert m.answer(CONF_UPDATE) == ["job-manager.config-reload -> {}"]
    m.submit(2)
    assert refusals(m) == [[2, "a named queue is required"]]


def test_invalid_configuration_is_refused_by_its_key(two: ManagerScript) -> None:
    """33.impl.5"""
    nosuch = {"jobspec": {"defaults": {"system": {"queue": "c"}}}}
    payload = {"config": {"queues": {"a": {}, "b": {}}, "policy": nosuch}}
    (line,) = two.ask(topics.config_reload_of(topics.JOB_MANAGER), payload)
    assert "EINVAL config.policy.jobspec.defaults.system.queue: expected one of" in line


def test_journal_tells_of_jobs_that_were_refused(two: ManagerScript) -> None:
    """33.validation.4: who follows jobs learns that it never was."""
    two.ask(topics.JOB_JOURNAL, by="list", streaming=True)
    two.submit(1, queue="nosuch")
    told = two.last(topics.JOB_JOURNAL).payload["events"]
    assert [(jobid, event["name"]) for jobid, _, event in told] == [
        (1, "submit"),
        (1, "invalidate"),
    ]
