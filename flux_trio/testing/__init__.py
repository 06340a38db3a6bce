"""Testing: helpers for testing your own code against flux-trio.

`simulated_instance` opens an instance for a block, with simulated job execution and a store in
memory: under Trio's `MockClock` a day of jobs takes milliseconds, and nothing is left behind. In a
block of `watched`, every instance is also judged by the clauses of the RFCs. A test without Trio
uses an `InstanceHarness`, and to place faults a `WorldHarness`; pytest has them as the fixtures
`instance` and `world`. `FakeScheduler` and `FakeExec` are services that a test plays itself. To
test a jobtap plugin, drive jobs through their states one step at a time with `PluginHarness`
(pytest's fixture `plugin_harness`), or replay the jobs of a recorded trace with `replay_trace`.
`flux_trio.testing.strategies` has strategies for hypothesis.

A name is imported when it is first used: pytest imports this package, for its plugin, in every
project where flux-trio is installed.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flux_trio.testing.fakes import FakeExec, FakeScheduler
    from flux_trio.testing.fixtures import EPOCH, USERID, simulated_instance
    from flux_trio.testing.harness import GUEST, HookCall, PluginHarness, Rejected
    from flux_trio.testing.harness_job import HarnessJob
    from flux_trio.testing.instance_harness import InstanceHarness, PlayedExec, PlayedScheduler
    from flux_trio.testing.instance_job import InstanceJob
    from flux_trio.testing.replaying import Replayed, replay_trace
    from flux_trio.testing.trio_thread import NothingHappens
    from flux_trio.testing.watching import ClausesBroken, watched
    from flux_trio.testing.world_harness import (
        FaultNeverStruck,
        PropertyBroken,
        WorldHarness,
        play_plan,
    )

__all__ = [
    "EPOCH",
    "GUEST",
    "USERID",
    "ClausesBroken",
    "FakeExec",
    "FakeScheduler",
    "FaultNeverStruck",
    "HarnessJob",
    "HookCall",
    "InstanceHarness",
    "InstanceJob",
    "NothingHappens",
    "PlayedExec",
    "PlayedScheduler",
    "PluginHarness",
    "PropertyBroken",
    "Rejected",
    "Replayed",
    "WorldHarness",
    "play_plan",
    "replay_trace",
    "simulated_instance",
    "watched",
]

_HOMES: Final = {
    "fakes": ("FakeExec", "FakeScheduler"),
    "fixtures": ("EPOCH", "USERID", "simulated_instance"),
    "harness": ("GUEST", "HookCall", "PluginHarness", "Rejected"),
    "harness_job": ("HarnessJob",),
    "instance_harness": ("InstanceHarness", "PlayedExec", "PlayedScheduler"),
    "instance_job": ("InstanceJob",),
    "replaying": ("Replayed", "replay_trace"),
    "trio_thread": ("NothingHappens",),
    "watching": ("ClausesBroken", "watched"),
    "world_harness": ("FaultNeverStruck", "PropertyBroken", "WorldHarness", "play_plan"),
}
"""The names of each module."""

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Import a name when it is first used."""
        for module, names in _HOMES.items():
            if name in names:
                value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__} has no attribute {name}")

    def __dir__() -> list[str]:
        """Return the names, also those that are not imported yet."""
        return sorted({*globals(), *__all__})
