"""Tells a counterexample as a story: its path, played again with its trace and the states."""

from __future__ import annotations

from collections.abc import Iterator

from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.reached import name_of_fault
from flux_trio.lab.stories.states import Watch
from flux_trio.lab.stories.telling import played_lines, sentence_of, story_of
from flux_trio.trace import Kind, Record
from flux_trio.views import Story
from tests.explore.search.judging import Judge
from tests.explore.search.search import AT_REST, Broken, at_rest, follow
from tests.explore.search.small_world import Choice, Fire, Load, SmallWorld, Strike, Take


def tell_path(plan: Plan, broken: Broken) -> Story:
    """Repeat the path of `broken`, and return its story."""
    trace: list[Record] = []
    judge, watch = Judge(), Watch()
    world = SmallWorld(plan, [trace.append, judge.observe, watch.observe])
    watch.begin(world)
    steps: list[str] = []

    def look(choice: Choice) -> None:
        watch.look_at_actors(world)
        steps.append(f"{len(steps) + 1}. {step_line(choice, plan)}")

    follow(world, broken.path, look)
    violations = judge.violations
    if not violations and not world.errors:
        at_rest(world, judge)
        violations = judge.violations
    lines = (*played_lines(plan), *steps)
    for violation in violations:
        if violation.clause == broken.name:
            return story_of(violation, trace, lines, watch.changes)
    return Story(
        broken.name,
        broken.found,
        trace,
        sentence=sentence_of(broken.name, AT_REST),
        jobid=next(_jobs_of(trace), None),
        played=lines,
        changes=watch.changes,
    )


def step_line(choice: Choice, plan: Plan) -> str:
    """Return a line that says what a choice lets happen."""
    match choice:
        case Take(module, sender):
            return f"{module} takes the next message of {sender}"
        case Fire(module):
            return f"a timer of {module} fires"
        case Strike(fault):
            return f"fault {name_of_fault(plan.faults[fault])}"
        case Load(module):
            return f"{module} is loaded again"


def _jobs_of(trace: list[Record]) -> Iterator[int]:
    for record in trace:
        if record.kind == Kind.EVENT and record.data is not None:
            yield record.data["id"]
