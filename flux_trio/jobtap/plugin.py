"""What a plugin is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from flux_trio.protocols import HookAnswer, JobView

Handler = Callable[[JobView], "HookAnswer | Awaitable[HookAnswer | None] | None"]


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What the host lends a loaded plugin.

    `nursery` ends with the plugin; `post` logs an event to a job (id, name, context): a
    prolog-finish when its process has ended, say. It raises FormatError for what is no event.
    """

    nursery: trio.Nursery
    post: Callable[[int, str, dict[str, Any]], None]


class Plugin:
    """A named set of handlers, by topic; builtins have a name that starts with a period."""

    name = ""

    def handlers(self) -> Mapping[str, Handler]:
        """Topic → handler; asked once, when the plugin is loaded."""
        return {}

    def loaded(self, context: PluginContext) -> None:
        """The plugin is in place; keep `context` if you need it."""
