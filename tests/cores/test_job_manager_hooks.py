"""The job manager's questions to plugins, and what plugins post."""

from __future__ import annotations

import pytest

from flux_trio.protocols import STATE_TOPICS, VALIDATE, HookAnswer, HookAnswered, JobState
from tests.support.manager_script import CANCEL, DENY, PRIORITIZE, ManagerScript, alloc_answer

DEPEND = "job.state.depend"
SCHED = "job.state.sched"
RUN = "job.state.run"


def manager(*hooks: str) -> ManagerScript:
    return ManagerScript(hooks=hooks, peers=True)


# --- validation


def test_submission_is_answered_when_every_job_is_validated() -> None:
    m = manager(VALIDATE)
    assert m.submit(1) == ["ask job.validate 1"]
    assert m.answer(VALIDATE)[0] == "job-manager.submit -> {'errors': []}"
    assert m.names(1)[:2] == ["submit", "validate"]


@pytest.mark.parametrize("what", ["reject", "error"])
def test_refused_job_leaves_nothing(what: str) -> None:
    """14.submit.2, 33.validation.4, 21.events.13: an error to the submitter, no event, and the id
    is free.
    """
    m = manager(VALIDATE)
    m.ask("job-manager.journal", {}, streaming=True)
    m.submit(1)
    did = m.answer(VALIDATE, **{what: "too big"})
    assert "job-manager.submit -> {'errors': [[1, 'too big']]}" in did
    assert m.kvs.keys("job") == m.kvs.keys("active") == []
    assert m.ask("job-manager.raise", {"id": 1, "severity": 0, "type": "x"}) == [
        "job-manager.raise -> ENOENT unknown job id"
    ]
    told = [r.payload["events"] for r in m.messages if r.topic == "job-manager.journal"]
    assert [(e[0], e[1], e[2]["name"]) for batch in told for e in batch] == [
        (1, 0, "submit"),
        (1, 1, "invalidate"),
    ]


def test_job_in_validation_is_not_seen_and_its_exceptions_wait() -> None:
    m = manager(VALIDATE)
    m.submit(1)
    m.ask("job-manager.raiseall", {"severity": 0, "type": "cancel", "states": 127})
    assert m.names(1) == ["submit"]
    m.answer(VALIDATE)
    assert m.names(1) == ["submit", "validate", "exception", "clean"]


def test_exceptions_of_all_jobs_are_answered_when_the_last_one_is_logged() -> None:
    m = manager(VALIDATE)
    m.submit(1)
    m.answer(VALIDATE)
    m.submit(2)
    did = m.ask("job-manager.raiseall", {"severity": 2, "type": "note", "states": 127})
    assert "exception" in m.names(1)
    assert [line for line in did if "raiseall" in line] == []
    told = "job-manager.raiseall -> {'count': 2, 'errors': 0}"
    assert told in m.answer(VALIDATE)
    assert "exception" in m.names(2)


def test_refused_job_has_no_events_that_waited() -> None:
    m = manager(VALIDATE)
    m.submit(1)
    assert m.ask("job-manager.raiseall", {"severity": 0, "type": "cancel", "states": 127}) == []
    posts = (("memo", {"a": 1}),)
    did = m.answer(VALIDATE, reject="no", posts=posts)
    assert did == [
        "job-manager.submit -> {'errors': [[1, 'no']]}",
        "job-manager.raiseall -> {'count': 0, 'errors': 1}",
    ]
    assert m.names(1) == []


def test_dependencies_posted_in_validation_hold_the_job() -> None:
    """21.events.15, 21.states.2, 26.events.2, 26.events.3: depend waits for every one to be
    removed.
    """
    m = manager(VALIDATE)
    m.submit(1)
    posts = tuple(("dependency-add", {"description": name}) for name in "ab")
    m.answer(VALIDATE, posts=posts)
    m.post(1, "dependency-remove", description="a")
    assert m.state(1) == JobState.DEPEND
    assert m.post(1, "dependency-remove", description="b") == ["sched.alloc 1"]
    assert m.names(1)[1:] == [
        "dependency-add",
        "dependency-add",
        "validate",
        "dependency-remove",
        "dependency-remove",
        "depend",
        "priority",
    ]


# --- asking


def test_hook_is_asked_once_on_coming_to_a_state() -> None:
    topics = [f"job.state.{state.name.lower()}" for state in list(JobState)[1:]]
    m = manager(*topics)
    m.submit(1)
    seen = []
    for topic in topics:
        if topic == RUN:
            m.alloc(1)
        if topic == "job.state.cleanup":
            m.raise_(1)
        if topic == "job.state.inactive":
            m.execute(1, "release final")
            m.freed(1)
        assert list(m.asked) == [topic]
        seen += m.answer(topic, priority=16)
        assert f"ask {topic} 1" not in m.post(1, "memo", a=1)  # looked at again
    assert "sched.alloc 1" in seen
    assert "job-exec.start 1" in seen
    assert m.state(1) == JobState.INACTIVE


def test_question_shows_the_job_as_it_is_now() -> None:
    m = manager(PRIORITIZE)
    m.submit(7, urgency=20)
    view = m.asked[PRIORITIZE].job
    assert (view.id, view.userid, view.urgency, view.state) == (7, 2000, 20, JobState.PRIORITY)
    assert b"environment" not in view.current_jobspec_bytes()


def test_other_jobs_go_on_while_one_is_asked_about() -> None:
    m = manager(DEPEND)
    m.submit(1)
    first = m.asked.pop(DEPEND)
    m.submit(2)
    assert m.answer(DEPEND) == ["sched.alloc 2"]
    assert m.put(HookAnswered(first.ticket, HookAnswer())) == ["sched.alloc 1"]


# --- priority


@pytest.mark.parametrize(("urgency", "priority"), [(0, 0), (31, 4294967295), (17, 5)])
def test_urgencies_0_and_31_override_the_plugin(urgency: int, priority: int) -> None:
    m = manager(PRIORITIZE)
    m.submit(1, urgency=urgency)
    m.answer(PRIORITIZE, priority=5)
    assert m.context(1, "priority") == {"priority": priority}


def test_urgency_that_changes_while_the_plugin_thinks_is_asked_about_again() -> None:
    m = manager(PRIORITIZE)
    m.submit(1)
    assert m.urgency(1, 20) == []
    told = "job-manager.urgency -> {'old_urgency': 16}"
    assert m.answer(PRIORITIZE, priority=5) == ["ask job.state.priority 1", told]
    assert m.asked[PRIORITIZE].job.urgency == 20
    assert m.answer(PRIORITIZE, priority=6) == ["sched.alloc 1"]
    assert m.names(1)[-2:] == ["urgency", "priority"]


def test_urgency_that_waits_is_refused_when_the_job_has_ended_meanwhile() -> None:
    m = manager(PRIORITIZE)
    m.submit(1)
    assert m.urgency(1, 20) == []
    failed = ("exception", {"type": "limit", "severity": 0, "note": "", "userid": 1000})
    refused = m.answer(PRIORITIZE, [failed], priority=5)[-1]
    assert refused.startswith("job-manager.urgency -> EINVAL cannot post urgency")
    assert "urgency" not in m.names(1)


def test_urgency_31_needs_no_plugin() -> None:
    m = manager()
    del m.plugins.answers[PRIORITIZE]
    m.submit(1)
    assert m.state(1) == JobState.PRIORITY
    m.urgency(1, 20)
    assert m.state(1) == JobState.PRIORITY
    assert m.urgency(1, 31)[-1] == "sched.alloc 1"


def test_request_stays_while_the_plugin_finds_another_priority() -> None:
    """27.impl.8, 27.prioritize.1: and is told of it then."""
    m = manager(PRIORITIZE)
    m.submit(1)
    m.answer(PRIORITIZE, priority=5)
    m.urgency(1, 20)
    assert m.answer(PRIORITIZE, priority=6) == ["sched.prioritize [[1, 6]]"]


@pytest.mark.parametrize("kind", [CANCEL, DENY])
def test_request_answered_while_the_plugin_thinks_is_sent_again(kind: object) -> None:
    m = manager(PRIORITIZE)
    m.submit(1)
    m.answer(PRIORITIZE, priority=5)
    m.urgency(1, 20)
    m.queue(start=False)
    m.queue(start=True)
    m.put(alloc_answer(1, kind))  # type: ignore[arg-type]
    assert m.answer(PRIORITIZE, priority=6) == ["sched.alloc 1"]


@pytest.mark.parametrize("priority", [0, 6])
def test_job_denied_while_the_plugin_thinks_ends(priority: int) -> None:
    """27.deny.5: its request is not canceled, so the denial counts, also in PRIORITY."""
    m = manager(PRIORITIZE)
    m.submit(1)
    m.answer(PRIORITIZE, priority=5)
    m.urgency(1, 20)
    assert m.state(1) == JobState.PRIORITY
    assert "event job-exception 1 alloc 0" in m.alloc(1, DENY, note="never")
    assert m.state(1) == JobState.INACTIVE
    assert m.context(1, "exception")["note"] == "never"
    names = m.names(1)
    assert m.answer(PRIORITIZE, priority=priority) == []
    assert m.names(1) == names


# --- posts that have no place


def test_post_with_a_bad_context_or_id_is_refused() -> None:
    m = manager()
    m.submit(1)
    (line,) = m.post(1, "prolog-start")
    assert "expected the key description" in line
    (line,) = m.post(9, "memo", a=1)
    assert "expected the id of an active job" in line


def test_answer_whose_event_has_no_place_is_logged_and_the_job_goes_on() -> None:
    m = manager(DEPEND)
    m.submit(1)
    line, alloc = m.answer(DEPEND, posts=(("prolog-start", {"description": "p"}),))
    who = "log 3: plugin plug: cannot post prolog-start to job ƒ2: "
    assert line.startswith(f"{who}prolog-start: expected a job")
    assert alloc == "sched.alloc 1"


def test_post_that_lost_its_place_while_it_waited_is_logged() -> None:
    m = manager(DEPEND)
    m.submit(1)
    m.post(1, "finish", status=0)
    line, alloc = m.answer(DEPEND)
    assert line.endswith("cannot post finish to job ƒ2: finish: only the job manager posts it")
    assert alloc == "sched.alloc 1"


def test_two_jobs_in_one_turn_are_asked_about_apart() -> None:
    m = manager(DEPEND)
    assert m.submit(1, 2) == [
        "ask job.state.depend 1",
        "ask job.state.depend 2",
        "job-manager.submit -> {'errors': []}",
    ]


def test_a_dependency_is_removed_only_when_it_was_added() -> None:
    """21.events.16, 21.events.17: the description must match one of a dependency-add."""
    m = ManagerScript(hooks=[STATE_TOPICS[JobState.DEPEND]], peers=True)
    m.submit(1)
    added = ("dependency-add", {"description": "data is there"})
    m.answer(STATE_TOPICS[JobState.DEPEND], posts=(added,))
    log = m.post(1, "dependency-remove", description="another")
    assert "expected a dependency that was added" in " ".join(log)
    assert m.state(1) == JobState.DEPEND
    m.post(1, "dependency-remove", description="data is there")
    assert m.state(1) == JobState.SCHED
