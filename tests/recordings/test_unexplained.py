"""What happened in recordings of flux-core and breaks no clause: lost services, error responses."""

from __future__ import annotations

from typing import Final

import pytest

from flux_trio.trace import read_trace
from tests.support import recorded

HAPPENED: Final = {
    "18": ["unexplained.lost-service"],  # a scheduler crashes
    "45": ["unexplained.error-response"] * 2,  # sched-hello and resource.acquire of a program
}


@pytest.mark.parametrize("number", recorded.numbers())
def test_what_is_unexplained_has_happened(number: str) -> None:
    found = recorded.judged(recorded.recording(number), at_rest=True).unexplained
    assert [each.clause for each in found] == HAPPENED.get(number, [])


@pytest.mark.parametrize("name", ["live.sched-simple.trace", "live.sched-fifo.trace"])
def test_nothing_is_unexplained_in_a_healthy_instance(name: str) -> None:
    source = read_trace(recorded.module_trace(name).splitlines(keepends=True))
    assert recorded.judged_source(source).unexplained == ()
