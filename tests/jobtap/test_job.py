"""`Job`: what a handler reads of a job, and what it may do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from flux_trio import jobtap
from flux_trio.formats import Jobspec
from flux_trio.jobtap import NotAllowed, State
from flux_trio.protocols import Annotate, HookAnswer, PostEvent, Reprioritize, SetPriority
from flux_trio.sim import make_machine
from tests.support.job_view import SeenJob
from tests.support.plugin_host import JOB, OWNER, PRIORITY, handling, rig

JOBSPEC = msgspec.json.encode(Jobspec.from_command(["true"]).to_json())
R = make_machine(1, 2).to_json()

Act = Callable[[jobtap.Job], Any]


async def doing(act: Act, job: SeenJob, topic: str = PRIORITY) -> HookAnswer:
    """What comes of a handler that does this."""
    async with rig(handling(topic, lambda job: act(job) and None)) as r:
        return r.answer(topic, job)


async def refused(act: Act, job: SeenJob, topic: str = PRIORITY) -> str:
    """The rule that a call breaks."""
    rules: list[str] = []

    def handler(job: jobtap.Job) -> None:
        with pytest.raises(NotAllowed) as caught:
            act(job)
        rules.append(str(caught.value))

    async with rig(handling(topic, handler)) as r:
        answer = r.answer(topic, job)
        assert answer.error is None, answer.error
        assert answer.operations == ()
    return rules[0]


# --- reading


async def test_job_shows_what_it_is_and_why_it_is_here() -> None:
    seen: list[dict[str, Any]] = []
    job = SeenJob(
        state=State.RUN,
        jobspec=JOBSPEC,
        dependencies={"after=1"},
        annotations={"user": "x"},
        resources=R,
        flags=2,
        urgency=20,
        priority=30,
    )
    event = jobtap.Event(3.0, "alloc", {})
    names = "id userid urgency priority state t_submit flags dependencies annotations R result"

    def look(job: jobtap.Job) -> None:
        seen.append({name: getattr(job, name) for name in names.split()})
        assert (job.previous, job.event, job.topic) == (State.SCHED, event, "job.state.run")
        assert job.jobspec.nslots == 1
        assert job.raw_jobspec["version"] == 1
        assert job.plugin.name == "a"
        assert repr(job) == "<Job ƒ8 RUN>"

    async with rig(handling("job.state.run", look)) as r:
        r.ask("job.state.run", job, event, previous=State.SCHED)
        assert r.logged == []
    assert seen == [
        {
            "id": 7,
            "userid": 1000,
            "urgency": 20,
            "priority": 30,
            "state": State.RUN,
            "t_submit": 100.0,
            "flags": 2,
            "dependencies": {"after=1"},
            "annotations": {"user": "x"},
            "R": R,
            "result": None,
        }
    ]


async def test_job_that_is_kept_is_judged_as_it_is_at_the_call() -> None:
    kept: list[jobtap.Job] = []
    job = SeenJob(state=State.RUN)
    async with rig(handling("job.state.run", lambda job: kept.append(job))) as r:
        r.jobs(job)
        r.ask("job.state.run", job)
        kept[0].prolog_start("p")
        r.jobs(replace(job, start_requested=True, posted=("start",)))
        with pytest.raises(NotAllowed, match="before the start request"):
            kept[0].prolog_start("p")
        assert kept[0].event_posted("start")
        r.jobs()
        with pytest.raises(NotAllowed, match="the job is inactive"):
            kept[0].post("late")
        with pytest.raises(NotAllowed, match="only active jobs"):
            kept[0].annotate({})
        with pytest.raises(NotAllowed, match="no more events"):
            kept[0].subscribe()
        kept[0].data["n"] = 1
        assert kept[0].data == {}, "data of a job that is over is not kept"
    assert (kept[0].state, kept[0].start_requested) == (State.RUN, False)


@pytest.mark.parametrize("name", ["state", "priority", "view", "_job_host", "mine"])
async def test_writing_to_a_job_is_an_error(name: str) -> None:
    def write(job: jobtap.Job) -> None:
        with pytest.raises(AttributeError):
            setattr(job, name, 3)
        with pytest.raises(AttributeError):
            setattr(job.view, name, 3)

    async with rig(handling("job.new", write)) as r:
        assert r.answer("job.new").error is None


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ({"state": State.RUN}, None),
        ({"state": State.CLEANUP, "status": 0}, "completed"),
        ({"state": State.INACTIVE, "status": 256}, "failed"),
        ({"state": State.CLEANUP, "exception": {"type": "cancel", "severity": 0}}, "canceled"),
        ({"state": State.CLEANUP, "exception": {"type": "timeout", "severity": 0}}, "timeout"),
        ({"state": State.CLEANUP, "exception": {"type": "exec"}, "status": 0}, "failed"),
    ],
)
async def test_result_is_there_once_the_job_has_ended(
    facts: dict[str, Any], result: str | None
) -> None:
    async with rig(handling("job.new", lambda job: None)) as r:
        r.jobs(SeenJob(**facts))
        assert r.host.find("a").plugin.jobs.result(7) == result
        assert r.host.find("a").plugin.jobs.result(8) is None


async def test_other_jobs_are_found_by_id_and_the_active_ones_in_order() -> None:
    async with rig(handling("job.new", lambda job: None)) as r:
        r.jobs(SeenJob(id=3), SeenJob(id=2, state=State.INACTIVE), SeenJob(id=5))
        jobs = r.host.find("a").plugin.jobs
        assert [job.id for job in jobs.active()] == [3, 5]
        found = jobs.get(2)
        assert found is not None
        assert (found.id, found.topic, found.previous, found.event) == (2, "", None, None)
        assert jobs.get(9) is None


# --- operations


@pytest.mark.parametrize(
    ("act", "facts", "name", "context"),
    [
        (
            lambda job: job.add_dependency("x"),
            {"state": State.DEPEND},
            "dependency-add",
            {"description": "x"},
        ),
        (
            lambda job: job.remove_dependency("x"),
            {"state": State.DEPEND, "dependencies": {"x"}},
            "dependency-remove",
            {"description": "x"},
        ),
        (
            lambda job: job.prolog_start("p"),
            {"state": State.RUN},
            "prolog-start",
            {"description": "p"},
        ),
        (
            lambda job: job.prolog_finish("p", 256),
            {"state": State.CLEANUP, "prologs": {"p"}},
            "prolog-finish",
            {"description": "p", "status": 256},
        ),
        (
            lambda job: job.epilog_start("e"),
            {"state": State.CLEANUP, "has_resources": True},
            "epilog-start",
            {"description": "e"},
        ),
        (
            lambda job: job.epilog_finish("e"),
            {"state": State.CLEANUP, "epilogs": {"e"}},
            "epilog-finish",
            {"description": "e", "status": 0},
        ),
        (
            lambda job: job.raise_exception("policy", 3, "beware"),
            {"state": State.NEW},
            "exception",
            {"type": "policy", "severity": 3, "note": "beware", "userid": OWNER},
        ),
        (
            lambda job: job.update({"attributes.system.duration": 5}),
            {"state": State.SCHED},
            "jobspec-update",
            {"attributes.system.duration": 5},
        ),
        (
            lambda job: job.set_flag("waitable"),
            {"state": State.DEPEND},
            "set-flags",
            {"flags": ["waitable"]},
        ),
        (lambda job: job.post("memo", {"a": 1}), {"state": State.RUN}, "memo", {"a": 1}),
    ],
)
async def test_operation_is_an_event_of_the_answer(
    act: Act, facts: dict[str, Any], name: str, context: dict[str, Any]
) -> None:
    answer = await doing(act, SeenJob(**facts))
    assert answer.operations == (PostEvent(7, name, context, "a"),)


@pytest.mark.parametrize(
    ("act", "facts", "rule"),
    [
        (
            lambda job: job.add_dependency("x"),
            {"state": State.PRIORITY},
            "expected a job in NEW or DEPEND, it is in PRIORITY",
        ),
        (
            lambda job: job.add_dependency("x"),
            {"state": State.DEPEND, "dependencies_met": {"x"}},
            "a description only once",
        ),
        (
            lambda job: job.remove_dependency("x"),
            {"state": State.DEPEND},
            "expected a dependency that was added, got 'x'",
        ),
        (
            lambda job: job.prolog_start("p"),
            {"state": State.RUN, "start_requested": True},
            "expected before the start request",
        ),
        (
            lambda job: job.prolog_start("p"),
            {"state": State.CLEANUP},
            "expected a job in RUN, it is in CLEANUP",
        ),
        (
            lambda job: job.prolog_finish("p"),
            {"state": State.RUN},
            "expected a prolog that was started",
        ),
        (
            lambda job: job.epilog_start("e"),
            {"state": State.RUN},
            "expected a job in CLEANUP, it is in RUN",
        ),
        (
            lambda job: job.epilog_start("e"),
            {"state": State.CLEANUP, "posted": ("free",)},
            "expected before the resources are freed",
        ),
        (
            lambda job: job.raise_exception("policy"),
            {"state": State.NEW},
            "severity 0 is not allowed before the job is valid",
        ),
        (
            lambda job: job.raise_exception("policy", 8),
            {"state": State.RUN},
            "exception.severity: expected int <= 7",
        ),
        (
            lambda job: job.update({"attributes.x": 1}),
            {"state": State.RUN},
            "expected a job in NEW or DEPEND or PRIORITY or SCHED, it is in RUN",
        ),
        (
            lambda job: job.update({"tasks": []}),
            {"state": State.SCHED},
            'expected a key that starts with attributes., got "tasks"',
        ),
        (lambda job: job.set_flag("novalidate"), {"state": State.NEW}, "got 'novalidate'"),
        (lambda job: job.post("clean"), {"state": State.RUN}, "only the job manager posts it"),
        (lambda job: job.post("memo", {}), {"state": State.INACTIVE}, "the job is inactive"),
        (lambda job: job.annotate({"a": 1}), {"state": State.INACTIVE}, "only active jobs"),
        (lambda job: job.set_priority(-1), {"state": State.SCHED}, "expected a priority"),
        (lambda job: job.set_priority(True), {"state": State.SCHED}, "expected a priority"),
        (lambda job: job.allocate(R), {"state": State.SCHED}, "in its job.state.sched only"),
    ],
)
async def test_operation_that_is_not_allowed_raises_and_names_the_rule(
    act: Act, facts: dict[str, Any], rule: str
) -> None:
    assert rule in await refused(act, SeenJob(**facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"state": State.DEPEND, "dependencies_met": {"x"}},
        {"state": State.SCHED, "dependencies_met": {"x"}},
        {"state": State.CLEANUP},
        {"state": State.INACTIVE},
    ],
)
async def test_dependency_that_holds_the_job_no_longer_is_removed_silently(
    facts: dict[str, Any],
) -> None:
    answer = await doing(lambda job: job.remove_dependency("x"), SeenJob(**facts))
    assert (answer.error, answer.operations) == (None, ())


async def test_dependency_of_a_job_that_cannot_be_looked_up_is_removed_silently() -> None:
    kept: list[jobtap.Job] = []
    async with rig(handling(PRIORITY, lambda job: kept.append(job))) as r:
        r.answer()
        r.jobs()
        kept[0].remove_dependency("x")
        assert r.posted == []
        with pytest.raises(NotAllowed, match=r"^job ƒ8: dependency-add: the job is inactive$"):
            kept[0].add_dependency("x")


async def test_error_of_an_operation_names_the_job_that_it_is_about() -> None:
    def act(job: jobtap.Job) -> None:
        other = job.plugin.jobs.get(9)
        assert other is not None
        other.prolog_start("p")

    async with rig(handling(PRIORITY, act)) as r:
        r.jobs(SeenJob(state=State.SCHED), SeenJob(id=9, state=State.SCHED))
        error = r.answer(PRIORITY, SeenJob(state=State.SCHED)).error or ""
        assert error.startswith(f"plugin a failed in {PRIORITY} for job ƒ8: NotAllowed: job ƒA: ")


async def test_what_is_queued_counts_as_if_it_were_there() -> None:
    def act(job: jobtap.Job) -> None:
        job.add_dependency("x")
        job.add_dependency("x")
        job.remove_dependency("x")
        job.remove_dependency("x")  # silent, as a second add is
        with pytest.raises(NotAllowed, match="expected a dependency that was added, got 'z'"):
            job.remove_dependency("z")
        job.remove_dependency("y")
        assert job.event_posted("dependency-add")
        assert job.event_posted("dependency-remove")
        assert not job.event_posted("memo")
        assert job.event_posted("submit")

    waiting = (("dependency-add", {"description": "y"}),)
    view = SeenJob(state=State.DEPEND, waiting=waiting, posted=("submit",))
    answer = await doing(act, view)
    assert answer.error is None
    assert [each.name for each in answer.operations if isinstance(each, PostEvent)] == [
        "dependency-add",
        "dependency-add",  # the job machine logs no repeat
        "dependency-remove",
        "dependency-remove",
    ]


async def test_what_another_plugin_of_the_chain_asked_for_counts_too() -> None:
    add = handling("job.state.depend", lambda job: job.add_dependency("x"), "one")
    remove = handling("job.state.depend", lambda job: job.remove_dependency("x"), "two")
    async with rig(add, remove) as r:
        answer = r.answer("job.state.depend", SeenJob(state=State.DEPEND))
    assert [each.plugin for each in answer.operations] == ["one", "two"]


async def test_priority_annotations_and_reprioritizing_go_into_the_answer() -> None:
    def act(job: jobtap.Job) -> None:
        job.set_priority(5)
        job.set_priority(jobtap.UNAVAILABLE)
        job.annotate({"user": {"a": 1}})
        job.plugin.reprioritize_all()

    answer = await doing(act, JOB)
    assert answer.operations == (
        SetPriority(7, 5, "a"),
        SetPriority(7, None, "a"),
        Annotate(7, {"user": {"a": 1}}, "a"),
        Reprioritize("a"),
    )


async def test_outside_a_hook_an_operation_goes_to_the_job_machine() -> None:
    async with rig(handling("job.new", lambda job: None)) as r:
        r.jobs(SeenJob(state=State.DEPEND))
        found = r.host.find("a").plugin.jobs.get(7)
        assert found is not None
        found.add_dependency("x")
        assert r.posted == [PostEvent(7, "dependency-add", {"description": "x"}, "a")]


async def test_job_is_allocated_in_its_own_sched_hook() -> None:
    view = SeenJob(state=State.SCHED)
    assert (await doing(lambda job: job.allocate(R), view, "job.state.sched")).resource_set == R
    rule = await refused(lambda job: job.allocate({"version": 2}), view, "job.state.sched")
    assert rule.startswith("R.version: ")


async def test_data_is_the_plugins_own_and_the_jobs_own() -> None:
    seen: list[tuple[str, int, Any]] = []

    def handler(job: jobtap.Job) -> None:
        seen.append((job.plugin.name, job.id, job.data.get("x")))
        job.data["x"] = job.id

    async with rig(handling(PRIORITY, handler, "a"), handling(PRIORITY, handler, "b")) as r:
        r.ask()
        r.ask(job=replace(JOB, id=9))
        r.ask(only="b")
        await r.host.remove("b")
        await r.host.load(handling(PRIORITY, handler, "b"))
        r.ask(only="b")
    assert seen == [
        ("a", 7, None),
        ("b", 7, None),
        ("a", 9, None),
        ("b", 9, None),
        ("b", 7, 7),
        ("b", 7, None),
    ]
