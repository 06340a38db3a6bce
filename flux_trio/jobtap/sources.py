"""What a program gives as plugins, and the plugins made of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from flux_trio.jobtap.failures import attempt, describe, place_of
from flux_trio.jobtap.loading import load_file
from flux_trio.jobtap.plugin import Plugin
from flux_trio.jobtap.values import PluginError

PluginSource: TypeAlias = Plugin | Callable[[], Plugin] | str | os.PathLike[str]
"""A plugin, or what makes one: a class or a function without arguments, or the path of a file."""


def plugin_sources(given: Iterable[PluginSource]) -> tuple[PluginSource, ...]:
    """Return what was given. Raises TypeError if it is no list of sources."""
    if isinstance(given, str | os.PathLike | Plugin) or not isinstance(given, Iterable):
        raise _unexpected("a list of ", given)
    found = tuple(given)
    for each in found:
        if not (isinstance(each, Plugin | str | os.PathLike) or callable(each)):
            raise _unexpected("", each)
    return found


def made(source: PluginSource) -> Plugin:
    """Return the plugin. Raises PluginError for what makes none, TypeError for another type."""
    plugin_sources((source,))
    if isinstance(source, Plugin):
        return source
    if isinstance(source, str | os.PathLike):
        return load_file(Path(source))
    plugin, error = attempt(source)
    if error is not None:
        where = place_of(source, error)
        raise PluginError(f"plugins: {source!r}: {describe(error)}{where}") from error
    if not isinstance(plugin, Plugin):
        raise PluginError(f"plugins: expected a plugin from {source!r}, got {plugin!r}")
    return plugin


def _unexpected(what: str, given: object) -> TypeError:
    return TypeError(
        f"plugins: expected {what}plugins, their classes, functions that make them, or paths of "
        f"files, got {given!r}"
    )
