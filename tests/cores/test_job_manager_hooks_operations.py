"""What plugins want done: dependencies, prologs and epilogs, posts, annotations, flags."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_manager.plugins.operations import ANNOTATION_BYTES_MAX, EVENT_BYTES_MAX
from flux_trio.messages import topics
from flux_trio.protocols import Annotate, AskHook, HookAnswer, JobState, PostEvent, SetPriority
from tests.support.asking import asked
from tests.support.manager_script import PRIORITIZE, ManagerScript, posting

DEPEND = "job.state.depend"
SCHED = "job.state.sched"
RUN = "job.state.run"
CLEANUP = "job.state.cleanup"

A = {"description": "a"}
FINISHED = {"description": "a", "status": 0}


def saying(topic: str, *posts: tuple[str, dict[str, Any]], **how: Any) -> ManagerScript:
    """Each job gets these events in the hook `topic`."""
    return ManagerScript(answers={topic: posting(*posts)}, peers=True, **how)


def refused(did: list[str]) -> str:
    """The text of the one operation that was not done."""
    assert len(did) == 1, did
    line = did[0]
    assert line.startswith("log 3: plugin plug: cannot post ")
    return line.partition(": cannot post ")[2]


# --- dependencies (RFC 26)


def test_dependencies_are_the_plugins_and_hold_depend() -> None:
    """26.events.1, 26.events.2, 26.events.3: posted for a plugin; matched by their description."""
    m = saying(DEPEND, ("dependency-add", A), ("dependency-add", {"description": "b"}))
    m.submit(1)
    assert m.state(1) == JobState.DEPEND
    m.post(1, "dependency-remove", **A)
    assert m.state(1) == JobState.DEPEND
    assert m.post(1, "dependency-remove", description="b") == ["sched.alloc 1"]


def test_dependency_that_is_queued_behind_a_hook_holds_depend() -> None:
    m = ManagerScript(hooks=[DEPEND], peers=True)
    m.submit(1)
    m.post(1, "dependency-add", **A)
    assert m.answer(DEPEND) == []
    assert m.state(1) == JobState.DEPEND


def test_open_dependency_that_is_added_again_is_neither_an_error_nor_posted() -> None:
    """26.events.4."""
    m = saying(DEPEND, ("dependency-add", A))
    m.submit(1)
    assert m.post(1, "dependency-add", **A) == []
    assert m.names(1).count("dependency-add") == 1


def test_dependency_that_was_removed_is_not_added_again() -> None:
    """26.events.5: a text counts once for the life of a job, also over a restart."""
    m = saying(DEPEND, ("dependency-add", A), ("dependency-add", {"description": "b"}))
    m.submit(1)
    m.post(1, "dependency-remove", **A)
    rule = "dependency-add: 'a' was removed: a job can have a description only once"
    assert rule in refused(m.post(1, "dependency-add", **A))
    after = m.restarted(peers=True)
    assert rule in refused(after.post(1, "dependency-add", **A))


def test_dependencies_have_no_place_once_the_job_has_left_depend() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    text = refused(m.post(1, "dependency-add", **A))
    assert "expected a job in NEW or DEPEND, it is in SCHED" in text


# --- prolog and epilog


def test_prolog_that_is_queued_behind_a_hook_holds_start() -> None:
    m = ManagerScript(hooks=[RUN], peers=True)
    m.submit(1)
    m.alloc(1)
    m.post(1, "prolog-start", **A)
    assert m.answer(RUN) == []
    assert m.post(1, "prolog-finish", **FINISHED) == ["job-exec.start 1"]


def test_prolog_comes_before_the_start_request() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.alloc(1)
    assert "expected before the start request" in refused(m.post(1, "prolog-start", **A))


def test_status_of_a_prolog_is_information_only() -> None:
    m = saying(RUN, ("prolog-start", A))
    m.submit(1)
    m.alloc(1)
    assert m.post(1, "prolog-finish", description="a", status=256) == ["job-exec.start 1"]


def test_epilog_that_is_queued_behind_a_hook_holds_free_and_clean() -> None:
    m = ManagerScript(hooks=[CLEANUP], peers=True)
    m.running(1)
    m.execute(1, "finish", "release final")
    m.post(1, "epilog-start", **A)
    assert m.answer(CLEANUP) == []
    assert m.post(1, "epilog-finish", **FINISHED) == ["sched.free 1"]


def test_epilog_has_its_place_in_cleanup_before_free() -> None:
    m = saying(CLEANUP, ("epilog-start", {"description": "b"}))
    m.running(1)
    assert "expected a job in CLEANUP" in refused(m.post(1, "epilog-start", **A))
    m.execute(1, "finish", "release final")
    m.post(1, "epilog-finish", description="b", status=0)
    assert m.last("sched.free").payload == {"id": 1}
    assert m.post(1, "epilog-start", **A) == []  # free is sent, not logged: clean waits
    m.freed(1)
    assert m.state(1) == JobState.CLEANUP
    m.post(1, "epilog-finish", **FINISHED)
    assert m.state(1) == JobState.INACTIVE


def test_request_of_a_job_that_has_ended_is_canceled_while_plugins_think() -> None:
    """27.exceptions.2: upon entering CLEANUP."""
    m = ManagerScript(hooks=[CLEANUP], peers=True)
    m.submit(1)
    assert "sched.cancel 1" in m.raise_(1)
    assert m.state(1) == JobState.CLEANUP
    assert "sched.cancel 1" not in m.answer(CLEANUP)
    assert m.state(1) == JobState.INACTIVE


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_finish_needs_a_start(kind: str) -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    text = refused(m.post(1, f"{kind}-finish", **FINISHED))
    assert f"{kind} that was started, got 'a'" in text


# --- other posts


def test_job_managers_own_events_are_not_a_plugins_to_post() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    for name in ("alloc", "depend", "free", "start", "clean"):
        assert f"{name}: only the job manager posts it" in refused(m.post(1, name))


def test_fatal_exception_is_refused_in_new_and_others_only_record() -> None:
    fatal = {"type": "x", "severity": 0, "note": ""}
    m = saying("job.validate", ("exception", fatal), ("exception", fatal | {"severity": 7}))
    did = m.submit(1)
    assert "severity 0 is not allowed before the job is valid" in did[0]
    assert m.names(1)[:3] == ["submit", "exception", "validate"]
    assert m.state(1) == JobState.SCHED


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"resources": []}, "expected a key that starts with attributes."),
        ({"attributes.system.duration.s": 1}, "expected an object"),
        ({}, "expected at least one key path"),
    ],
)
def test_jobspec_update_that_is_none_is_refused(context: dict[str, Any], why: str) -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    assert why in refused(m.post(1, "jobspec-update", **context))


def test_jobspec_update_has_no_place_once_resources_are_held() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    text = refused(m.post(1, "jobspec-update", **{"attributes.system.duration": 9}))
    assert "expected a job in NEW or DEPEND or PRIORITY or SCHED, it is in RUN" in text


def test_jobspec_update_that_changes_nothing_is_not_logged() -> None:
    """So that a plugin that says it in each state does not send the job round for ever."""
    update = ("jobspec-update", {"attributes.system.bank": "b"})
    m = saying(SCHED, update)
    assert "sched.alloc 1" in m.submit(1)
    assert m.names(1).count("jobspec-update") == 1


@pytest.mark.parametrize("hooks", [[], ["job.update"]], ids=["", "job.update is asked, too"])
def test_plugin_that_sends_a_job_round_for_ever_is_named_and_the_job_is_held(
    hooks: list[str],
) -> None:
    count = iter(range(10_000))

    def another(question: AskHook) -> HookAnswer:
        assert question.job is not None
        n, jobid = next(count), question.job.id
        update = {"attributes.system.n": n}
        sender = "looper" if n > 50 else "other"
        return HookAnswer(
            operations=(
                PostEvent(jobid, "jobspec-update", update, sender),
                PostEvent(jobid, "memo", {}, "bystander"),
            )
        )

    answers = {SCHED: another} | dict.fromkeys(hooks, HookAnswer())
    m = ManagerScript(answers=answers, peers=True)
    (line,) = [line for line in m.submit(1) if "SCHED" in line]
    assert line.endswith(
        "in PRIORITY: plugins sent the job back from SCHED more than 100 times at once, "
        "the last time plugin looper"
    )
    assert m.state(1) == JobState.PRIORITY
    assert m.names(1).count("jobspec-update") == 101


def test_many_changes_of_urgency_at_once_are_not_taken_for_a_plugins() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    changes = [{"id": 1, "urgency": n % 2 + 9} for n in range(150)]
    did = m.put(*[asked(topics.JOB_URGENCY, change) for change in changes])
    assert [line for line in did if line.startswith("log ")] == []
    assert m.names(1).count("urgency") == 150
    assert m.state(1) == JobState.SCHED


def test_flags_are_those_there_are() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    assert m.post(1, "set-flags", flags=["waitable"]) == []
    assert m.job(1).flags == 2
    assert "expected one of alloc-bypass, debug" in refused(m.post(1, "set-flags", flags=["x"]))


def test_annotations_are_merged_and_told_in_the_journal_alone() -> None:
    m = ManagerScript(
        answers={DEPEND: HookAnswer(operations=(Annotate(1, {"user": {"a": 1}}, "plug"),))},
        peers=True,
    )
    m.submit(1)
    m.put(Annotate(1, {"user": {"b": 2}}, "plug"))
    m.put(Annotate(1, {"user": {"a": None}}, "plug"))
    assert "annotations" not in str(m.log(1))
    m.alloc(1)
    assert m.context(1, "alloc") == {"annotations": {"user": {"b": 2}}}


# --- other jobs, and order


def test_hook_may_act_on_another_job_and_what_follows_is_done_in_the_same_turn() -> None:
    m = saying(DEPEND, ("dependency-add", A))
    m.submit(1)
    remove = PostEvent(1, "dependency-remove", A, "plug")
    m.plugins.answers[DEPEND] = HookAnswer(operations=(remove,))
    assert m.submit(2) == ["job-manager.submit -> {'errors': []}", "sched.alloc 1", "sched.alloc 2"]


def test_operation_on_a_job_whose_hook_is_asked_waits_for_the_answer() -> None:
    m = ManagerScript(hooks=[DEPEND], peers=True)
    m.submit(1)
    m.post(1, "memo", a=1)
    m.put(SetPriority(1, 7, "plug"))
    assert m.names(1) == ["submit", "validate"]
    m.answer(DEPEND)
    assert m.names(1)[2:] == ["memo", "depend", "priority"]


def test_two_hooks_that_act_on_each_others_jobs_end() -> None:
    m = ManagerScript(peers=True)

    def poke(question: Any) -> HookAnswer:
        other = 3 - question.job.id
        return HookAnswer(operations=(PostEvent(other, "memo", {"from": question.job.id}, "p"),))

    m.plugins.answers[PRIORITIZE] = HookAnswer(priority=1)
    m.plugins.answers[SCHED] = poke
    m.submit(1, 2)
    assert [m.names(jobid).count("memo") for jobid in (1, 2)] == [1, 1]


# --- bounds


def test_events_that_plugins_post_are_bounded_for_each_job() -> None:
    m = saying(DEPEND, ("dependency-add", A))
    m.submit(1)
    quarter = "x" * (EVENT_BYTES_MAX // 4)
    *_, last = [m.post(1, "mine", text=quarter) for _ in range(4)]
    assert refused(last).endswith(f"at most {EVENT_BYTES_MAX}; further ones are not logged")
    for life in (m, m.restarted(peers=True)):
        before = life.names(1)
        life.post(1, "mine", text=quarter)
        assert life.post(1, "mine", text="") == []
        assert life.names(1) == before
    m.submit(2)
    m.post(2, "mine", text="")
    assert "mine" in m.names(2)
    assert m.post(1, "dependency-remove", **A) == ["sched.alloc 1"]
    m.post(1, "exception", type="mine", severity=0, note="")
    assert m.state(1) == JobState.INACTIVE


def test_annotations_of_a_job_are_bounded() -> None:
    m = ManagerScript()
    m.submit(1)
    long = "x" * (ANNOTATION_BYTES_MAX // 2)
    m.put(Annotate(1, {"user": {"a": long}}, "plug"))
    text = refused(m.put(Annotate(1, {"user": {"b": long}}, "plug")))
    assert text.endswith(f"bytes: at most {ANNOTATION_BYTES_MAX}")
    job = m.core.get(1)
    assert job is not None
    assert job.annotations == {"user": {"a": long}}
    assert m.put(Annotate(1, {"user": {"a": None, "b": long}}, "plug")) == []
