"""The execution service: runs jobs, or pretends to, when the job manager says so (RFC 32).

`ExecCore` decides, `run` is the module; `place_tasks` tells where the tasks of a job are. Processes
belong to the shell host, a process of its own that outlives the instance (`shell_host`). It imports
from this package and has to be up at once, so the names here are imported when they are asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux_trio.services.exec.core import ExecCore
    from flux_trio.services.exec.placement import LayoutError, place_tasks
    from flux_trio.services.exec.service import run

__all__ = ["ExecCore", "LayoutError", "place_tasks", "run"]

_HOMES = {
    "ExecCore": "core",
    "LayoutError": "placement",
    "place_tasks": "placement",
    "run": "service",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
