"""Testing: helpers for testing your own code against flux-trio.

`simulated_instance` opens an instance for a block, with simulated job execution and a store in
memory: under Trio's `MockClock` a day of jobs takes milliseconds, and nothing is left behind. In a
block of `watched`, every instance is also judged by the clauses of the RFCs. A test without Trio
uses an `InstanceHarness`, and to place faults a `WorldHarness`; pytest has them as the fixtures
`instance` and `world`. `FakeScheduler` and `FakeExec` are services that a test plays itself. To
test a jobtap plugin, drive jobs through their states one step at a time with `PluginHarness`
(pytest's fixture `plugin_harness`), or replay the jobs of a recorded trace with `replay_trace`.
`flux_trio.testing.strategies` has strategies for hypothesis.
"""

from flux_trio.testing.fakes import FakeExec, FakeScheduler
from flux_trio.testing.fixtures import EPOCH, USERID, simulated_instance
from flux_trio.testing.harness import GUEST, HookCall, PluginHarness, Rejected
from flux_trio.testing.harness_job import HarnessJob
from flux_trio.testing.instance_harness import InstanceHarness, PlayedExec, PlayedScheduler
from flux_trio.testing.instance_job import InstanceJob
from flux_trio.testing.replaying import Replayed, replay_trace
from flux_trio.testing.rest import NothingHappens
from flux_trio.testing.watching import ClausesBroken, watched
from flux_trio.testing.world_harness import FaultNeverStruck, PropertyBroken, WorldHarness

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
    "replay_trace",
    "simulated_instance",
    "watched",
]
