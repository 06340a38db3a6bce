"""Whoever starts the tests, what they start finds the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.instance import DEADLINE_S, ROOT

pytestmark = pytest.mark.real

TOLD = """
import locale, os, resource, signal, subprocess, sys
from tests.support.surroundings import set_surroundings
set_surroundings()
told = '''
import os, resource, signal
print([each.name for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print(sorted(set(os.environ) - {"LC_CTYPE"}), os.environ["LC_ALL"])
print(os.readlink("/proc/self/fd/0"))
'''
sys.stdout.flush()
subprocess.run([sys.executable, "-c", told], check=True)
signal.raise_signal(signal.SIGINT)
"""

SPOILED = """
trap '' INT HUP QUIT TERM USR1
umask 0; ulimit -S -n 64
exec env -i LC_ALL=C PATH="$PATH" FLUX_TRIO_URI=x COLUMNS=7 PYTHONPATH="$0" "$1" -c "$2" <&-
"""


def test_processes_of_tests_have_default_signals_and_a_clean_environment_umask_and_limits() -> None:
    done = subprocess.run(
        ["sh", "-c", SPOILED, str(ROOT), sys.executable, TOLD],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "['SIGPIPE', 'SIGXFSZ']",
        "set()",
        "0o22 1024",
        "['LC_ALL', 'PATH', 'PYTHONPATH'] C.UTF-8",
        "/dev/null",
    ]
    assert done.stderr.endswith("KeyboardInterrupt\n")
