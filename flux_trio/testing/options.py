"""The types of the options of an instance under test, which a marker gives unchecked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from flux_trio.config import Config
from flux_trio.formats import ResourceSet


def wrong_text(options: Mapping[str, object]) -> str:
    """Return what is wrong with the first option of a wrong type; "" if nothing is."""
    for name, value in options.items():
        is_right, expected = _OPTIONS[name]
        if not is_right(value):
            return f"{name}: expected {expected}, got {value!r}"
    return ""


def _is_config(value: object) -> bool:
    return isinstance(value, Config | str)


def _is_edition(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_inventory(value: object) -> bool:
    return value is None or isinstance(value, ResourceSet)


def _are_plugins(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | os.PathLike)


def _are_users(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and all(
        isinstance(userid, int) and _is_user(user) for userid, user in value.items()
    )


def _is_user(value: object) -> bool:
    match value:
        case [str(), str()]:  # a name of a group where a list of them belongs
            return False
        case [str(), groups]:
            return isinstance(groups, Iterable)
    return False


_OPTIONS: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "config": (_is_config, "a flux_trio.config.Config or its text (TOML)"),
    "edition": (_is_edition, "classic or current"),
    "inventory": (_is_inventory, "a flux_trio.formats.ResourceSet"),
    "plugins": (_are_plugins, "a list"),
    "users": (_are_users, 'names and groups by userid, such as {1001: ("alice", ["physics"])}'),
}
