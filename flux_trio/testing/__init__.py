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
    from flux_trio.testing.rest import NothingHappens
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
    "ClausesBroken": "watching",
    "EPOCH": "fixtures",
    "FakeExec": "fakes",
    "FakeScheduler": "fakes",
    "FaultNeverStruck": "world_harness",
    "GUEST": "harness",
    "HarnessJob": "harness_job",
    "HookCall": "harness",
    "InstanceHarness": "instance_harness",
    "InstanceJob": "instance_job",
    "NothingHappens": "rest",
    "PlayedExec": "instance_harness",
    "PlayedScheduler": "instance_harness",
    "PluginHarness": "harness",
    "PropertyBroken": "world_harness",
    "Rejected": "harness",
    "Replayed": "replaying",
    "USERID": "fixtures",
    "WorldHarness": "world_harness",
    "play_plan": "world_harness",
    "replay_trace": "replaying",
    "simulated_instance": "fixtures",
    "watched": "watching",
}
"""The module of each name."""

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Import a name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the names, also those that are not imported yet."""
        return sorted({*globals(), *__all__})
