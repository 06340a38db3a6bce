"""What the host of before knows of a plugin; goes with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio

from flux_trio.protocols import HookAnswer, JobView

Handler = Callable[[JobView], "HookAnswer | Awaitable[HookAnswer | None] | None"]


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What the host lends a loaded plugin."""

    nursery: trio.Nursery
    post: Callable[[int, str, dict[str, Any]], None]
