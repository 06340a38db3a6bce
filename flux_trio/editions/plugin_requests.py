"""What the instance owner asks about the job manager's plugins; flux-core's payloads."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.messages import Request


class Change(msgspec.Struct, frozen=True):
    """The job-manager.jobtap request: remove by name or glob, then load by name or path.

    `order` is the order in which a loaded plugin is told of the active jobs. With `query_only`,
    which Flux's own programs send, nothing is changed and the names of all plugins are answered.
    """

    load: str | None = None  # name or path of a plugin to load
    remove: str | None = None  # name or glob of plugins to remove
    conf: dict[str, Any] = {}  # the plugin's configuration
    order: str = "none"  # our own: in which order it is told of active jobs
    query_only: bool = False  # nothing changes; the names of all plugins are answered


class Changed(msgspec.Struct, frozen=True):
    """The job-manager.jobtap response: names of removed plugins; name and path of a loaded one.

    `abandoned` names the tasks of removed plugins that go on though they were cancelled.
    """

    removed: list[str]
    name: str | None = None
    path: str | None = None
    abandoned: list[str] | None = None


class Names(msgspec.Struct, frozen=True):
    """The answer to a job-manager.jobtap request with `query_only`."""

    plugins: list[str]


class Listing(msgspec.Struct, frozen=True):
    """The job-manager.jobtap-list request; with `all` builtin plugins are listed too."""

    all: bool = False


class Listed(msgspec.Struct, frozen=True):
    """The job-manager.jobtap-list response."""

    plugins: list[str]


class Query(msgspec.Struct, frozen=True):
    """The job-manager.jobtap-query request."""

    name: str  # of the plugin


def arguments_in(request: Request) -> dict[str, Any]:
    """The payload of a request to a plugin, whose keys are the plugin's own; {} without one."""
    return request.payload if isinstance(request.payload, dict) else {}


CHANGE: Final = codec(Change)
NAMES: Final = codec(Names)
CHANGED: Final = codec(Changed)
LISTING: Final = codec(Listing)
LISTED: Final = codec(Listed)
QUERY: Final = codec(Query)
