"""Fixtures, markers and options of flux-trio; pytest finds this module by its entry point.

pytest imports it in every project where flux-trio is installed, so it imports the rest of the
package only when a fixture is used.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import pytest

if TYPE_CHECKING:
    from flux_trio.jobtap import PluginSource
    from flux_trio.lab import Fault
    from flux_trio.testing.harness import PluginHarness
    from flux_trio.testing.instance_harness import InstanceHarness, PlayedExec, PlayedScheduler
    from flux_trio.testing.world_harness import WorldHarness

_MARKERS: Final = (
    "flux_seeds(n): run the test with the seeds 0 to n - 1",
    "flux_breaks(*properties): the test breaks these clauses or properties on purpose",
    "flux_unjudged: the test's instance or world is not judged",
    "flux_depth(depth): play the test's world at this depth, `cores` or `stack`",
    "flux_edition(edition): the test's instance or world speaks this edition, `classic` or "
    "`current`",
    "flux_instance(**options): start the fixture `instance` with these options",
)

_CHECKS: Final = pytest.StashKey[list[tuple[Callable[[], None], tuple[type[Exception], ...]]]]()
"""What is called at the end of a test that has not failed, while its fixtures are there; and the
errors of that which are told without a traceback, since it would show flux-trio alone."""

_OPTIONS: Final = ("config", "inventory", "plugins", "users")
"""The options of the marker flux_instance."""

_DEPTHS: Final = ("cores", "stack")
_EDITIONS: Final = ("classic", "current")

_OURS: Final = frozenset(
    ("flux_seed", "world", "faults", "instance", "fake_scheduler", "fake_exec", "plugin_harness")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options on seeds."""
    group = parser.getgroup("flux-trio")
    group.addoption(
        "--flux-seed",
        type=_number_from(0),
        metavar="SEED",
        help="run with this seed only, also with --flux-seeds",
    )
    group.addoption(
        "--flux-seeds",
        type=_number_from(1),
        metavar="N",
        help="run with the seeds 0 to N - 1, unless --flux-seed has one",
    )
    group.addoption(
        "--flux-depth",
        choices=_DEPTHS,
        help="play worlds at this depth: cores without Trio, or the whole stack",
    )
    group.addoption(
        "--flux-edition",
        choices=_EDITIONS,
        help="let instances and worlds speak this edition of the RFCs",
    )


def _number_from(least: int) -> Callable[[str], int]:
    """Return the type of an option."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a number from {least}, got {text!r}")
        return int(text)

    return number


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the line on the seed that was asked for."""
    seed = config.getoption("flux_seed")
    return [] if seed is None else [f"flux-trio: seed {seed}"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a seed once with each of its seeds."""
    if "flux_seed" not in metafunc.fixturenames or _has_own_seeds(metafunc):
        return
    one, count = metafunc.config.getoption("flux_seed"), metafunc.config.getoption("flux_seeds")
    marker = metafunc.definition.get_closest_marker("flux_seeds")
    if marker is not None and _refusal(marker):
        return  # the fixture says so
    if one is not None:
        seeds = [one]
    elif count is not None or marker is not None:
        seeds = list(range(count if count is not None else marker.args[0] if marker else 1))
    else:
        return
    metafunc.parametrize("flux_seed", seeds, ids=[f"seed-{seed}" for seed in seeds], indirect=True)


def _has_own_seeds(metafunc: pytest.Metafunc) -> bool:
    """Return whether the test has its seeds from pytest's own marker `parametrize`."""
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs["argnames"]
        listed = names.split(",") if isinstance(names, str) else names
        if "flux_seed" in [name.strip() for name in listed]:
            return True
    return False


def _refusal(marker: pytest.Mark) -> str:
    """Return what is wrong with the marker flux_seeds; "" if nothing is."""
    if len(marker.args) == 1 and type(marker.args[0]) is int and marker.args[0] > 0:
        return ""
    given = ", ".join(map(repr, marker.args))
    return f"expected flux_seeds(n) with a number of seeds n from 1, got flux_seeds({given})"


def _refuse(text: str) -> NoReturn:
    """Let the test fail before it begins, for a wrong marker."""
    pytest.fail(text, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the checks of an earlier run: some plugins run a test again that has failed.

    Refuse seeds of a test without one.
    """
    item.stash[_CHECKS] = []
    seeded = any(mark.name == "flux_seeds" for mark in item.own_markers)  # not those of its class
    if seeded and "flux_seed" not in getattr(item, "fixturenames", ()):
        _refuse(
            "flux_seeds: expected a test whose arguments use a seed (flux_seed, world, faults, "
            "instance, fake_scheduler, fake_exec), got one without"
        )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test fail for what its instance, world or plugin has done wrong."""
    result = yield
    for check, plain in item.stash[_CHECKS]:
        _check(check, plain)
    return result


def _check(check: Callable[[], None], plain: tuple[type[Exception], ...]) -> None:
    text = ""
    try:
        check()
    except plain as error:
        text = f"{type(error).__name__}: {error}"
    if text:
        pytest.fail(text, pytrace=False)


def _check_at_end(
    request: pytest.FixtureRequest, check: Callable[[], None], *plain: type[Exception]
) -> None:
    request.node.stash[_CHECKS].append((check, plain))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses a fixture of flux-trio under Trio, in virtual time.

    A plugin for async tests that comes first, such as pytest-trio, runs it in its own way.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or _OURS.isdisjoint(pyfuncitem.fixturenames):
        return None
    import trio
    from trio.testing import MockClock

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    trio.run(partial(test, **arguments), clock=MockClock(autojump_threshold=0.0))
    return True


@pytest.fixture
def flux_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the test's world or instance: 0, or what markers and options say."""
    marker = request.node.get_closest_marker("flux_seeds")
    if marker is not None and (text := _refusal(marker)):
        _refuse(text)
    seed: int = getattr(request, "param", 0)
    return seed


def _breaking(request: pytest.FixtureRequest) -> set[str] | None:
    """Return what the test breaks on purpose; None if it is not judged."""
    if request.node.get_closest_marker("flux_unjudged") is not None:
        return None
    named = [name for mark in request.node.iter_markers("flux_breaks") for name in mark.args]
    for name in named:
        if not isinstance(name, str):
            _refuse(f"flux_breaks: expected names of clauses or properties, got {name!r}")
    return set(named)


def _breaking_without_properties(request: pytest.FixtureRequest) -> set[str] | None:
    """Return the same without the properties that only a world knows, if the test has one.

    Refuses other unknown names.
    """
    from flux_trio.lab.stories.telling import unknown_text

    breaking = _breaking(request)
    unknown = {name for name in breaking or () if unknown_text([name])}
    if unknown and "world" not in request.fixturenames:
        _refuse(unknown_text(unknown))
    return None if breaking is None else breaking - unknown


def _marked(request: pytest.FixtureRequest, what: str, words: tuple[str, ...]) -> str | None:
    """Return which of `words` the option of `what` says, or else the test's marker."""
    asked: str | None = request.config.getoption(f"flux_{what}")
    marker = request.node.get_closest_marker(f"flux_{what}")
    if asked is not None or marker is None:
        return asked
    if len(marker.args) != 1 or marker.args[0] not in words:
        given = ", ".join(map(repr, marker.args))
        _refuse(f"flux_{what}: expected one of {', '.join(words)}, got flux_{what}({given})")
    return str(marker.args[0])


@pytest.fixture
def world(request: pytest.FixtureRequest, flux_seed: int) -> WorldHarness:
    """A world that the test plans and plays."""
    from flux_trio.testing.world_harness import WorldHarness

    depth: Any = _marked(request, "depth", _DEPTHS) or "cores"
    edition: Any = _marked(request, "edition", _EDITIONS) or "classic"
    harness = WorldHarness(flux_seed, breaking=_breaking(request), depth=depth, edition=edition)
    _check_at_end(request, harness.check, AssertionError, ValueError)
    return harness


@pytest.fixture
def faults(world: WorldHarness) -> list[Fault]:
    """The faults of the test's world, at first none."""
    return world.faults


@pytest.fixture
def instance(request: pytest.FixtureRequest, flux_seed: int) -> Iterator[InstanceHarness]:
    """A whole instance with simulated execution, in virtual time; it is judged at its end."""
    from flux_trio.jobtap import Plugin
    from flux_trio.testing.instance_harness import InstanceHarness
    from flux_trio.testing.options import wrong_text
    from flux_trio.testing.watching import ClausesBroken

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("flux_instance"))):
        for given in (*map(repr, mark.args), *mark.kwargs):
            if given not in _OPTIONS:
                _refuse(f"flux_instance: expected the options {', '.join(_OPTIONS)}, got {given}")
        options |= mark.kwargs
    if text := wrong_text(options):
        _refuse(f"flux_instance: {text}")
    shared = [each for each in options.get("plugins", ()) if isinstance(each, Plugin)]
    if shared:
        _refuse(
            "flux_instance: expected plugins as classes, functions that make one, or paths of "
            f"files, got the object {shared[0]!r}, which the instances of all tests would share"
        )
    breaking = _breaking_without_properties(request)
    edition = _marked(request, "edition", _EDITIONS)
    with InstanceHarness(seed=flux_seed, breaking=breaking, edition=edition, **options) as harness:
        _check_at_end(request, harness.check, ClausesBroken)
        yield harness


@pytest.fixture
def fake_scheduler(instance: InstanceHarness) -> PlayedScheduler:
    """The scheduler of the test's instance, which grants only when the test says so."""
    from flux_trio.testing.instance_harness import PlayedScheduler

    return PlayedScheduler(instance)


@pytest.fixture
def fake_exec(instance: InstanceHarness) -> PlayedExec:
    """The execution service of the test's instance, which answers only when the test says so."""
    from flux_trio.testing.instance_harness import PlayedExec

    return PlayedExec(instance)


class StartHarness(Protocol):
    """The value of the fixture: takes the arguments of `PluginHarness`."""

    def __call__(self, *plugins: PluginSource, **options: Any) -> PluginHarness:
        """Return an entered harness, which ends with the test."""


@pytest.fixture
def plugin_harness(request: pytest.FixtureRequest) -> Iterator[StartHarness]:
    """Starts plugin harnesses, which end with the test.

    A plugin that fails fails the test, unless the test is marked flux_breaks("plugin").
    """
    from flux_trio.lab.properties.plugin_failures import PLUGIN
    from flux_trio.testing.harness import PluginHarness

    breaking = _breaking_without_properties(request)
    may_fail = breaking is None or PLUGIN in breaking

    with ExitStack() as stack:

        def start(*plugins: PluginSource, **options: Any) -> PluginHarness:
            options = {"may_fail": may_fail} | options
            harness = stack.enter_context(PluginHarness(*plugins, **options))
            _check_at_end(request, harness.check)
            return harness

        yield start
