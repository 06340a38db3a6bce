"""The job manager's side of RFC 32: starts, what the execution service says, prologs, epilogs."""

from __future__ import annotations

import pytest

from flux_trio.config import Config
from flux_trio.messages import Response
from flux_trio.protocols import JobState
from tests.support.manager_script import ManagerScript, start_answer

HELLO_OF_ANOTHER = ["job-manager.exec-hello -> {}", "event exec-service sim-exec False"]


@pytest.fixture
def alone() -> ManagerScript:
    """A job manager with a scheduler alone."""
    m = ManagerScript()
    m.attach_sched()
    return m


# --- hello


def test_hello_is_answered_with_an_empty_payload(alone: ManagerScript) -> None:
    """32.hello.7."""
    assert alone.attach_exec() == ["job-manager.exec-hello -> {}"]
    assert alone.last("job-manager.exec-hello").payload is None


@pytest.mark.parametrize("payload", [None, "job-exec", {}, {"service": ""}, {"service": 1}])
def test_hello_without_a_service_name_is_refused(alone: ManagerScript, payload: object) -> None:
    """32.hello.3, 32.hello.4"""
    lines = alone.ask("job-manager.exec-hello", payload)
    assert [line.partition(" EPROTO ")[0] for line in lines] == ["job-manager.exec-hello ->"]


def test_key_that_nobody_knows_is_no_reason_to_refuse_hello(alone: ManagerScript) -> None:
    """32.hello.5: RFC 32 says which keys there have to be, and forbids no other one."""
    lines = alone.ask("job-manager.exec-hello", {"service": "x", "more": 1})
    assert lines == ["job-manager.exec-hello -> {}", "event exec-service x False"]


def test_job_allocated_before_the_service_came_is_started(alone: ManagerScript) -> None:
    """32.start.1, 32.start.2: not before the hello is answered, and not without resources."""
    alone.submit(1, 2)
    assert alone.alloc(1) == []
    assert alone.attach_exec() == ["job-manager.exec-hello -> {}", "job-exec.start 1"]


def test_queue_status_says_that_jobs_wait_for_an_execution_service(alone: ManagerScript) -> None:
    status = "job-manager.queue-status -> {'enable': True, 'start': True"
    alone.submit(1, 2)
    assert alone.ask("job-manager.queue-status") == [f"{status}}}"]
    alone.alloc(1)
    text = "no execution service: jobs with resources wait in RUN (1)"
    assert alone.ask("job-manager.queue-status") == [f"{status}, 'silent': ['{text}']}}"]
    alone.attach_exec()
    assert alone.ask("job-manager.queue-status") == [f"{status}}}"]


def test_another_service_takes_over_when_nothing_is_outstanding(m: ManagerScript) -> None:
    """32.hello.2, 32.hello.6, 32.criteria.7: starts go to the new name."""
    assert m.attach_exec("sim-exec") == HELLO_OF_ANOTHER
    m.submit(1)
    assert m.alloc(1) == ["sim-exec.start 1"]


@pytest.mark.parametrize("said", [[], ["start"], ["start", "finish"], ["start", "release 0"]])
def test_takeover_is_refused_while_a_start_is_outstanding(
    m: ManagerScript, said: list[str]
) -> None:
    """32.hello.8, 32.start.38, 32.impl.8: until the final release, by an errnum."""
    m.submit(1)
    m.store_r(1, {0: [0], 1: [0]})
    m.alloc(1)
    m.execute(1, *said)
    assert m.attach_exec("sim-exec") == [
        "job-manager.exec-hello -> EINVAL job-exec has 1 start requests outstanding"
    ]
    m.execute(1, *([] if "finish" in said else ["finish"]), "release final")
    assert m.attach_exec("sim-exec") == HELLO_OF_ANOTHER


def test_in_current_another_service_takes_over_what_is_outstanding() -> None:
    """32.hello.6, 32.hello.8 as today's text has them: `reattach` is for what has started."""
    m = ManagerScript(config=Config(edition="current"))
    m.attach_sched()
    m.attach_exec()
    m.submit(1, 2)
    m.alloc(1)
    m.alloc(2)
    m.execute(1, "start")
    assert m.attach_exec("sim-exec")[1:] == [
        *HELLO_OF_ANOTHER,
        "sim-exec.start 1 reattach",
        "sim-exec.start 2",
    ]
    m.execute(1, "finish 256", service="job-exec")  # its answers are void
    m.execute(1, "reattached", "finish 512", "release final", service="sim-exec")
    assert [each.context for each in m.log(1) if each.name == "finish"] == [{"status": 512}]


# --- start


# --- what it says


def test_release_is_recorded_with_its_ranks_and_frees_once(m: ManagerScript) -> None:
    """32.start.23, 32.start.38, 32.start.39: each one an event, free after the final one."""
    m.running(1, ranks=4)
    assert m.execute(1, "release 2", "finish", "release 0-1") == []
    assert m.execute(1, "release 3 final") == ["sched.free 1"]
    releases = [event.context for event in m.log(1) if event.name == "release"]
    assert releases == [
        {"ranks": "2", "final": False},
        {"ranks": "0-1", "final": False},
        {"ranks": "3", "final": True},
    ]


@pytest.mark.parametrize(
    ("said", "wrong", "expected"),
    [
        ([], "release x", 'ranks: expected an idset such as "0-3,7", got "x"'),
        ([], "release 2", 'ranks: expected some of the ranks 0-1, got "2"'),
        ([], "release 1-2 final", 'ranks: expected some of the ranks 0-1, got "1-2"'),
        (["release 0"], "release 0", 'ranks: expected some of the ranks 1, got "0"'),
        (["release 0"], "release 0-1 final", 'ranks: expected some of the ranks 1, got "0-1"'),
        ([], "release 1 final", 'ranks: expected the ranks 0-1 with final true, got "1"'),
        ([], "release 0-1", "final: expected true with the last ranks, got False"),
        ([], "release all", "final: expected true with ranks 'all', got False"),
    ],
)
def test_release_of_ranks_that_the_job_does_not_hold_is_malformed(
    m: ManagerScript, said: list[str], wrong: str, expected: str
) -> None:
    """32.start.20, 32.start.21, and readings: Release ranks; it is not logged."""
    m.running(1, ranks=2)
    m.execute(1, *said)
    before = m.names(1)
    (line,) = m.execute(1, wrong)
    assert line.endswith(f"job-exec lost: job-exec.start: release of job 1: {expected}")
    assert m.names(1) == before
    assert m.attach_exec() == ["job-manager.exec-hello -> {}", "job-exec.start 1 reattach"]


def test_release_without_ranks_is_malformed(m: ManagerScript) -> None:
    """32.start.20"""
    m.running(1)
    data = {"ranks": "", "final": True}
    lines = m.put(Response("job-exec.start", {"id": 1, "type": "release", "data": data}))
    assert lines[0].endswith('ranks: expected some of the ranks 0, got ""')


@pytest.mark.parametrize("told", [["release 1 final"], ["release 0", "release 1 final"]])
@pytest.mark.parametrize("restarts", [False, True])
def test_next_service_tells_the_releases_again_or_only_the_rest(
    m: ManagerScript, told: list[str], *, restarts: bool
) -> None:
    """readings: Release ranks."""
    m.running(1, ranks=2)
    m.execute(1, "release 0")
    m.gone("job-exec")
    m = m.restarted(peers=True) if restarts else m
    m.attach_exec()
    assert m.execute(1, "finish", *told) == ["sched.free 1"]


def test_release_names_all_ranks_by_a_word(m: ManagerScript) -> None:
    """readings: Release ranks."""
    m.running(1, ranks=2)
    assert m.execute(1, "finish", "release all final") == ["sched.free 1"]
    assert m.context(1, "release") == {"ranks": "all", "final": True}


def test_exception_is_raised_on_the_job(m: ManagerScript) -> None:
    """32.start.24, 32.start.28, 32.start.34: at any point of the stream, with its note."""
    m.submit(1)
    m.alloc(1)
    assert m.execute(1, "exception 3") == ["event job-exception 1 exec 3"]
    m.execute(1, "start", "finish", "exception 4")
    expected = {"type": "exec", "severity": 4, "note": "why", "userid": 1000}
    assert m.context(1, "exception") == expected


def test_exception_without_a_note_has_an_empty_one(m: ManagerScript) -> None:
    """32.start.27: the note is optional."""
    m.running(1)
    data = {"severity": 1, "type": "x"}
    m.put(Response("job-exec.start", {"id": 1, "type": "exception", "data": data}))
    assert m.names(1)[-1] == "exception"
    assert m.context(1, "exception")["note"] == ""


def test_job_whose_shells_never_started_ends_without_start_and_finish(m: ManagerScript) -> None:
    """32.start.39: a fatal exception, then the final release; finish may be left out."""
    m.submit(1)
    m.alloc(1)
    m.execute(1, "exception 0")
    assert m.execute(1, "release final") == ["sched.free 1"]
    m.freed(1)
    assert m.names(1)[4:] == ["alloc", "exception", "release", "free", "clean"]


def test_final_release_without_finish_or_fatal_exception_is_the_services_error(
    m: ManagerScript,
) -> None:
    """readings: Final release without finish. The job gets a fatal exec exception."""
    m.running(1)
    text = "execution service released all resources before finish"
    assert m.execute(1, "release final") == [
        f"log 3: job 1: {text}",
        "event job-exception 1 exec 0",
        "sched.free 1",
    ]
    assert m.context(1, "exception")["note"] == text
    m.freed(1)
    assert m.names(1)[5:] == ["start", "exception", "release", "free", "clean"]


# --- loss


def test_error_response_is_the_services_end(m: ManagerScript) -> None:
    """32.impl.6, 32.impl.7: no exception on the job, nothing sent until the next hello."""
    m.submit(1, 2)
    m.alloc(1)
    error = Response("job-exec.start", "broken", 71)
    assert m.put(error) == ["log 3: execution service job-exec lost: job-exec.start: broken"]
    assert m.alloc(2) == []
    assert m.names(1)[-1] == "alloc"
    assert m.attach_exec() == [
        "job-manager.exec-hello -> {}",
        "job-exec.start 1",
        "job-exec.start 2",
    ]


def test_service_that_was_lost_is_asked_again_with_reattach(m: ManagerScript) -> None:
    """32.start.9, 32.criteria.6: true exactly for a job with start and no finish."""
    m.submit(1, 2)
    m.alloc(1)
    m.alloc(2)
    m.execute(1, "start")
    assert m.gone("job-exec") == ["log 6: execution service job-exec disconnected"]
    assert m.state(1) == JobState.RUN
    assert m.attach_exec()[1:] == ["job-exec.start 1 reattach", "job-exec.start 2"]
    m.execute(1, "start")
    assert m.names(1).count("start") == 1
    assert m.gone("somebody") == []


def test_finished_job_of_a_lost_service_is_released_by_the_job_manager(m: ManagerScript) -> None:
    """readings: Final release without finish. The service dies in CLEANUP, with finish logged."""
    m.running(1)
    m.execute(1, "finish")
    assert m.gone("job-exec")[1:] == ["sched.free 1"]
    assert m.context(1, "release") == {"ranks": "all", "final": True}


@pytest.mark.parametrize("said", [[], ["start"]])
def test_canceled_job_of_a_lost_service_is_asked_about_at_the_next(
    m: ManagerScript, said: list[str]
) -> None:
    """readings: Final release without finish.

    Nothing is freed under processes, no job waits for ever.
    """
    m.submit(1)
    m.alloc(1)
    m.execute(1, *said)
    m.raise_(1)
    assert m.gone("job-exec")[1:] == []
    asked = "job-exec.start 1 reattach" if said else "job-exec.start 1"
    assert m.attach_exec() == ["job-manager.exec-hello -> {}", asked]
    assert m.execute(1, "release final") == ["sched.free 1"]


def test_job_canceled_before_any_start_was_sent_is_freed_at_once(alone: ManagerScript) -> None:
    alone.submit(1)
    alone.alloc(1)
    assert alone.raise_(1)[-1] == "sched.free 1"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (start_answer(9, "start"), "no active job has id 9"),
        (start_answer(2, "start"), "start in state IDLE"),
        (Response("job-exec.start", {"id": 1, "type": "dance", "data": {}}), "payload"),
        (Response("job-exec.start", {"id": 1, "type": "finish", "data": {}}), "finish: data"),
        (start_answer(1, "start"), "start in state RUNNING"),
    ],
)
def test_answer_that_breaks_the_protocol_ends_the_service(
    m: ManagerScript, answer: Response, reason: str
) -> None:
    m.running(1)
    m.submit(2)
    (line,) = m.put(answer)
    assert line.startswith("log 3: execution service job-exec lost: ")
    assert reason in line
    assert m.state(1) == JobState.RUN


def test_answers_of_a_lost_service_are_dropped(m: ManagerScript) -> None:
    m.running(1)
    m.gone("job-exec")
    assert m.execute(1, "finish") == []
    assert m.state(1) == JobState.RUN


# --- prolog and epilog


def test_prolog_holds_the_start() -> None:
    """21.events.22: until the matching prolog-finish."""
    m = ManagerScript(hooks=["job.state.run"], peers=True)
    m.submit(1)
    assert m.alloc(1) == ["ask job.state.run 1"]
    posts = (("prolog-start", {"description": "a"}), ("prolog-start", {"description": "b"}))
    assert m.answer("job.state.run", posts=posts) == []
    assert m.post(1, "prolog-finish", description="a", status=0) == []
    assert m.post(1, "prolog-finish", description="b", status=0) == ["job-exec.start 1"]


def test_epilog_holds_free_and_clean() -> None:
    """21.events.25: until the matching epilog-finish, the final release notwithstanding."""
    m = ManagerScript(hooks=["job.state.cleanup"], peers=True)
    m.running(1)
    assert m.execute(1, "finish") == ["ask job.state.cleanup 1"]
    m.answer("job.state.cleanup", posts=(("epilog-start", {"description": "e"}),))
    assert m.execute(1, "release final") == []
    assert m.post(1, "epilog-finish", description="e", status=1) == ["sched.free 1"]
    m.freed(1)
    assert m.names(1)[6:] == ["finish", "epilog-start", "release", "epilog-finish", "free", "clean"]


def test_epilog_of_a_job_without_resources_holds_clean() -> None:
    m = ManagerScript(hooks=["job.state.cleanup"], peers=True)
    m.submit(1)
    m.raise_(1)
    m.answer("job.state.cleanup", posts=(("epilog-start", {"description": "e"}),))
    assert m.names(1)[-1] == "epilog-start"
    m.post(1, "epilog-finish", description="e", status=0)
    assert m.state(1) == JobState.INACTIVE
