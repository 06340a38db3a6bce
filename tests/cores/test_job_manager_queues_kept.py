"""What is kept of the job manager's queues over a restart, and with a new configuration."""

from __future__ import annotations

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.messages import topics
from flux_trio.protocols import CONF_UPDATE, AskHook, HookAnswer, JobState
from flux_trio.store.backup.restoring import stopped_checkpoint
from tests.support.asking import asked, gone
from tests.support.manager_script import CANCEL, ManagerScript, allocs
from tests.support.queue_script import TWO, queue_status, refusals

ONE = parse_config("[queues.only]")


def test_states_and_reasons_survive_a_restart(two: ManagerScript) -> None:
    """33.admin.1, 33.admin.4: and requests wait until they are known."""
    two.submit(1)
    two.queue("batch", start=False, reason="maintenance")
    two.enable("debug", enable=False, reason="closed")
    again = two.restarted(config=TWO)
    assert allocs(again.attach_sched()) == []
    assert queue_status(again, "batch")["stop_reason"] == "maintenance"
    assert queue_status(again, "debug")["disable_reason"] == "closed"
    assert allocs(again.queue("batch", start=True)) == [1]


def test_change_that_is_not_to_be_kept_ends_with_the_instance(two: ManagerScript) -> None:
    two.queue("debug", start=False, reason="for good")
    two.queue("batch", start=False, nocheckpoint=True)
    two.enable("batch", enable=False, reason="today", nocheckpoint=True)
    two.queue("debug", start=True, nocheckpoint=True)
    two.enable("debug", enable=True)  # is kept, and keeps nothing else
    again = two.restarted(config=TWO, peers=True)
    assert queue_status(again, "batch") == {"enable": True, "start": True}
    stopped = {"enable": True, "start": False, "stop_reason": "for good"}
    assert queue_status(again, "debug") == stopped


def test_switch_that_is_not_to_be_kept_is_not_kept_by_the_other_one(two: ManagerScript) -> None:
    two.queue("batch", start=False, nocheckpoint=True)
    two.enable("batch", enable=False, reason="for good")
    two.enable("debug", enable=False, reason="today", nocheckpoint=True)
    two.queue("debug", start=False, reason="for good")
    again = two.restarted(config=TWO, peers=True)
    kept = {"enable": False, "start": True, "disable_reason": "for good"}
    assert queue_status(again, "batch") == kept
    assert queue_status(again, "debug") == {
        "enable": True,
        "start": False,
        "stop_reason": "for good",
    }


def test_started_is_only_how_a_queue_begins(two: ManagerScript) -> None:
    config = parse_config("[queues.only]\nstarted = false")
    m = ManagerScript(config=config)
    m.queue("only", start=True)
    assert queue_status(m.restarted(config=config, peers=True), "only")["start"] is True


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
    assert queue_status(m, "batch")["start"] is False


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
    assert (
        queue_status(again, "batch")["stop_reason"] == "what was kept of the queues cannot be read"
    )


def test_restart_stops_the_queues_that_were_started_if_the_site_wants_it() -> None:
    """flux-config-job-manager(5), stop-queues-on-restart: also at the first restart."""
    config = parse_config("[job-manager]\nstop-queues-on-restart = true\n[queues.a]\n[queues.b]")
    m = ManagerScript(config=config, peers=True)
    assert queue_status(m, "a")["start"] is True
    again = m.restarted(config=config, peers=True)
    restarted = "Automatically stopped due to restart"
    assert queue_status(again, "a") == {"enable": True, "start": False, "stop_reason": restarted}
    again.queue("a", start=True)
    again.queue("b", start=False, reason="by hand")
    third = again.restarted(config=config, peers=True)
    assert queue_status(third, "a")["stop_reason"] == restarted
    assert queue_status(third, "b")["stop_reason"] == "by hand"
    without = third.restarted(config=parse_config("[queues.a]\n[queues.b]"), peers=True)
    assert queue_status(without, "a")["stop_reason"] == restarted


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
    assert queue_status(anonymous) == {"enable": True, "start": True}
    anonymous.queue(start=False, reason="all of it")
    again = with_config(anonymous, TWO)
    assert queue_status(again, "batch") == {"enable": True, "start": True}
    assert queue_status(again, "debug") == {
        "enable": False,
        "start": False,
        "disable_reason": "disabled",
        "stop_reason": "stopped",
    }
    assert queue_status(with_config(again, Config()))["stop_reason"] == "all of it"


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
    assert queue_status(m, "batch")["start"] is (first is BATCH_ALONE)


def test_queue_that_the_configuration_began_as_stopped_stays_so() -> None:
    m = ManagerScript(config=STOPPED_AT_FIRST, peers=True)
    assert queue_status(m.restarted(config=BATCH_ALONE, peers=True), "batch")["start"] is False


def test_queue_that_comes_back_in_a_copy_is_stopped(two: ManagerScript) -> None:
    two.queue("debug", start=True)
    text = stopped_checkpoint(two.kvs.value(CHECKPOINT_KEY), "a copy")
    two.kvs.commit(["put", CHECKPOINT_KEY, text])
    copy = two.restarted(config=BATCH_ALONE, peers=True)
    copy.configure(TWO)
    assert queue_status(copy, "debug")["stop_reason"] == "a copy"


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
    assert queue_status(two, "batch")["stop_reason"] == "why"
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
