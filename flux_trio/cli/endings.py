"""How jobs end: exit codes as a shell has them, and what they mean."""

from __future__ import annotations

import os
import signal


def exit_code(status: int) -> int:
    """That of a wait(2) status: 128 and the number of the signal where one ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def how_it_ended(code: int) -> str:
    """An exit code in words; 128 and more is a signal."""
    name = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {name}" if name else f"task(s) exited with exit code {code}"
