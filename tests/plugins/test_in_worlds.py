"""The plugins of a site in worlds with faults, with a conf as a site may have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from flux_trio.lab import (
    JobPlan,
    Plan,
    PluginFile,
    PluginWrongPriority,
    Setup,
    plan_of_file,
    run_plan,
)
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.world.machines import USERID
from tests.planter.mistakes.site import limit_is_kept, window_is_kept
from tests.planter.mistakes.worlds import ACCOUNTS, WINDOW
from tests.support import reborn

PLUGINS = Path(__file__).parents[2] / "plugins"
PLANS = Path(__file__).parent / "plans"
SEEDS = range(2 if reborn.is_on else 4)


def broken(file: PluginFile) -> dict[int, tuple[str, ...]]:
    """By seed: what is broken in worlds of the whole stack with the plugin."""
    setup = Setup(plugins=(file,), depth="stack")
    properties = setup.all_properties()
    problems = {
        seed: run_plan(setup.plan_of(seed), properties=properties).problems for seed in SEEDS
    }
    return {seed: said for seed, said in problems.items() if said}


def test_multifactor(database: str, edit: Callable[..., None]) -> None:
    """The user of worlds may have few jobs at a time."""
    edit("bank", "physics")
    limits = ["max_running_jobs=2", "max_active_jobs=4"]
    edit("user", "ann", "bank=physics", f"userid={USERID}", *limits)
    conf = {"database": database, "record-usage": False, "interval": 900}
    assert broken(PluginFile(str(PLUGINS / "multifactor.py"), conf)) == {}


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_plan_with_multifactor_that_has_broken_a_property_breaks_none(
    path: Path, database: str, edit: Callable[..., None]
) -> None:
    """All that it lists takes place, with the accounts of the planted mistakes."""
    for row in ACCOUNTS:
        edit(*row)
    conf = {"database": database, "record-usage": False, "interval": 3600}
    plugin = PluginFile(str(PLUGINS / "multifactor.py"), conf)
    plan = replace(plan_of_file(path), plugins=(plugin,))
    outcome = run_plan(plan, properties=(*OURS, limit_is_kept))
    assert outcome.problems == outcome.never_struck == outcome.unprompted == ()


def test_reservation() -> None:
    """The window begins a few seconds after the world and takes an hour."""
    window = {"start": "2001-09-09T01:46:45+00:00", "end": "2001-09-09T02:46:40+00:00"}
    assert broken(PluginFile(str(PLUGINS / "reservation.py"), {"windows": [window]})) == {}


def test_reservation_answers_for_no_job_whose_priority_another_plugin_gives() -> None:
    windows = [{"start": WINDOW[0], "end": WINDOW[1]}]
    file = PluginFile(str(PLUGINS / "reservation.py"), {"windows": windows})
    wrong = PluginWrongPriority(1, "job.state.priority", 1)
    plan = Plan(27, jobs=(JobPlan(),), faults=(wrong,), depth="stack", plugins=(file,))
    outcome = run_plan(plan, properties=(window_is_kept,))
    assert outcome.problems == outcome.never_struck == ()


def test_access() -> None:
    assert broken(PluginFile(str(PLUGINS / "access.py"))) == {}


def test_hold_until() -> None:
    conf = {"command": ["true"]}
    assert broken(PluginFile(str(PLUGINS / "hold_until.py"), conf)) == {}
