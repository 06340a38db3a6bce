"""Testing: for people who test what they have built against flux-trio.

What they need is a whole instance whose time is virtual: `simulated_instance` opens one for the
length of a block, with jobs that only pretend to run and a store in memory, so that under Trio's
`MockClock` a day of jobs takes milliseconds and nothing is left behind. In a block of `watched`
every instance is judged by the clauses of the RFCs as well. Who has written a jobtap plugin takes
jobs through their states with `PluginHarness`, pytest's fixture `plugin_harness`, one step at a
time, or those of a recorded trace with `replay_trace`.
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
