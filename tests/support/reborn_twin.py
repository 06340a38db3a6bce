"""Cores that hear the same: one is put down and taken up at times, one has other numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.cores.fingerprint import differences, digest_of
from flux_trio.cores.state import CorePart
from tests.support import reborn
from tests.support.renumbered import Renumbered


class Twins:
    """Compares the actions of a core with those of its twin, which is put down at times.

    If `is_numbered` (the types of its state say what is a job, a matchtag, a time), compares its
    fingerprint with that of a third core, which knows these by other numbers. Skips the test while
    every core is put down after every turn anyhow.
    """

    def __init__(self, make: Callable[[], Any], *, is_numbered: bool = True) -> None:
        if reborn.is_on:
            pytest.skip("cores are replaced after every turn")
        self._make = make
        self._renumbered = Renumbered(make) if is_numbered else None
        self.core: Any = make()
        self.twin: Any = make()

    def put_down_and_take_up(self) -> None:
        """From now on the twin is a new core, which has nothing but the state of the old one."""
        assert isinstance(self.twin, CorePart)
        data = msgspec.json.decode(msgspec.json.encode(self.twin.dump()))
        self.twin = self._make()
        self.twin.load(data)
        assert self.twin.dump() == data

    def compare(self) -> None:
        """The twin is in the state of the core that was never put down.

        This is so for a core whose parts share no object by way of a cache outside of it.
        """
        _compare(self.core, self.twin)

    def start(self, now: float) -> Any:
        """The first actions of both, which are equal."""
        return self.call("start", now)

    def turn(self, now: float, inputs: Any) -> Any:
        """The actions of both, which are equal."""
        return self.call("turn", now, inputs)

    def call(self, method: str, *args: Any) -> Any:
        """What this method of both returns, which is equal; an argument is a time or inputs."""
        args = tuple(each if isinstance(each, (int, float)) else tuple(each) for each in args)
        actions = getattr(self.core, method)(*args)
        assert getattr(self.twin, method)(*args) == actions
        if self._renumbered is not None:
            self._renumbered.call(method, args, actions)
            _compare(self.core, self._renumbered.core)
        return actions


def _compare(core: Any, other: Any) -> None:
    state, others = core.normalised(), other.normalised()
    found = differences(state, others)
    assert not found, "\n".join(found)
    assert digest_of(state) == digest_of(others)
