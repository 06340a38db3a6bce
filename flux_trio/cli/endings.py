"""Exit codes of jobs, numbered as a shell does, and their texts."""

from __future__ import annotations

import os
import signal


def exit_code(status: int) -> int:
    """Return the exit code of a wait(2) status; 128 plus the signal's number after a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def how_it_ended(code: int) -> str:
    """Return an exit code in words; a code above 128 is a signal."""
    name = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {name}" if name else f"task(s) exited with exit code {code}"
