"""Editions: what differs between versions of the same RFCs, as values.

An `Edition` answers named questions; code asks the question and never compares the name.
Neither edition of RFC 27 or 32 has a version number on the wire, so an instance is told which
it speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Edition:
    """The answers of one edition of RFC 20, 27, 28, 32 and 33."""

    name: str
    free_is_acknowledged: bool  # RFC 27, Free: the scheduler answers sched.free with the id
    acquire_names_a_group: bool  # RFC 28, Acquire Request: the payload has `group`
    hello_needs_no_start_outstanding: bool  # RFC 32, Hello: refused while a start is outstanding
    defaults_are_applied_by_job_manager: bool  # RFC 33, Jobspec Defaults Policy, Note


CLASSIC: Final = Edition(
    name="classic",
    free_is_acknowledged=True,
    acquire_names_a_group=True,
    hello_needs_no_start_outstanding=True,
    defaults_are_applied_by_job_manager=True,
)

EDITIONS: Final = {CLASSIC.name: CLASSIC}

__all__ = ["CLASSIC", "EDITIONS", "Edition"]
