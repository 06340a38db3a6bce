"""Ctrl-C while a harness starts: the program ends, and no thread stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.instance import DEADLINE_S, environment

PROGRAM = """
import signal, threading
from flux_trio import jobtap
from flux_trio.testing import InstanceHarness, PluginHarness

class Interrupts(jobtap.Plugin):
    def loaded(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

try:
    with {harness}:
        pass
except KeyboardInterrupt:
    print("interrupted", [each.name for each in threading.enumerate()])
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "harness", ["InstanceHarness(plugins=[Interrupts])", "PluginHarness(Interrupts)"]
)
def test_interrupt_while_the_instance_starts_leaves_no_thread(harness: str) -> None:
    program = PROGRAM.format(harness=harness)
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "interrupted ['MainThread']\n", result.stderr
