"""Testing: helpers for testing your own code against flux-trio.

`simulated_instance` opens an instance for a block, with simulated job execution and a store in
memory: under Trio's `MockClock` a day of jobs takes milliseconds, and nothing is left behind. In a
block of `watched`, every instance is also judged by the clauses of the RFCs. To test a jobtap
plugin, drive jobs through their states one step at a time with `PluginHarness` (pytest's fixture
`plugin_harness`), or replay the jobs of a recorded trace with `replay_trace`.
"""

from flux_trio.testing.fixtures import EPOCH, USERID, simulated_instance
from flux_trio.testing.harness import GUEST, HookCall, PluginHarness, Rejected
from flux_trio.testing.harness_job import HarnessJob
from flux_trio.testing.replaying import Replayed, replay_trace
from flux_trio.testing.watching import ClausesBroken, watched

__all__ = [
    "EPOCH",
    "GUEST",
    "USERID",
    "ClausesBroken",
    "HarnessJob",
    "HookCall",
    "PluginHarness",
    "Rejected",
    "Replayed",
    "replay_trace",
    "simulated_instance",
    "watched",
]
