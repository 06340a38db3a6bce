"""Handlers that answer for many jobs in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flux_trio import jobtap
from flux_trio.jobtap import UNAVAILABLE, Job, Plugin, PluginError
from flux_trio.protocols import AskJobs, HookAnswer
from tests.support.playing import context, names, simulated_jobs
from tests.support.plugin_host import JOB, rig

TOPIC = "job.priority.get"
VIEWS = tuple(replace(JOB, id=number, urgency=number) for number in (1, 2, 3))
FAILED = f"plugin many failed in {TOPIC}: "


class Many(Plugin):
    """Answers with what `say` returns for many jobs, and with 7 for one."""

    name = "many"

    def __init__(self, say: Callable[[list[Job]], Any]) -> None:
        self.say = say

    @jobtap.on(TOPIC)
    def one(self, _job: Job) -> int:
        return 7

    @jobtap.on_many(TOPIC)
    def all(self, jobs: list[Job]) -> Any:
        return self.say(jobs)


class One(Plugin):
    """Answers for one job at a time."""

    name = "one"

    @jobtap.on(TOPIC)
    def one(self, job: Job) -> int | None:
        return 900 if job.id == 2 else None


async def asked(*plugins: Plugin) -> tuple[tuple[HookAnswer | None, ...], Any]:
    """The answers about `VIEWS`, and the rig."""
    async with rig(*plugins) as host_rig:
        answered = host_rig.host.ask_jobs(AskJobs(5, TOPIC, VIEWS))
        assert answered.ticket == 5
        return answered.answers, host_rig


def priorities(answers: tuple[HookAnswer | None, ...]) -> list[Any]:
    return [answer and answer.priority for answer in answers]


async def test_jobs_are_handed_over_in_one_call_and_in_order():
    calls: list[list[int]] = []

    def say(jobs: list[Job]) -> list[Any]:
        calls.append([job.id for job in jobs])
        return [None, UNAVAILABLE, 10 * jobs[2].urgency]

    answers, host_rig = await asked(Many(say))
    assert calls == [[1, 2, 3]]
    assert answers == (HookAnswer(), HookAnswer(UNAVAILABLE), HookAnswer(30))
    shown = [(note["plugin"], note["hook"], note["id"], note["result"]) for note in host_rig.notes]
    assert shown == [
        ("many", TOPIC, 1, None),
        ("many", TOPIC, 2, repr(UNAVAILABLE)),
        ("many", TOPIC, 3, 30),
    ]


async def test_one_job_is_asked_about_by_the_other_handler():
    async with rig(Many(lambda jobs: [1] * len(jobs))) as host_rig:
        assert host_rig.answer(TOPIC) == HookAnswer(7)


async def test_value_of_a_later_plugin_counts_and_none_leaves_the_earlier_one():
    first = Many(lambda _jobs: [1, 2, 3])
    second = Many(lambda _jobs: [None, 20, None])
    second.name = "second"
    answers, _ = await asked(first, second)
    assert priorities(answers) == [1, 20, 3]


@pytest.mark.parametrize("many_first", [True, False])
async def test_plugins_that_take_one_job_are_asked_in_load_order(many_first: bool):
    plugins = [Many(lambda _jobs: [1, 2, 3]), One()]
    answers, _ = await asked(*(plugins if many_first else reversed(plugins)))
    # without a handler for many before it, each plugin is asked about one job at a time
    assert priorities(answers) == ([1, 900, 3] if many_first else [7, 7, 7])


class Odd(list):  # type: ignore[type-arg]
    """A list with code of its own."""

    def __len__(self) -> int:
        raise AssertionError("is not called")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ([1, 2], "expected a list of 3 answers, one for each job, got [1, 2]"),
        (None, "expected a list of 3 answers, one for each job, got None"),
        ((1, 2, 3), "expected a list of 3 answers, one for each job, got (1, 2, 3)"),
        ([1, -2, 3], "expected a priority from 0 to 4294967295 or UNAVAILABLE, got -2"),
        ([1, True, 3], "expected a priority from 0 to 4294967295 or UNAVAILABLE, got True"),
    ],
)
async def test_wrong_answer_is_a_failure_for_all_of_the_jobs(said: Any, problem: str):
    answers, host_rig = await asked(Many(lambda _jobs: said), One())
    assert answers == (HookAnswer(error=f"{FAILED}NotAllowed: {problem}"),) * 3
    assert len(host_rig.logged) == 1
    assert host_rig.logged[0].startswith(f"{FAILED}NotAllowed: {problem}")
    assert [note["error"] for note in host_rig.notes] == [f"NotAllowed: {problem}"]


async def test_list_with_code_of_its_own_is_a_wrong_answer():
    answers, _ = await asked(Many(lambda _jobs: Odd()))
    assert {answer.priority for answer in answers if answer} == {None}
    assert all(answer and answer.error for answer in answers)


async def test_error_is_a_failure_for_all_of_the_jobs_and_ends_the_chain():
    def say(_jobs: list[Job]) -> Any:
        raise ZeroDivisionError("no shares")

    answers, host_rig = await asked(Many(lambda _jobs: [1, 2, 3]), renamed(Many(say)), One())
    text = f"plugin second failed in {TOPIC}: ZeroDivisionError: no shares"
    assert answers == (HookAnswer(error=text),) * 3
    assert len(host_rig.logged) == 1


def renamed(plugin: Plugin) -> Plugin:
    plugin.name = "second"
    return plugin


async def test_calls_are_counted_once_for_all_jobs():
    async with rig(Many(lambda _jobs: [1, 2, 3])) as host_rig:
        host_rig.host.ask_jobs(AskJobs(1, TOPIC, VIEWS))
        found = await host_rig.host.query("many")
        assert found["hooks"][TOPIC]["count"] == 1


# --- what is refused when the plugin is loaded


async def asynchronous(_jobs: Any) -> Any:
    """Not allowed."""


def without_jobs() -> Any:
    """Not allowed either."""


@pytest.mark.parametrize(
    ("topic", "function", "problem"),
    [
        ("job.state.priority", lambda jobs: [], "takes job.priority.get, got 'job.state.priority'"),
        (TOPIC, asynchronous, "on_many() handler asynchronous cannot be async"),
        (TOPIC, without_jobs, "expected (jobs)"),
    ],
)
async def test_handler_for_many_is_checked(topic: str, function: Any, problem: str):
    members = {"all": staticmethod(jobtap.on_many(topic)(function)), "name": "bad"}
    async with rig() as host_rig:
        with pytest.raises(PluginError) as caught:
            await host_rig.host.load(type("Bad", (One,), members)())
        assert problem in str(caught.value)


async def test_plugin_needs_a_handler_for_one_job_too():
    members = {"all": staticmethod(jobtap.on_many(TOPIC)(lambda jobs: [])), "name": "half"}
    async with rig() as host_rig:
        with pytest.raises(PluginError, match=r"expects a handler on\('job.priority.get'\), too"):
            await host_rig.host.load(type("Half", (Plugin,), members)())


async def test_second_handler_for_many_is_refused():
    members = {"more": staticmethod(jobtap.on_many(TOPIC)(lambda jobs: [])), "name": "twice"}
    async with rig() as host_rig:
        with pytest.raises(PluginError, match="there are two handlers on_many"):
            await host_rig.host.load(type("Twice", (Many,), members)(lambda jobs: []))


# --- in an instance


class Ending(Plugin):
    """Ends the jobs of urgency 5 when priorities are computed again, and ranks the others."""

    name = "ending"

    def __init__(self) -> None:
        self.calls: list[int] = []

    @jobtap.on("job.state.priority", TOPIC)
    def one(self, job: Job) -> int:
        return job.urgency

    @jobtap.on_many(TOPIC)
    def all(self, jobs: list[Job]) -> list[int]:
        self.calls.append(len(jobs))
        for job in jobs:
            if job.urgency == 5:
                job.raise_exception("ending", 0, "too low")
        return [100 + job.urgency for job in jobs]

    @jobtap.service("again")
    def again(self, _request: jobtap.ServiceRequest) -> dict[str, Any]:
        self.reprioritize_all()
        return {}


async def test_operations_of_a_handler_for_many_are_performed(autojump_clock):
    ending = Ending()
    async with simulated_jobs(plugins=[ending]) as jobs:
        running = await jobs.submit(nnodes=4, cores_per_task=4, seconds=100)
        await jobs.events(running, "start")
        low, high = [await jobs.submit(nnodes=4, urgency=urgency) for urgency in (5, 6)]
        await jobs.events(high, "priority")
        await jobs.call("job-manager.ending.again", {})
        ended, ranked = await jobs.events(low), await jobs.events(high)
        assert ending.calls == [2]
        assert context(ended, "exception")["type"] == "ending"
        assert names(ended)[-1] == "clean"
        given = [event.context for event in ranked if event.name == "priority"]
        assert given == [{"priority": 6}, {"priority": 106}]
        assert list(jobs.instance.log) == []


async def test_job_manager_is_told_when_only_handlers_of_many_jobs_answer():
    single = One()
    async with rig(Many(lambda jobs: [1] * len(jobs)), single) as host_rig:
        assert host_rig.interests.of_many == ()
        single.listen(TOPIC, wanted=False)
        assert host_rig.interests.of_many == (TOPIC,)
        single.listen(TOPIC)
        assert host_rig.interests.of_many == ()
