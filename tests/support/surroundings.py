"""What this process and those that tests start have from the test run, not from who started it.

A shell's background job and nohup ignore signals; a CI or a service manager has its own umask,
limits, closed files and variables. `conftest.py` calls `set_surroundings` before the first test, in
each worker.
"""

from __future__ import annotations

import locale
import os
import resource
import signal
import sys
from typing import Final

from flux_trio.process.console import fill_standard_descriptors

LOCALE: Final = "C.UTF-8"
UMASK: Final = 0o022

# The variables that stay: where things are, and what a person or a tool tells the tests.
KEPT: Final = {"CI", "HOME", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "TMPDIR", "USER"}
KEPT_BY_PREFIX: Final = (
    "COVERAGE",
    "FLUXION_MODULES",
    "FLUX_TRIO_KEEP_TRACE",
    "FLUX_TRIO_OUTCOMES",
    "HYPOTHESIS",
    "PIP_",
    "PLANTER_",
    "PYTEST_",
    "SOURCE_DATE_EPOCH",
    "VIRTUAL_ENV",
)

# Soft limits; the hard ones stay, so none is set beyond them. None: as much as the hard limit.
LIMITS: Final[dict[int, int | None]] = {
    resource.RLIMIT_AS: None,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_CPU: None,
    resource.RLIMIT_DATA: None,
    resource.RLIMIT_FSIZE: None,
    resource.RLIMIT_NOFILE: 1024,
    resource.RLIMIT_NPROC: None,
    resource.RLIMIT_STACK: 8 << 20,
}

# Python ignores them itself: a write to a closed pipe, or beyond a limit, is an error.
_IGNORED: Final = {signal.SIGPIPE, signal.SIGXFSZ}


def set_surroundings() -> None:
    """Give this process the surroundings of a test run; processes that it starts inherit them."""
    fill_standard_descriptors()
    sys.dont_write_bytecode = False  # without files each worker and process compiles all it reads
    _set_signals()
    _set_limits()
    os.umask(UMASK)
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_BY_PREFIX):
            del os.environ[name]
    # exec(3) says that a command may not be run where it could not look for it
    places = os.environ["PATH"].split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(each for each in places if os.access(each, os.X_OK))
    os.environ["LC_ALL"] = LOCALE
    locale.setlocale(locale.LC_CTYPE, LOCALE)


def _set_signals() -> None:
    for signum in signal.valid_signals() - _IGNORED:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _set_limits() -> None:
    for kind, wanted in LIMITS.items():
        _, hard = resource.getrlimit(kind)
        soft = hard if wanted is None else wanted
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(kind, (soft, hard))
