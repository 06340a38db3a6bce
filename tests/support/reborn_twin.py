"""Two cores that hear the same; one is put down and taken up, through bytes, at times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.cores.state import CorePart
from tests.support import reborn


class Twins:
    """Compares the actions of a core with those of its twin, which is put down at times.

    Skips the test while every core is put down after every turn anyhow.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        if reborn.is_on:
            pytest.skip("cores are replaced after every turn")
        self._make = make
        self.core: Any = make()
        self.twin: Any = make()

    def put_down_and_take_up(self) -> None:
        """From now on the twin is a new core, which has nothing but the state of the old one."""
        assert isinstance(self.twin, CorePart)
        data = msgspec.json.decode(msgspec.json.encode(self.twin.dump()))
        self.twin = self._make()
        self.twin.load(data)
        assert self.twin.dump() == data

    def start(self, now: float) -> Any:
        """The first actions of both, which are equal."""
        actions = self.core.start(now)
        assert self.twin.start(now) == actions
        return actions

    def turn(self, now: float, inputs: Any) -> Any:
        """The actions of both, which are equal."""
        actions = self.core.turn(now, list(inputs))
        assert self.twin.turn(now, list(inputs)) == actions
        return actions
