"""Jobs that a plugin holds, or that depend on such a job, may be active at rest; no others may."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from flux_trio.cores.job_manager.queues.waits import Waits
from flux_trio.cores.kvs.ops import Put
from flux_trio.formats import Event, format_eventlog, job_key
from flux_trio.lab import Crash, JobPlan, OwnerRequest, Plan, Setup, When, run_plan
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.plans.workload import Action
from flux_trio.lab.world.waiting import Waiting
from flux_trio.store.stores import MemoryStore
from flux_trio.trace import Kind, Record

PLUGIN = """
    from flux_trio import jobtap
    from flux_trio.formats import format_fluid

    class Mine(jobtap.Plugin):
        def __init__(self):
            self.first = None

        @jobtap.on("job.state.depend")
        def depend(self, job):
            {depend}

        @jobtap.on("job.state.priority", "job.priority.get")
        def priority(self, job):
            {priority}
    """
HELD = {"unavailable": "return jobtap.UNAVAILABLE", "priority 0": "return 0"}
ONE_WAITS = "self.first = self.first or job.id; " + "return 0 if job.id == self.first else 9"
ON_FIRST = (
    "self.first = self.first or job.id; "
    "self.first == job.id or job.add_dependency('behind=' + format_fluid(self.first, 'f58'))"
)


def problems(
    tmp_path: Path, depth: Depth = "cores", *, depend: str = "pass", priority: str = "return 9"
) -> tuple[str, ...]:
    """What is broken in a world of two jobs with the plugin, whose scheduler crashes once."""
    path = tmp_path / "mine.py"
    path.write_text(dedent(PLUGIN).format(depend=depend, priority=priority))
    setup = Setup(plugins=(str(path),))
    jobs = (JobPlan(), JobPlan(at=1.0))
    plan = Plan(
        1,
        jobs=jobs,
        faults=(Crash("sched", When("job-manager.submit")),),
        plugins=setup.plugins,
        depth=depth,
    )
    outcome = run_plan(plan, properties=setup.all_properties())
    assert outcome.never_struck == ()
    return outcome.problems


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("priority", HELD.values(), ids=HELD)
def test_jobs_that_a_plugin_holds_may_be_active_at_rest(
    tmp_path: Path, priority: str, depth: Depth
) -> None:
    assert problems(tmp_path, depth, priority=priority) == ()


def test_job_that_depends_on_one_that_a_plugin_holds_may_be_active_at_rest(tmp_path: Path) -> None:
    assert problems(tmp_path, depend=ON_FIRST, priority="return 0") == ()


def test_dependency_that_names_no_job_may_be_on_any_job(tmp_path: Path) -> None:
    depend = "if self.first: job.add_dependency('my-turn')"
    assert problems(tmp_path, depend=depend, priority=ONE_WAITS) == ()


def test_job_that_waits_for_a_dependency_for_ever_is_named(tmp_path: Path) -> None:
    found = problems(tmp_path, depend="job.add_dependency('never')")
    assert [each for each in found if not each.startswith("inactive: ")] == []
    assert len(found) == 2
    assert found[0].endswith(" is in DEPEND at rest, and waits for never")


def test_job_that_depends_on_one_that_has_ended_is_named(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, depend=ON_FIRST)
    assert "is in DEPEND at rest, and waits for behind=ƒ" in found


JOB = 7


def asked(result: Any, hook: str = "job.state.priority") -> Record:
    data = {"plugin": "mine", "hook": hook, "id": JOB, "result": result}
    return Record(1, 0.0, Kind.HOOK.value, "job-manager", data=data | {"error": None})


def rightly(said: list[Record], *events: str, behind: int = 0) -> set[int]:
    """Which jobs wait rightly after these records, if the job has these events.

    With `behind` another job, 8, depends on this one.
    """
    waiting = Waiting()
    for record in said:
        waiting.observe(record)
    contexts: dict[str, Any] = {
        "submit": {"userid": 0, "urgency": 16, "flags": 0},
        "priority": {"priority": 9},
        "dependency-add": {"description": f"behind={behind}"},
    }
    logs = {JOB: events, 8: ("validate", "dependency-add")}
    store = MemoryStore()
    for jobid, names in logs.items():
        log = [Event(1.0, name, contexts.get(name, {})) for name in ("submit", *names)]
        store.commit([Put(job_key(jobid, "eventlog"), format_eventlog(log))])
    return waiting.rightly(logs if behind else [JOB], store)


def test_dependency_on_another_job_than_the_one_that_is_held() -> None:
    held = ([asked(0)], "validate", "depend")
    assert rightly(*held, behind=JOB) == {JOB, 8}
    assert rightly(*held, behind=9) == {JOB}


def test_the_last_answer_of_a_plugin_counts() -> None:
    in_priority = ("validate", "depend")
    assert rightly([asked("UNAVAILABLE")], *in_priority) == {JOB}
    assert rightly([asked("UNAVAILABLE"), asked(None)], *in_priority) == {JOB}
    assert rightly([asked("UNAVAILABLE"), asked(9)], *in_priority) == set()
    assert rightly([asked(9), asked(0, "job.priority.get")], *in_priority) == {JOB}


def test_no_plugin_was_asked_since_all_was_put_right() -> None:
    assert rightly([], "validate", "depend") == set()


def test_answer_to_another_hook_is_no_priority() -> None:
    assert rightly([asked(0, "job.validate")], "validate", "depend") == set()


def test_job_that_has_left_sched_does_not_wait_for_a_plugin() -> None:
    assert rightly([asked(0)], "validate", "depend", "priority") == {JOB}
    assert rightly([asked(0)], "validate", "depend", "priority", "alloc") == set()


@pytest.mark.parametrize("what", ["queue-drain", "watch"])
def test_who_waits_for_a_held_job_may_have_no_answer(tmp_path: Path, what: Action) -> None:
    path = tmp_path / "mine.py"
    path.write_text(dedent(PLUGIN).format(depend="pass", priority=ONE_WAITS))
    setup = Setup(plugins=(str(path),))
    jobs = (JobPlan(), JobPlan(at=1.0))
    plan = Plan(1, jobs=jobs, actions=(OwnerRequest(0.5, what, job=0),), plugins=setup.plugins)
    assert run_plan(plan, properties=setup.all_properties()).problems == ()


def test_request_that_waits_for_no_held_job_has_to_be_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Waits, "_answer", lambda *_: None)
    plan = Plan(1, jobs=(JobPlan(),), actions=(OwnerRequest(0.5, "queue-drain"),))
    (problem,) = run_plan(plan).problems
    assert problem == "answered: the owner's queue-drain has no answer"
