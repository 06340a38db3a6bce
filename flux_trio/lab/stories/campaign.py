"""A campaign: the worlds of many seeds, played by the workers of an executor and judged.

The results come in the order of the seeds, whichever worker is ready first, so that a campaign over
the same seeds gives the same report.
"""

from __future__ import annotations

import importlib
import traceback
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

import msgspec

from flux_trio.config import is_policy_of_file
from flux_trio.jobtap.failures import attempt, describe
from flux_trio.lab.plans.campaign_coverage import NotedSituations, drawn
from flux_trio.lab.plans.drawing import draw_for_stack, draw_plan
from flux_trio.lab.plans.plan import DEFAULT_EDITION, Depth, Edition, Plan, in_edition
from flux_trio.lab.plans.reached import transitions_noted
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.properties.pauses import state_of_the_policy_can_be_put_down
from flux_trio.lab.properties.plugin_failures import no_plugin_fails
from flux_trio.lab.properties.property import Property
from flux_trio.lab.stories.outcome import Outcome, property_of
from flux_trio.lab.stories.running import run_plan
from flux_trio.lab.world.disk import StoreKind
from flux_trio.lab.world.plugin_files import PluginFile

P = ParamSpec("P")
T = TypeVar("T")

AHEAD: Final = 4
"""The number of seeds for each worker that are submitted before their results are read."""

_OURS: Final = f"{__name__.partition('.')[0]}."
_FIRST: Final = ("error", no_plugin_fails.name)
_LAST: Final = ("answered", "inactive", "rest", "listed", "stored")
"""Properties that often follow from another one, so that they are named only when alone."""


@dataclass(frozen=True)
class SeedResult:
    """What became of the world of one seed."""

    plan: Plan
    broken: str
    """The property that was broken first, see `main_property`; empty if each one held."""
    problems: tuple[str, ...]
    nsteps: int
    taken: frozenset[str]
    """The transitions of tables that the world took."""
    after: Mapping[str, frozenset[str]]
    """By name of each fault that struck: the transitions that were taken afterwards."""
    drawn: frozenset[str] = frozenset()
    """The situations that the plan draws."""
    occurred: frozenset[str] = frozenset()
    """The situations of the plan that occurred in the world."""
    raised: str = ""
    """The text of PropertyRaised if a property raised: then the world was not judged."""

    @property
    def seed(self) -> int:
        return self.plan.seed


@dataclass(frozen=True)
class Setup:
    """What a campaign does with each seed: its properties, plugins, depth and store.

    All of it is text, so that workers in other processes can read it.
    """

    properties: tuple[str, ...] = ()
    """Properties of the user: `module:name` of each `Property`."""
    plugins: tuple[str | PluginFile, ...] = ()
    """Files of jobtap plugins of the user."""
    depth: Depth = "cores"
    store: StoreKind = "memory"
    policy: str | None = None
    """The scheduling policy of every world; "" or None lets each seed draw one of ours."""
    edition: Edition = DEFAULT_EDITION
    """The edition of the RFCs that the instance of every world speaks."""

    def all_properties(self) -> tuple[Property, ...]:
        """Return the properties of a campaign: ours and those of the user.

        Raises ImportError or AttributeError if there is no such name, TypeError for another value.
        """
        of_plugins = (no_plugin_fails,) if self.plugins else ()
        is_own = self.policy is not None and is_policy_of_file(self.policy)
        of_policy = (state_of_the_policy_can_be_put_down,) if is_own else ()
        return (*OURS, *of_plugins, *of_policy, *map(_imported, self.properties))

    def plan_of(self, seed: int) -> Plan:
        """Return the plan that `seed` draws, with the plugins, the depth, the store and the policy.

        At depth stack a tenth of the seeds has a recovery, some have a backup: these keep their
        values in a file.
        """
        plan = draw_plan(seed)
        plan = msgspec.structs.replace(
            plan,
            plugins=self.plugins,
            depth=self.depth,
            store=self.store,
            policy=self.policy or plan.policy,
        )
        drawn = draw_for_stack(plan) if self.depth == "stack" else plan
        return in_edition(drawn, self.edition)


def _imported(path: str) -> Property:
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, Property):
        raise TypeError(f"{path}: expected a flux_trio.lab.Property, got {found!r}")
    return found


class PropertyRaised(Exception):
    """A property of a user has raised, so that a world was not judged; the text says where.

    Also if a property or a plugin has raised KeyboardInterrupt.
    """


@contextmanager
def property_errors(seed: int) -> Iterator[None]:
    """In this block, raise PropertyRaised for what a property of a user raises."""
    with ExitStack() as stack:
        stack.push(partial(_tell_property, seed))
        yield


def _tell_property(seed: int, _kind: object, error: BaseException | None, _at: object) -> None:
    if isinstance(error, Exception) and hasattr(error, "__notes__"):  # the property's name
        text = traceback_of_user(error)
        raise PropertyRaised(f"seed {seed} was not judged\n{text}") from None


def _of_the_user(error: BaseException) -> BaseException:
    """Return the error with the traceback from the first frame that is not ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    return error.with_traceback(trace)


def _is_ours(trace: TracebackType) -> bool:
    name: str = trace.tb_frame.f_globals.get("__name__", "")
    return name.startswith(_OURS) or name == "contextlib"


def play_seed(seed: int, setup: Setup | None = None) -> SeedResult:
    """Play and judge the world of `seed`; a worker calls this."""
    setup = setup or Setup()
    properties = setup.all_properties()
    plan = setup.plan_of(seed)
    situations = NotedSituations()
    with transitions_noted() as noted:
        try:
            with property_errors(seed):
                sinks = [noted.observe, situations.observe]
                outcome = run_plan(plan, sinks, properties=properties)
        except PropertyRaised as error:
            return SeedResult(plan, "", (), 0, frozenset(), {}, raised=str(error))
    return SeedResult(
        outcome.plan,
        main_property(outcome),
        outcome.problems,
        outcome.nsteps,
        frozenset(noted.taken),
        {fault: frozenset(transitions) for fault, transitions in noted.after.items()},
        drawn(plan),
        frozenset(situations.occurred),
    )


def breaks(plan: Plan, broken: str, setup: Setup) -> bool:
    """Play `plan` and return whether it breaks the property `broken`; a worker may call this."""
    return plan_breaks(plan, broken, setup.all_properties())


def plan_breaks(plan: Plan, broken: str, properties: Iterable[Property]) -> bool:
    """Play `plan` with `properties` and return whether it breaks the one that is called `broken`.

    A plan in which a property raises does not: an author's property may expect at least one job,
    and shrinking tries plans without any.
    """
    try:
        with property_errors(plan.seed):
            return broken in run_plan(plan, properties=properties).broken
    except PropertyRaised:
        return False


def in_order(outcome: Outcome) -> list[str]:
    """Return the problems without repetitions; those of the property that is the cause come
    first.
    """
    cause = main_property(outcome)
    return sorted(dict.fromkeys(outcome.problems), key=lambda each: property_of(each) != cause)


def traceback_of_user(error: BaseException) -> str:
    """Return the traceback of an error from the first frame that is not ours."""
    return "".join(traceback.format_exception(_of_the_user(error))).rstrip()


def main_property(outcome: Outcome, among: Collection[str] | None = None) -> str:
    """Return the broken property to shrink for, of `among` if given; "" if each one held.

    An error of a core or a plugin comes first, then the first clause that follows from no other
    violation. Our own properties follow from a world that does not come to rest.
    """
    names = [problem.partition(":")[0] for problem in outcome.problems]
    found = [name for name in names if among is None or name in among]
    for name in _FIRST:
        if name in found:
            return name
    for violation in outcome.violations:
        if violation.cause is None and violation.clause in found:
            return violation.clause
    ours = {each.name for each in Setup().all_properties()}
    last = {*_LAST, *ours} if "rest" in found else _LAST
    return next((name for name in found if name not in last), found[0] if found else "")


def play_seeds(
    seeds: Iterable[int], executor: Executor, nworkers: int, setup: Setup | None = None
) -> Generator[SeedResult, None, None]:
    """Yield the result of each seed in order; at most AHEAD times `nworkers` are under way.

    The executor still has those that are under way when the iterator is closed. Raises
    BrokenExecutor if the workers have ended.
    """
    waiting: deque[tuple[int, Future[SeedResult]]] = deque()
    for seed in seeds:
        waiting.append((seed, submitted(executor, play_seed, seed, setup)))
        if len(waiting) >= AHEAD * nworkers:
            yield _result(*waiting.popleft())
    while waiting:
        yield _result(*waiting.popleft())


def submitted(
    executor: Executor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> Future[T]:
    """Submit a call to an executor. Raises BrokenExecutor if the executor raises instead of
    accepting it.

    Python's executors raise RuntimeError when they were shut down; executors of others may raise
    any error. An executor may also call `function` at once: what it raises then is not caught here.
    """
    future, error = attempt(partial(executor.submit, function, *args, **kwargs))
    if error is not None:
        frames = traceback.walk_tb(error.__traceback__)
        is_of_call = any(frame.f_code.co_name == function.__name__ for frame, _ in frames)
        if is_of_call or isinstance(error, BrokenExecutor):
            raise error
        raise BrokenExecutor(f"the executor has raised {describe(error)}") from error
    accepted: Future[T] = future
    return accepted


def _result(seed: int, future: Future[SeedResult]) -> SeedResult:
    """Wait for the result. Raises PropertyRaised if the seed ended by a KeyboardInterrupt.

    It is not the one of Ctrl-C, which interrupts the waiting.
    """
    try:
        error = future.exception()
    except CancelledError:
        raise BrokenExecutor("the executor has canceled what was submitted") from None
    if isinstance(error, KeyboardInterrupt):
        raise PropertyRaised(
            f"seed {seed} was not judged: a plugin or a property raised KeyboardInterrupt"
        )
    return future.result()
