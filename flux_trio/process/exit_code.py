"""How a process ended, in the number that a shell shows: 128+N after signal N."""

from __future__ import annotations

import os


def exit_code(status: int) -> int:
    """Return the exit code of a wait(2) status."""
    return code_of(os.waitstatus_to_exitcode(status))


def code_of(returncode: int) -> int:
    """Return the exit code of a returncode as Python has it: -N after signal N."""
    return returncode if returncode >= 0 else 128 - returncode
