"""Plugins of files in worlds of cores: they are asked, and named if they fail or would wait."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from flux_trio.jobtap import PluginError
from flux_trio.lab import Crash, Fault, JobPlan, Plan, PluginRaises, Setup, When, run_plan
from flux_trio.lab.catalogue import Reload, Return, Unload
from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.stories.campaign import main_property
from flux_trio.lab.world.plugin_files import PluginFile, check_files
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record
from tests.support import reborn

SEEDS = range(5 if reborn.is_on else 12)

PRIORITY = """
    from flux_trio import jobtap

    class Last(jobtap.Plugin):
        @jobtap.on("job.state.priority", "job.priority.get")
        def priority(self, job):
            return 7
    """

COUNTING = """
    from flux_trio import jobtap

    class Counting(jobtap.Plugin):
        active = jobtap.counter(jobtap.State.RUN)

        @jobtap.on("job.state.run")
        def run(self, job):
            {}
    """


def plugin(directory: Path, source: str) -> str:
    path = directory / "mine.py"
    path.write_text(dedent(source))
    return str(path)


def played(file: str, **plan: object) -> tuple[tuple[str, ...], list[Record]]:
    """The problems, and the trace, of a world with the plugin."""
    trace: list[Record] = []
    setup = Setup(plugins=(file,))
    world = Plan(1, jobs=(JobPlan(), JobPlan(at=1.0)), plugins=(file,), **plan)  # type: ignore[arg-type]
    outcome = run_plan(world, [trace.append], properties=setup.all_properties())
    return outcome.problems, trace


def test_plugin_decides_in_a_world_as_in_an_instance(tmp_path: Path) -> None:
    problems, trace = played(plugin(tmp_path, PRIORITY))
    assert problems == ()
    assigned = [
        (record.data or {})["context"]["priority"]
        for record in trace
        if record.kind == Kind.EVENT and (record.data or {})["name"] == "priority"
    ]
    assert assigned == [7, 7]


CONFIGURED = """
    from flux_trio import jobtap

    class Configured(jobtap.Plugin):
        @jobtap.on("job.state.priority")
        def priority(self, job):
            return self.conf["priority"]
    """


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugin_gets_its_conf_in_each_life_of_the_job_manager(tmp_path: Path, depth: Depth) -> None:
    file = PluginFile(plugin(tmp_path, CONFIGURED), {"priority": 5})
    setup = Setup(plugins=(file,), depth=depth)
    crash = Crash("job-manager", When(topics.SCHED_ALLOC, side="send"), back=1.0)
    jobs = (JobPlan(), JobPlan(at=2.0))
    plan = Plan(1, jobs=jobs, faults=(crash,), plugins=(file,), depth=depth)
    trace: list[Record] = []
    assert run_plan(plan, [trace.append], properties=setup.all_properties()).problems == ()
    asked = [each.data or {} for each in trace if each.kind == Kind.HOOK]
    assert {each["result"] for each in asked if each["plugin"] == "mine"} == {5}
    assert plan_from_toml(plan_to_toml(plan)) == plan


def test_plugin_is_loaded_again_with_its_job_manager(tmp_path: Path) -> None:
    crash = Crash("job-manager", When(topics.SCHED_ALLOC, side="send"), back=1.0)
    problems, trace = played(plugin(tmp_path, PRIORITY), faults=(crash,))
    assert problems == ()
    asked = [record for record in trace if record.kind == Kind.HOOK]
    assert {(record.data or {})["plugin"] for record in asked} >= {"mine"}


PAIRED = """
    from pathlib import Path
    from flux_trio import jobtap

    class Paired(jobtap.Plugin):
        def loaded(self):
            self.write("loaded")

        def removed(self):
            self.write("removed")
            {}

        def write(self, what):
            with Path(__file__).with_name("calls").open("a") as calls:
                print(what, file=calls)
    """
SENT = When(topics.SCHED_ALLOC, side="send")
DEPTHS = pytest.mark.parametrize("depth", ["cores", "stack"])
ENDINGS = pytest.mark.parametrize(
    "fault",
    [
        Crash("job-manager", SENT, back=1.0),
        Reload("job-manager", SENT),
        Return("job-manager", SENT, back=1.0),
        Unload("job-manager", SENT, back=1.0),
    ],
)


@DEPTHS
@ENDINGS
def test_plugin_is_told_that_it_is_removed_when_its_job_manager_ends(
    tmp_path: Path, depth: Depth, fault: Fault
) -> None:
    file = plugin(tmp_path, PAIRED.format("pass"))
    problems, _ = played(file, depth=depth, faults=(fault,))
    assert problems == ()
    calls = (tmp_path / "calls").read_text().split()
    assert calls[:3] == ["loaded", "removed", "loaded"]


@DEPTHS
def test_plugin_that_raises_when_it_is_removed_is_named(tmp_path: Path, depth: Depth) -> None:
    file = plugin(tmp_path, PAIRED.format("raise ValueError('odd')"))
    problems, trace = played(file, depth=depth, faults=(Reload("job-manager", SENT),))
    assert problems == ("plugin: mine failed in removed: ValueError: odd",)
    failures = [each for each in trace if each.kind == Kind.HOOK and (each.data or {})["error"]]
    assert [(each.party, (each.data or {})["hook"]) for each in failures] == [
        ("job-manager", "removed")
    ]


ANNOTATING = """
    from flux_trio import jobtap

    class Annotating(jobtap.Plugin):
        @jobtap.on("job.state.sched")
        def sched(self, job):
            job.annotate({"mine": {"words": 3}})
    """


def test_annotations_of_a_plugin_are_in_the_alloc_event(tmp_path: Path) -> None:
    """27.success.7: the dictionary is merged of what the scheduler and others said."""
    problems, trace = played(plugin(tmp_path, ANNOTATING))
    assert problems == ()
    events = [each.data or {} for each in trace if each.kind == Kind.EVENT]
    allocs = [each["context"]["annotations"] for each in events if each["name"] == "alloc"]
    assert [each["mine"] for each in allocs] == [{"words": 3}] * 2
    assert all(each["sched"] for each in allocs)


def test_handler_that_raises_is_named(tmp_path: Path) -> None:
    setup = Setup(plugins=(plugin(tmp_path, COUNTING.format("raise ValueError('odd')")),))
    plan = Plan(1, jobs=(JobPlan(),), plugins=setup.plugins)
    outcome = run_plan(plan, properties=setup.all_properties())
    assert "plugin: mine failed in job.state.run: ValueError: odd" in outcome.problems
    assert main_property(outcome) == "plugin"  # the job that stays in RUN follows from it


def test_counter_that_is_changed_by_hand_differs_from_the_recount(tmp_path: Path) -> None:
    wrong = "self.active._totals.clear()"
    problems, _ = played(plugin(tmp_path, COUNTING.format(wrong)))
    assert any(problem.startswith("invariant.counters:") for problem in problems)
    problems, _ = played(plugin(tmp_path, COUNTING.format("pass")))
    assert problems == ()


def test_fault_answers_in_place_of_the_plugin(tmp_path: Path) -> None:
    setup = Setup(plugins=(plugin(tmp_path, PRIORITY),))
    plan = Plan(1, jobs=(JobPlan(),), faults=(PluginRaises(),), plugins=setup.plugins)
    outcome = run_plan(plan, properties=setup.all_properties())
    assert outcome.struck == plan.faults
    assert outcome.problems == ()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            """
            from flux_trio import jobtap

            class Waits(jobtap.Plugin):
                @jobtap.on("job.validate")
                async def validate(self, job):
                    pass
            """,
            "validate of job.validate is async",
        ),
        (
            """
            from flux_trio import jobtap

            class Starts(jobtap.Plugin):
                @jobtap.on("job.validate")
                def validate(self, job):
                    pass

                def loaded(self):
                    self.start_soon(self.wait)

                async def wait(self):
                    pass
            """,
            "cannot start a task. .* --depth stack",
        ),
        ("x = ", "SyntaxError"),
    ],
)
def test_plugin_that_cannot_be_in_a_world_is_refused(
    tmp_path: Path, source: str, said: str
) -> None:
    with pytest.raises(PluginError, match=said):
        check_files([plugin(tmp_path, source)])


def test_plugin_that_asks_for_everything_breaks_no_property() -> None:
    """It has dependencies, prologs, epilogs, exceptions, annotations and updates."""
    setup = Setup(plugins=(PluginFile(str(Path(__file__).with_name("every_call.py"))),))
    properties = setup.all_properties()
    names: Counter[str] = Counter()

    def count(record: Record) -> None:
        if record.kind == Kind.EVENT and record.data is not None:
            names[record.data["name"]] += 1

    for seed in SEEDS:
        outcome = run_plan(setup.plan_of(seed), [count], properties=properties)
        assert (seed, outcome.problems) == (seed, ())
    for name in ("dependency-remove", "prolog-finish", "epilog-finish", "jobspec-update"):
        assert names[name] > len(SEEDS)
