"""A world for a test: the test says which jobs there are and which faults strike, and plays it.

A world has no processes: see `flux_trio.lab`. A sync test uses it as it is, and so does an async
one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from flux_trio.formats import FormatError
from flux_trio.jobtap import reporting_failures
from flux_trio.lab import (
    Fault,
    JobPlan,
    Outcome,
    OwnerRequest,
    Plan,
    Property,
    Setup,
    draw_plan,
    main_property,
    plan_of_file,
    run_plan,
    shrink,
    tell_story,
)
from flux_trio.lab.plans.files import plan_to_toml
from flux_trio.lab.plans.never_struck import never_struck, never_struck_text
from flux_trio.lab.plans.plan import DEFAULT_EDITION, Depth, Edition
from flux_trio.lab.properties.plugin_failures import PLUGIN, is_of_user
from flux_trio.lab.stories.campaign import plan_breaks
from flux_trio.lab.stories.telling import name_refusal, unknown_text
from flux_trio.lab.world.plugin_files import PluginFile, check_files
from flux_trio.messages import Event, Request, Response
from flux_trio.testing.trio_thread import beside_trio
from flux_trio.trace import Record
from flux_trio.views import story_text

T = TypeVar("T")


class PropertyBroken(AssertionError):
    """A world broke properties; the text is the smallest story and its plan.

    `plan` is the smallest plan that breaks the property `broken`, too.
    """

    def __init__(
        self, plan: Plan, broken: str, outcome: Outcome, properties: tuple[Property, ...] = ()
    ) -> None:
        self.plan = plan
        self.broken = broken
        self.outcome = outcome
        story = tell_story(plan, broken, properties)
        text = "\n".join(outcome.problems) if story is None else story_text(story)
        super().__init__(f"seed {outcome.plan.seed}: {text}\nThe plan:\n\n{plan_to_toml(plan)}")


def play_plan(path: str | os.PathLike[str], properties: Iterable[str] = ()) -> Outcome:
    """Play the plan of a file and return what became of it.

    `properties` are the user's own, `module:name` of each. Raises PropertyBroken with the story of
    what was broken first, from the error of the plugin that failed; OSError or FormatError for a
    file that has no plan.
    """
    __tracebackhide__ = True
    plan = plan_of_file(path)
    checked = Setup(tuple(properties), plan.plugins, policy=plan.policy).all_properties()
    errors: list[BaseException] = []
    with reporting_failures(errors.append):
        outcome = run_plan(plan, properties=checked)
    if broken := main_property(outcome):
        by_plugin = (each for each in errors if broken == PLUGIN and is_of_user(each))
        raise PropertyBroken(plan, broken, outcome, checked) from next(by_plugin, None)
    return outcome


class FaultNeverStruck(UserWarning):
    """A test has planned a fault that never struck in its world: the test shows nothing."""


class _Listed(Generic[T]):
    """An attribute that is a list, and may be set from any collection."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, world: object, _owner: type) -> list[T]:
        found: list[T] = vars(world)[self._name]
        return found

    def __set__(self, world: object, values: Iterable[T]) -> None:
        if not isinstance(values, Iterable):
            raise TypeError(f"world.{self._name}: expected a collection, got {values!r}")
        vars(world)[self._name] = list(values)


class WorldHarness:
    """A world that begins with `seed`; `breaking` are properties that the test breaks on purpose.

    With `breaking` None the world is not judged. `depth` and `edition` are those of the plan.
    """

    jobs = _Listed[JobPlan]()
    """The jobs that are planned."""
    actions = _Listed[OwnerRequest]()
    """The requests of the owner."""
    faults = _Listed[Fault]()
    """The faults that are to strike."""

    def __init__(
        self,
        seed: int = 0,
        *,
        breaking: Collection[str] | None = (),
        depth: Depth = "cores",
        edition: Edition = DEFAULT_EDITION,
    ) -> None:
        self._plan = Plan(seed, depth=depth, edition=edition)
        self._breaking = breaking
        self.jobs, self.actions, self.faults = [], [], []
        self.trace: list[Record] = []
        """The trace of the last play."""
        self.outcome: Outcome | None = None
        """What became of the last play."""
        self.plugin_errors: list[BaseException] = []
        """What plugins have raised in the last play, with their own tracebacks."""
        self._is_played = False
        self._named: set[str] = set()  # properties of the user
        self._usual: tuple[Fault, ...] = ()  # of a whole plan, of which some faults need not strike

    @property
    def plan(self) -> Plan:
        """What `play` plays."""
        return msgspec.structs.replace(
            self._plan,
            jobs=tuple(self.jobs),
            actions=tuple(self.actions),
            faults=tuple(self.faults),
        )

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan = plan
        self.jobs, self.actions, self.faults = [*plan.jobs], [*plan.actions], [*plan.faults]
        self._usual = plan.faults

    def configure(
        self, *, plugins: Iterable[str | os.PathLike[str] | PluginFile] | None = None, **fields: Any
    ) -> None:
        """Set fields of the plan: nnodes, cores, policy, limit, late, queues, depth,
        edition, store.

        `plugins` are the files of jobtap plugins, each a path or a PluginFile with its conf; in
        each play they are loaded anew.
        Raises TypeError for other fields.
        """
        if isinstance(plugins, str | os.PathLike):
            raise TypeError(f"plugins: expected a list of paths, got {plugins!r}")
        if plugins is not None:
            fields["plugins"] = tuple(
                each if isinstance(each, PluginFile) else os.fspath(each) for each in plugins
            )
        self._plan = msgspec.structs.replace(self._plan, **fields)

    def draw(self) -> Plan:
        """Use the plan that the seed draws, and return it.

        Depth, edition, store and plugins stay.
        """
        ours = {
            name: getattr(self._plan, name) for name in ("depth", "edition", "store", "plugins")
        }
        self.plan = msgspec.structs.replace(draw_plan(self._plan.seed), **ours)
        return self.plan

    def submit(self, count: int = 1, **fields: Any) -> int:
        """Plan jobs with the fields of `JobPlan`; return the place of the first. FormatError."""
        if not isinstance(count, int) or count < 0:
            raise FormatError("a number of jobs", count, "count")
        self.jobs += [JobPlan(**fields)] * count
        return len(self.jobs) - count

    def play(self, *properties: Property) -> Outcome:
        """Play the plan: first with its faults, then everything is put right and comes to rest.

        `properties` must hold beside the clauses and the properties that `flux-trio fuzz` checks.
        Raises PropertyBroken with the smallest story, unless the test breaks that property on
        purpose; its cause is the error of the plugin if one has raised. Raises PluginError for a
        plugin that cannot be loaded, FormatError for a wrong field of the plan, TypeError for
        anything but a property, and ValueError for one that has the name of a property of
        flux-trio. Warns (FaultNeverStruck) of each fault in `faults` that has not struck; those of
        a plan that was drawn, or set as a whole, need not.
        """
        __tracebackhide__ = True  # the test's own line says enough
        self._is_played = True
        for each in properties:
            if not isinstance(each, Property):
                raise TypeError(
                    "expected properties, which flux_trio.lab.over_trace makes of functions, "
                    f"got {each!r}"
                )
            if refusal := name_refusal(each.name):
                raise ValueError(refusal)
        self._named.update(each.name for each in properties)
        outcome = beside_trio(self._play, properties)
        for fault in never_struck(outcome.never_struck, self._usual):
            warnings.warn(never_struck_text(fault, self._topics()), FaultNeverStruck, stacklevel=2)
        return outcome

    def _topics(self) -> set[str]:
        """Return the topics of the last play."""
        messages = [record.message for record in self.trace]
        return {each.topic for each in messages if isinstance(each, Request | Response | Event)}

    def check(self) -> None:
        """Raise AssertionError if the world was not played.

        Raises ValueError if `breaking` has a name of no clause, and of no property of a play.
        """
        __tracebackhide__ = True
        if not self._is_played:
            raise AssertionError("the test has not played its world: call world.play()")
        if text := unknown_text(self._breaking or (), self._named):
            raise ValueError(text)

    def _play(self, properties: tuple[Property, ...]) -> Outcome:
        __tracebackhide__ = True
        plan = self.plan
        check_files(plan.plugins, plan.depth)
        properties = (
            *Setup(plugins=plan.plugins, policy=plan.policy).all_properties(),
            *properties,
        )
        self.trace, self.plugin_errors = [], []
        with reporting_failures(self._note_error):
            self.outcome = outcome = run_plan(plan, [self.trace.append], properties=properties)
        broken = outcome.broken - set(outcome.broken if self._breaking is None else self._breaking)
        if broken:
            main = main_property(outcome, broken)

            def breaks(tried: Plan) -> bool:
                return plan_breaks(tried, main, properties)

            small, limit = shrink(plan, main, breaks)
            problem = PropertyBroken(small, main, outcome, properties)
            if limit:
                problem.add_note(f"{limit}: the plan may not be the smallest")
            if text := unknown_text(self._breaking or (), self._named):
                problem.add_note(text)
            raise problem from next(iter(self.plugin_errors if main == PLUGIN else ()), None)
        return outcome

    def _note_error(self, error: BaseException) -> None:
        """Keep an error of a plugin, unless a fault has raised it."""
        if is_of_user(error):
            self.plugin_errors.append(error)
