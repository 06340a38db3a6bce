"""A watchdog of plugins that looks every 20 ms: what loops is interrupted soon."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flux_trio.jobtap.watchdog import Watchdog

LOOK_S: Final = 0.02


def make_watchdogs_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Watchdog.__init__

    def look_often(self: Watchdog, _blocked_s: float, *given: Any, **more: Any) -> None:
        make(self, LOOK_S, *given, **more)

    monkeypatch.setattr(Watchdog, "__init__", look_often)
