"""The plugins of a site in worlds with faults, with a conf as a site may have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flux_trio.lab import PluginFile, Setup, run_plan
from flux_trio.lab.world.machines import USERID
from tests.support import reborn

PLUGINS = Path(__file__).parents[2] / "plugins"
SEEDS = range(2 if reborn.is_on else 8)


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


def test_reservation() -> None:
    """The window begins a few seconds after the world and takes an hour."""
    window = {"start": "2001-09-09T01:46:45+00:00", "end": "2001-09-09T02:46:40+00:00"}
    assert broken(PluginFile(str(PLUGINS / "reservation.py"), {"windows": [window]})) == {}


def test_access() -> None:
    assert broken(PluginFile(str(PLUGINS / "access.py"))) == {}


def test_hold_until() -> None:
    conf = {"command": ["true"]}
    assert broken(PluginFile(str(PLUGINS / "hold_until.py"), conf)) == {}
