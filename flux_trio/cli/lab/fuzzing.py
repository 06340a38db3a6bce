"""The campaign of `flux-trio fuzz`: seeds until one breaks a property, or until the end."""

from __future__ import annotations

import importlib
import os
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice, takewhile
from pathlib import Path
from typing import Final

from flux_trio.cli.lab.fuzz_params import Seeds
from flux_trio.cli.lab.fuzz_workers import interrupts_noted
from flux_trio.cli.terminal.errors import CommandError, write_text
from flux_trio.jobtap import PluginError
from flux_trio.lab import (
    Plan,
    PropertyRaised,
    Reached,
    SeedResult,
    Setup,
    Situations,
    breaks,
    play_seeds,
    property_errors,
    shrink,
    tell_story,
    untold_story,
)
from flux_trio.lab.plans.files import plan_to_toml, with_files
from flux_trio.lab.stories.campaign import plan_breaks, submitted
from flux_trio.lab.stories.outcome import property_of
from flux_trio.views import Story, story_page, story_text

_TEST: Final = '''\
"""A plan of flux-trio that breaks {broken}; the test fails until that is mended."""

import sys
from pathlib import Path

from flux_trio.testing import play_plan

HERE = Path(__file__).parent
PROPERTIES = {properties!r}
MODULES_IN = {modules_in!r}  # from HERE: directories with the modules of PROPERTIES

sys.path += [str((HERE / each).resolve()) for each in MODULES_IN]


def test_every_property_holds() -> None:
    play_plan(HERE / "plan.toml", PROPERTIES)
'''


_CAUSE: Final = (
    "a plugin or a property, or something it uses, keeps state outside of the world, or draws at "
    "random"
)
BY_A_WORKER_ONLY: Final = f"it was broken in a worker, and not when it was played again: {_CAUSE}"
HELD_BY_A_WORKER: Final = f"it held when a worker played this smallest plan once more: {_CAUSE}"


@dataclass(frozen=True)
class Found:
    """A broken property: the result of the seed that broke it first, and the smallest story.

    The story has a doubt if the property held when the plan was played again.
    """

    result: SeedResult
    story: Story
    directory: Path | None
    """Where the files of the story are; None if they could not be written."""
    limit: str
    """Why there may be a smaller plan; "" if there is none."""


@dataclass
class Campaign:
    """What has happened so far."""

    seeds: Seeds
    nworlds: int = 0
    nturns: int = 0
    broken: list[SeedResult] = field(default_factory=list)
    not_judged: list[SeedResult] = field(default_factory=list)
    """The results of seeds in which a property raised."""
    found: list[Found] = field(default_factory=list)
    reached: Reached = field(default_factory=Reached)
    situations: Situations = field(default_factory=Situations)
    next_seed: int = 0
    """The seed after the last one that was played."""
    is_interrupted: bool = False
    """Whether a user ended it before its end."""
    errors: list[str] = field(default_factory=list)
    """What could not be done; the campaign is reported all the same."""

    def add(self, result: SeedResult) -> None:
        self.next_seed = result.seed + 1
        if result.raised:
            self.not_judged.append(result)
            self.errors.append(result.raised)
            return
        self.nworlds += 1
        self.nturns += result.nsteps
        self.reached.add(result.taken, result.after)
        self.situations.add(result.drawn, result.occurred)
        if result.broken:
            self.broken.append(result)

    @contextmanager
    def errors_kept(self) -> Iterator[None]:
        """Keep a CommandError as one of the errors."""
        try:
            yield
        except CommandError as error:
            self.errors.append(error.message)


def run_campaign(
    seeds: Seeds,
    budget_s: float | None,
    executor: Executor,
    nworkers: int,
    setup: Setup,
    *,
    once_more: Callable[[], AbstractContextManager[Executor]],
    keep_going: bool,
    output: Path,
    advance: Callable[[SeedResult], None],
) -> Campaign:
    """Play the seeds until one breaks a property, or with `keep_going` all of them.

    After `budget_s` seconds no seed begins but the first one of all. The first seed that breaks a
    property is made small, played again by the executor of `once_more`, and written below `output`;
    `advance` is called with each result.
    A property that raises ends the campaign as a broken one does. KeyboardInterrupt ends it, too,
    and so do workers that end by themselves and plugins that raise where no handler is called.
    """
    campaign = Campaign(seeds, next_seed=seeds.first)
    try:
        with (
            _failures_kept(campaign),
            closing(play_seeds(_until(seeds, budget_s), executor, nworkers, setup)) as results,
        ):
            for result in results:
                campaign.add(result)
                advance(result)
                if not result.broken and not result.raised:
                    continue
                shown = {"", *(each.result.broken for each in campaign.found)}
                if result.broken not in shown:
                    with _failures_kept(campaign):
                        _make_small(campaign, result, setup, output, once_more)
                if campaign.is_interrupted or not keep_going:
                    break
    except KeyboardInterrupt:
        campaign.is_interrupted = True
    return campaign


@contextmanager
def _failures_kept(campaign: Campaign) -> Iterator[None]:
    """Keep as an error: workers that end by themselves, properties and plugins that raise."""
    try:
        yield
    except BrokenExecutor as error:
        seed = campaign.next_seed
        campaign.errors.append(f"the workers have ended at seed {seed} or later: {error}")
    except (PropertyRaised, PluginError) as error:
        campaign.errors.append(str(error))


def _until(seeds: Seeds, budget_s: float | None) -> Iterator[int]:
    numbers = iter(count(seeds.first)) if seeds.end is None else iter(range(seeds.first, seeds.end))
    if budget_s is None:
        return numbers
    end = time.monotonic() + budget_s
    return chain(islice(numbers, 1), takewhile(lambda _: time.monotonic() < end, numbers))


def _make_small(
    campaign: Campaign,
    result: SeedResult,
    setup: Setup,
    output: Path,
    once_more: Callable[[], AbstractContextManager[Executor]],
) -> None:
    """Add the smallest story of `result` to those found.

    After Ctrl-C no smaller plan is played, and the story is that of the smallest one so far. If
    the property holds here, the plan stays that of the seed, and its story has no trace.
    """
    properties = setup.all_properties()
    with interrupts_noted() as is_interrupted, property_errors(result.seed):

        def breaks_here(plan: Plan) -> bool:
            return not is_interrupted() and plan_breaks(plan, result.broken, properties)

        small, limit = result.plan, ""
        if breaks_here(small):
            small, limit = shrink(small, result.broken, breaks_here)
        if is_interrupted():
            limit = "interrupted"
        story = tell_story(small, result.broken, properties)
        if story is None:
            small = result.plan
            story = untold_story(small, _main_problem(result), properties, BY_A_WORKER_ONLY)
        elif not is_interrupted() and not _breaks_again(small, result.broken, setup, once_more):
            story = replace(story, doubt=HELD_BY_A_WORKER)
        directory, written = output / f"seed-{result.seed}", None
        with campaign.errors_kept():
            write_story(directory, small, story, setup)
            written = directory
        campaign.is_interrupted = is_interrupted()
    campaign.found.append(Found(result, story, written, limit))


def _main_problem(result: SeedResult) -> str:
    """Return the problem of the property that the seed is named for."""
    return next(each for each in result.problems if property_of(each) == result.broken)


def _breaks_again(
    plan: Plan, broken: str, setup: Setup, once_more: Callable[[], AbstractContextManager[Executor]]
) -> bool:
    """Let a worker of `once_more` play the plan; a worker that ends meanwhile has not broken it."""
    try:
        with once_more() as executor:
            return submitted(executor, breaks, plan, broken, setup).result()
    except BrokenExecutor:
        return False


def write_story(directory: Path, plan: Plan, story: Story, setup: Setup) -> None:
    """Write plan.toml, story.txt, story.html and test_story.py. Raises CommandError."""
    test = _TEST.format(
        broken=story.broken,
        properties=setup.properties,
        modules_in=tuple(near_to(directory, _homes(setup.properties))),
    )
    write_story_files(directory, plan, story, {"test_story.py": test})


def _homes(properties: Iterable[str]) -> list[Path]:
    """Return the directories from which the modules of properties are imported.

    Those of installed modules are left out: everybody has them.
    """
    installed = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    homes: dict[Path, None] = {}
    for each in properties:
        name = each.partition(":")[0]
        file = Path(importlib.import_module(name).__file__ or "").resolve()
        depth = name.count(".") + (file.name == "__init__.py")
        homes[file.parents[depth]] = None
    return [home for home in homes if home not in installed]


@contextmanager
def progress_bar(seeds: Seeds) -> Iterator[Callable[[SeedResult], None]]:
    """Show a bar of the played seeds on standard error if it is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("seed {task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        total = None if seeds.end is None else seeds.end - seeds.first
        task = bar.add_task(str(seeds.first), total=total)
        yield lambda result: bar.update(task, advance=1, description=str(result.seed))


# --- the files of a story


def write_story_files(
    directory: Path, plan: Plan, story: Story, more: Mapping[str, str] | None = None
) -> None:
    """Write plan.toml, story.txt, story.html and `more` files, by name. Raises CommandError.

    The plan names files of plugins from `directory`, so that all may be moved together.
    """
    near = with_files(plan, lambda files: near_to(directory, files))
    files = {
        "plan.toml": plan_to_toml(near),
        "story.txt": story_text(story),
        "story.html": story_page(story),
        **(more or {}),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    for name, text in files.items():
        write_text(directory / name, text)


def near_to(directory: Path, paths: Iterable[str | Path]) -> Iterator[str]:
    """Yield the paths as they are seen from `directory`."""
    begin = directory.resolve()
    for path in paths:
        yield os.path.relpath(Path(path).resolve(), begin)
