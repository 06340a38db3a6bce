"""Jobs that a restart brings back, and plugins that are loaded while there are jobs."""

from __future__ import annotations

import pytest

from flux_trio.cores.job_manager.jobs.sweeps import SLICE_JOBS
from flux_trio.protocols import AskHook, HookAnswer, HookAnswered, JobState, PluginsChanged
from tests.support.asking import asked
from tests.support.manager_script import PRIORITIZE, ManagerScript, posting

DEPEND = "job.state.depend"
RUN = "job.state.run"
CLEANUP = "job.state.cleanup"
A = {"description": "a"}

LOADED = PluginsChanged("x", ticket=7)


def everything(m: ManagerScript) -> ManagerScript:
    """The next job manager, whose plugins handle all there is."""
    return m.restarted(everything=True, peers=True)


# --- restart


def test_job_in_sched_is_created_and_new_before_its_restart_is_an_event() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    after = m.restarted(everything=True)
    assert after.plugins.heard == ["job.create", "job.new", "job.state.priority", "job.state.sched"]


def test_plugin_that_answers_later_delays_no_other_job_at_restart() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.submit(2)
    slow = m.restarted(hooks=["job.new"])
    assert "flux-restart" not in slow.names(2)
    first = next(q for q in slow.plugins.questions if q.topic == "job.new")
    slow.put(HookAnswered(first.ticket, HookAnswer()))
    assert ("flux-restart" in slow.names(1), "flux-restart" in slow.names(2)) == (True, False)
    slow.answer("job.new")
    assert slow.names(2).count("flux-restart") == 1


def test_job_in_depend_has_its_dependencies_and_its_hook_again() -> None:
    """26.events.4: so that a plugin reacquires its state."""
    add = posting(("dependency-add", A))
    m = ManagerScript(answers={"job.dependency.moon": add}, peers=True)
    m.submit(1, attributes={"system.dependencies": [{"scheme": "moon", "value": ""}]})
    after = m.restarted(answers={"job.dependency.moon": add}, everything=True, peers=True)
    assert after.plugins.heard == ["job.create", "job.dependency.moon", "job.new", DEPEND]
    assert after.names(1) == m.names(1)
    assert "sched.alloc 1" in after.post(1, "dependency-remove", **A)


@pytest.mark.parametrize("answer", [HookAnswer(error="no moon"), HookAnswer(reject="no moon")])
def test_dependency_that_fails_at_restart_raises_an_exception(answer: HookAnswer) -> None:
    add = posting(("dependency-add", A))
    m = ManagerScript(answers={"job.dependency.moon": add}, peers=True)
    m.submit(1, attributes={"system.dependencies": [{"scheme": "moon", "value": ""}]})
    after = m.restarted(answers={"job.dependency.moon": answer}, peers=True)
    exception = after.context(1, "exception")
    assert (exception["type"], exception["severity"]) == ("dependency", 4)
    assert exception["note"] == "no moon (job may be stuck in DEPEND state)"
    without = m.restarted(peers=True)
    assert without.context(1, "exception")["note"] == (
        'dependency scheme "moon" not supported (job may be stuck in DEPEND state)'
    )


def test_job_that_was_not_accepted_yet_is_validated_at_restart() -> None:
    m = ManagerScript()
    m.submission(1)
    assert everything(m).plugins.heard[:3] == ["job.create", "job.validate", "job.new"]


def test_job_goes_on_if_create_and_new_fail_at_restart() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    failed = HookAnswer(error="plugin x failed")
    after = m.restarted(answers={"job.create": failed, "job.new": failed}, peers=True)
    assert after.state(1) == JobState.SCHED


def test_hook_of_run_is_asked_again_unless_the_job_had_its_prolog_or_started() -> None:
    prolog = posting(("prolog-start", A))
    m = ManagerScript(peers=True)
    m.running(1)
    m.submit(2)
    m.plugins.answers[RUN] = prolog
    m.alloc(2)
    m.plugins.answers[RUN] = HookAnswer()
    m.gone("job-exec")
    m.submit(3)
    m.alloc(3)

    def on_new(question: AskHook) -> HookAnswer:
        assert question.job is not None
        return prolog(question) if question.job.id == 2 else HookAnswer()

    after = m.restarted(everything=True, answers={"job.new": on_new})
    assert [q.job.id for q in after.plugins.questions if q.topic == RUN and q.job] == [3]


def test_prolog_that_no_plugin_takes_up_ends_and_so_does_its_job() -> None:
    m = ManagerScript(answers={RUN: posting(("prolog-start", A))}, peers=True)
    m.submit(1)
    m.alloc(1)
    after = m.restarted(peers=True)
    assert after.context(1, "prolog-finish") == A | {"status": 256}
    assert after.context(1, "exception")["note"] == (
        "prolog a was under way at a restart, and no plugin goes on with it"
    )
    assert after.job(1).exception is not None


def test_job_that_is_canceled_in_a_prolog_that_goes_on_is_not_started() -> None:
    """21.events.22: a start was never sent, so that no execution service is asked about it."""
    prolog = posting(("prolog-start", A))
    m = ManagerScript(answers={RUN: prolog}, peers=True)
    m.submit(1)
    m.alloc(1)
    after = m.restarted(answers={"job.new": prolog}, peers=True)
    assert "job-exec.start 1" not in after.raise_(1)
    assert after.post(1, "prolog-finish", status=1, **A) == ["sched.free 1"]


def test_epilog_that_no_plugin_takes_up_ends_with_a_note() -> None:
    m = ManagerScript(answers={CLEANUP: posting(("epilog-start", A))}, peers=True)
    m.running(1)
    m.execute(1, "finish", "release final")
    after = m.restarted(peers=True)
    assert after.context(1, "epilog-finish") == A | {"status": 256}
    assert after.context(1, "exception")["severity"] == 1
    assert after.last("sched.free").payload == {"id": 1}


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_plugin_takes_up_a_prolog_or_epilog_by_starting_it_again(kind: str) -> None:
    post = posting((f"{kind}-start", A))
    m = ManagerScript(answers={RUN if kind == "prolog" else CLEANUP: post}, peers=True)
    m.submit(1)
    m.alloc(1)
    if kind == "epilog":
        m.execute(1, "start", "finish", "release final")
    after = m.restarted(answers={"job.new": post}, peers=True)
    assert after.names(1) == m.names(1)
    did = after.post(1, f"{kind}-finish", description="a", status=0)
    assert did == ["job-exec.start 1" if kind == "prolog" else "sched.free 1"]


# --- a plugin is loaded


def loading(*jobids: int) -> ManagerScript:
    """Jobs in SCHED, and from then on plugins that handle everything."""
    m = ManagerScript(peers=True)
    m.submit(*jobids)
    m.plugins.everything = True
    m.plugins.heard.clear()
    m.plugins.questions.clear()
    return m


def test_loaded_plugin_is_told_of_each_job_and_then_all_priorities_are_asked_for() -> None:
    m = loading(1, 2)
    assert m.put(LOADED) == ["replayed 7"]
    asks = [(q.topic, q.job.id, q.only) for q in m.plugins.questions if q.job]
    assert asks == [
        ("job.create", 1, "x"),
        ("job.new", 1, "x"),
        ("job.create", 2, "x"),
        ("job.new", 2, "x"),
        ("job.priority.get", 1, None),
        ("job.priority.get", 2, None),
    ]


def test_jobs_in_depend_have_their_dependencies_and_hook_for_the_loaded_plugin_alone() -> None:
    add = posting(("dependency-add", A))
    m = ManagerScript(answers={"job.dependency.moon": add}, peers=True)
    m.submit(1, attributes={"system.dependencies": [{"scheme": "moon", "value": ""}]})
    m.plugins.everything = True
    m.plugins.questions.clear()
    m.put(LOADED)
    assert [(q.topic, q.only) for q in m.plugins.questions] == [
        ("job.create", "x"),
        ("job.dependency.moon", "x"),
        ("job.new", "x"),
        (DEPEND, "x"),
    ]


@pytest.mark.parametrize(
    ("order", "jobids"), [("none", [1, 2, 3]), ("state", [2, 1, 3]), ("-state", [3, 1, 2])]
)
def test_jobs_are_told_in_the_order_asked_for(order: str, jobids: list[int]) -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.plugins.answers[DEPEND] = posting(("dependency-add", A))
    m.submit(2)
    del m.plugins.answers[DEPEND]
    m.running(3)
    m.plugins.everything = True
    m.plugins.questions.clear()
    m.put(PluginsChanged("x", order))
    assert [q.job.id for q in m.plugins.questions if q.topic == "job.new" and q.job] == jobids


def test_replay_ends_when_the_last_job_is_told_of() -> None:
    m = loading(1)
    m.plugins.waiting.add("job.new")
    assert m.put(LOADED) == ["ask job.new 1"]
    assert m.answer("job.new") == ["replayed 7"]


def test_job_that_ends_while_its_hook_is_asked_does_not_hold_up_the_replay() -> None:
    m = loading(1)
    m.plugins.waiting.add("job.new")
    m.put(LOADED)
    assert "replayed 7" in m.raise_(1)


def test_many_jobs_are_told_of_in_slices_and_requests_are_answered_between() -> None:
    jobids = range(1, 2 * SLICE_JOBS + 2)
    m = loading(*jobids)
    now = m.now
    first = m.turns.turn(now, [LOADED])
    assert m.plugins.heard.count("job.new") == SLICE_JOBS
    (timer,) = [each for each in first if type(each).__name__ == "SetTimer"]
    between = m.turns.turn(now, [asked("job-manager.queue-list")])
    assert [r.payload for r in between if getattr(r, "topic", "") == "job-manager.queue-list"]
    assert timer.at == now


def test_plugin_that_is_loaded_before_the_jobs_are_read_back_hears_of_them_once() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    after = ManagerScript(kvs=m.kvs, everything=True, early=[LOADED])
    assert after.plugins.heard.count("job.create") == 1
    assert "replayed 7" in after.began


def test_unloaded_plugin_may_have_been_the_one_that_knew_the_priority() -> None:
    m = ManagerScript(answers={PRIORITIZE: HookAnswer()}, peers=True)
    m.submit(1)
    assert m.state(1) == JobState.PRIORITY
    m.plugins.answers["job.priority.get"] = HookAnswer(priority=4)
    assert "sched.alloc 1" in m.put(PluginsChanged())
