"""How much work Python does in a call: counted, and so the same on every machine at any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.support import reborn


def count_steps(call: Callable[[], object]) -> int:
    """The bytecode instructions of Python that `call` takes; what C does counts as one.

    Skips the test while cores are replaced after every turn, which costs more than their turns.
    """
    if reborn.is_on:
        pytest.skip("cores are replaced after every turn")
    steps = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps
