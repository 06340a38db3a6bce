"""Every core replaced after every turn by a new one that is given its state, through bytes.

`pytest -p tests.support.reborn` runs any test so, also in the processes that it starts: what a
core does may depend on nothing but its state. Every part of the old core raises from then on,
whatever of it is touched.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import msgspec

from flux_trio.cores.state import Part, parts_of, put_down, take_up
from tests.planter.planting import CORES, let_others_be_reborn

EVERY_TURN_BYTES: Final = 4_000_000
"""A core is replaced after every turn until so many bytes of state are written: some 400 turns of
a test with a few jobs. Nearly all tests end before."""

BYTES_A_TURN: Final = 50_000
"""From then on it stays a turn longer for each so many further bytes: tests with 20,000 turns, or
with 20,000 jobs, are there to find bounds, and would take minutes."""

TURNS: Final = ("start", "turn", "plugins_replied", "go_on")
"""Methods after which a core is replaced; the last two are those of a turn with plugins."""

is_on = False
"""Whether cores are replaced in this run."""

NOT_IN_SEARCHES: Final = "a search takes up states in the one core that it keeps for each module"
"""Why tests of `tests.explore.search` are skipped in such a run."""


class Buried:
    """What the parts of a core become that has been replaced."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a part was used after its core had been replaced")


def bury(part: Part) -> None:
    """Let every use of `part` raise."""
    object.__setattr__(part, "__dict__", {})
    object.__setattr__(part, "__class__", Buried)


def replace(shell: Any, make: Callable[[], Any]) -> int:
    """Put a core made by `make` in the place of the one in `shell`, which is buried.

    Returns how many turns the next one is to stay.
    """
    old = shell.__dict__.get("_inner", shell)
    encoded = msgspec.json.encode(put_down(old))
    data = msgspec.json.decode(encoded)
    parts = [part for part in parts_of(old).values() if part is not shell]
    written: int = shell.__dict__["_written"] + len(encoded)
    new = make()
    take_up(new, data)
    for part in parts:
        bury(part)
    shell.__dict__.clear()
    shell.__dict__.update(new.__dict__)
    shell.__dict__["_inner"] = new
    shell.__dict__["_written"] = written
    return 1 + max(0, written - EVERY_TURN_BYTES) // BYTES_A_TURN


def let_be_reborn(cls: Any) -> None:
    """Replace each core of class `cls` after its start and after every turn."""
    init = cls.__init__

    @wraps(init)  # with its signature, which a recorded core is checked against
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.__dict__["_made_by"] = (args, kwargs)
        self.__dict__["_written"] = 0
        self.__dict__["_stays"] = 1

    def make(shell: Any) -> Any:
        args, kwargs = shell.__dict__["_made_by"]
        new = cls.__new__(cls)
        init(new, *args, **kwargs)
        new.__dict__["_made_by"] = (args, kwargs)
        return new

    def after(method: Any) -> Any:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            inner = self.__dict__.get("_inner", self)
            actions = method(inner, *args, **kwargs)
            if inner is not self:
                self.__dict__.update(inner.__dict__)  # what is read of the core is that of now
            self.__dict__["_stays"] -= 1
            if not self.__dict__["_stays"]:
                self.__dict__["_stays"] = replace(self, lambda: make(self))
            return actions

        return run

    cls.__init__ = remember
    for name in TURNS:
        if hasattr(cls, name):
            setattr(cls, name, after(getattr(cls, name)))


def let_be_reborn_in(module: str, name: str) -> None:
    """Replace each core of class `name` of `module`, a name of CORES.

    A worker process of pytest-xdist calls this twice: at its start, and as it loads the plugin.
    """
    cls = getattr(importlib.import_module(module), name)
    if not hasattr(cls.turn, "__wrapped__"):
        let_be_reborn(cls)


def pytest_configure() -> None:
    """Called by pytest when it loads this file as a plugin."""
    global is_on
    is_on = True
    for module, name in CORES.items():
        let_be_reborn_in(module, name)
    let_others_be_reborn()
