"""Take out of a configuration what flux-core documents and this project has no use for.

`documented` says which keys these are. All other keys are left to the types of the tables, which
refuse a key that they do not know.
"""

from __future__ import annotations

from typing import Any, Final

from flux_trio.config.documented import DOCUMENTED, HARDWARE, HARDWARE_PLUGINS, Ignored, Refused
from flux_trio.formats import FormatError, Words, printable

_NO_COMMAND: Final = (
    "without command there is nothing to run: the IMP, whose it would be, is not here"
)
_BY_PATH: Final = {tuple(path.split(".")): meaning for path, meaning in DOCUMENTED.items()}

Reasons = dict[str, list[str]]
"""What is ignored, by the reason: names of the form `[tbon]` or `exec.imp`."""


def without_foreign(raw: object) -> tuple[object, Reasons]:
    """Return the configuration without flux-core's own parts, and what these parts are.

    A value that is not a table stays unchanged; the caller refuses it. Raises FormatError for a key
    that is refused, and for an unknown key of a table that is ignored.
    """
    if not isinstance(raw, dict):
        return raw, {}
    ignored: Reasons = {}
    kept = _kept(raw, (), ignored)
    for name in _leave_out_plugins(kept):
        ignored.setdefault(HARDWARE, []).append(name)
    for name in _without_command(kept):
        ignored.setdefault(_NO_COMMAND, []).append(name)
    return kept, ignored


def unknown_key(key: object, keys: list[str], where: str) -> FormatError:
    """Return the error for a key that a table does not have; it names a similar one."""
    from difflib import get_close_matches  # only a wrong configuration needs it

    close = get_close_matches(str(key), keys, n=1)
    got = Words(f'"{printable(str(key))}"; did you mean {close[0]}?') if close else key
    return FormatError(f"the keys {', '.join(keys)}", got, where)


def _kept(table: dict[str, Any], path: tuple[str, ...], ignored: Reasons) -> dict[str, Any]:
    """Return what is left of the table at `path`."""
    kept: dict[str, Any] = {}
    for key, value in table.items():
        place = (*path, key)
        where = ".".join(place)
        match _BY_PATH.get(place):
            case Refused(why):
                raise FormatError(why, value, where)
            case Ignored(why, keys) if path or isinstance(value, dict):
                _check_keys(value, keys, where)
                ignored.setdefault(why, []).append(where if path else f"[{where}]")
            case _:
                kept[key] = _kept(value, place, ignored) if isinstance(value, dict) else value
    return kept


def _check_keys(value: object, keys: tuple[str, ...] | None, where: str) -> None:
    if isinstance(value, dict) and keys is not None:
        for key in value:
            if key not in keys:
                raise unknown_key(key, list(keys), where)


def _leave_out_plugins(kept: dict[str, Any]) -> list[str]:
    """Remove the plugins that serve hardware, and return their names."""
    manager = kept.get("job-manager")
    plugins = manager.get("plugins") if isinstance(manager, dict) else None
    if not isinstance(manager, dict) or not isinstance(plugins, list):
        return []
    names = [each.get("load") if isinstance(each, dict) else None for each in plugins]
    both = zip(plugins, names, strict=True)
    manager["plugins"] = [each for each, name in both if name not in HARDWARE_PLUGINS]
    return [str(name) for name in names if name in HARDWARE_PLUGINS]


def _without_command(raw: dict[str, Any]) -> list[str]:
    """Return the names of the tables of perilog that leave the command to the IMP."""
    manager = raw.get("job-manager")
    tables = manager if isinstance(manager, dict) else {}
    return [
        f"job-manager.{name}"
        for name in ("prolog", "epilog")
        if isinstance(tables.get(name), dict) and "command" not in tables[name]
    ]
