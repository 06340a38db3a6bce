"""RFC 5: what a broker and a module in a process of its own tell each other.

The broker starts a loader with the file of the module, and one end of a socket pair in MODULE_URI.
It sends `welcome` first. The module says RUNNING when it serves, gets `NAME.shutdown` when it is to
end, says FINALIZING, after whose answer nothing more comes, and EXITED with an errno, or 0.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any, Final, Literal

import msgspec

from flux_trio.formats import FormatError

MODULE_URI: Final = "FLUX_MODULE_URI"
WELCOME: Final = "welcome"
STATUS: Final = "module.status"
RUNNING: Final = 1
FINALIZING: Final = 2
EXITED: Final = 3

LOADERS: Final = {"*.py": "module-python-exec", "*.so*": "module-exec"}
"""Subcommands of `flux` that load a module, by the name of its file."""


class Welcome(msgspec.Struct):
    """The first message: the module's arguments, what the broker is and has, who the module is."""

    args: list[str]
    attrs: dict[str, str]
    conf: dict[str, Any]
    name: str
    uuid: str


class StatusReport(msgspec.Struct):
    """module.status: what has become of a module; `errnum` is for EXITED."""

    status: Literal[1, 2, 3]
    errnum: int = 0


def shutdown_of(name: str) -> str:
    """Return the topic by which a broker ends the module `name`."""
    return f"{name}.shutdown"


def name_of_module(path: str) -> str:
    """Return the name that a module has by its file."""
    name = _file_name(path)
    return name.removesuffix(".py") if name.endswith(".py") else name.partition(".so")[0]


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def loader_command(loader: str, path: str, option: str) -> list[str]:
    """Return the command that loads the module at `path`.

    Raises FormatError for a file of another kind, if no `loader` is named; `option` names one.
    """
    if not loader:
        name = _file_name(path)
        loader = next((each for glob, each in LOADERS.items() if fnmatch(name, glob)), "")
    if not loader:
        raise FormatError(f"a module NAME.py or NAME.so, or its loader in {option}", path)
    return ["flux", loader, path]
