"""The values of the options of `flux-trio fuzz`: what each may be, and what is made of it."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

import flux_trio

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from flux_trio.lab import PluginFile

_MAKERS: Final = "@over_trace(name), @after_each_step(name) or @at_rest(name)"
_PACKAGE: Final = Path(flux_trio.__file__).parent
_IMPORTING: Final = importlib.__file__
_SEEDS: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})?")


class Seeds(NamedTuple):
    """The seeds from `first` up to `end`, which is not one of them; without `end` all of them."""

    first: int
    end: int | None

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.end is None else self.end}"


def read_seeds(text: str) -> Seeds:
    """Read `A:B` or `A:`; other text is a usage error."""
    found = _SEEDS.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"expected A:B, two numbers of 1 to 18 digits, or A:, got {text}")
    seeds = Seeds(int(found[1]), int(found[2]) if found[2] else None)
    if seeds.end is not None and seeds.end <= seeds.first:
        raise click.BadParameter(f"expected A:B with A below B, got {text}")
    return seeds


def read_budget(text: str) -> float:
    """Read a duration above 0, in seconds; other text is a usage error."""
    from flux_trio.formats import parse_duration

    try:
        seconds = parse_duration(text.removeprefix("-"))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if text.startswith("-") or seconds <= 0:  # of less, parse_duration says that 0 is right
        raise click.BadParameter(f"expected a duration above 0, got {text}")
    return seconds


def _load(text: str, expected: str) -> Any:
    """Return what `module:name` names, in a module that can be imported or is in the working
    directory; what cannot be imported is a usage error.
    """
    from flux_trio.jobtap.failures import attempt

    module, _, name = text.partition(":")
    if not (module and name):
        raise click.BadParameter(f"expected {expected}, got {text}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # the workers have the same path
    found, error = attempt(lambda: getattr(importlib.import_module(module), name))
    if error is not None:
        raise click.BadParameter(f"{text}: {_raised_text(error)}")
    return found


def _raised_text(error: BaseException) -> str:
    """Return the error of a user's module in one line, with file and line if they are known."""
    from flux_trio.jobtap.failures import describe

    frames = traceback.extract_tb(error.__traceback__)
    places = [(each.filename, each.lineno) for each in frames if not _is_machinery(each.filename)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        places.append((error.filename, error.lineno))
    where = f" ({places[-1][0]}:{places[-1][1]})" if places else ""
    return f"{describe(error)}{where}"


def _is_machinery(filename: str) -> bool:
    """Return whether a file is no file, one of flux-trio, or the one that imports modules."""
    return filename.startswith((f"{_PACKAGE}{os.sep}", "<")) or filename == _IMPORTING


def load_executor(text: str) -> Callable[[], Executor]:
    """Return the callable that `module:callable` names.

    Anything else is a usage error, also later, when it does not return an Executor.
    """
    from concurrent.futures import Executor

    from flux_trio.jobtap.failures import attempt

    expected = f"{text}: expected a callable that returns an Executor"
    make = _load(text, "module:callable")
    if not callable(make):
        raise click.BadParameter(f"{expected}, got {make!r}")

    def made() -> Executor:
        executor, error = attempt(make)
        if error is not None:
            raise refused(f"it raised {_raised_text(error)}")
        if not isinstance(executor, Executor):
            raise refused(f"it returned {executor!r}")
        return executor

    def refused(why: str) -> click.BadParameter:
        context = click.get_current_context()  # click knows the option only while it reads options
        return click.BadParameter(f"{expected}; {why}", context, param_hint="'--executor'")

    return made


def check_property(text: str) -> str:
    """Return the text, which must name a Property: a worker imports it, too."""
    from flux_trio.lab import Property
    from flux_trio.lab.stories.telling import name_refusal

    found = _load(text, "module:property")
    if not isinstance(found, Property):
        raise click.BadParameter(
            f"{text}: expected a flux_trio.lab.Property, which is made by {_MAKERS}, got {found!r}"
        )
    if refusal := name_refusal(found.name):
        raise click.BadParameter(f"{text}: {refusal}")
    return text


def check_plugin_file(text: str) -> str:
    """Return the whole path of a file with a jobtap plugin that can be in a world; a file without
    one is a usage error.
    """
    from flux_trio.jobtap import PluginError

    path = str(Path(text).resolve())
    try:
        _check([path])
    except PluginError as error:
        raise click.BadParameter(str(error)) from None
    return path


def read_plugin_config(text: str) -> list[PluginFile]:
    """Return the files of the plugins that a configuration loads, with their conf.

    A file that cannot be read, and a plugin that cannot be in a world, is a usage error.
    """
    from flux_trio.cli.lab.simulating import read_config_file
    from flux_trio.jobtap import Loader, PluginError, search_path
    from flux_trio.lab import PluginFile

    loader = Loader(search_path(os.environ))
    try:
        directives = read_config_file(Path(text), None).job_manager.plugins
        files = [
            PluginFile(loader.find(each.load)[1], each.conf) for each in directives if each.load
        ]
        _check(files)
    except PluginError as error:
        raise click.BadParameter(f"{text}: {error}") from None
    if not files:
        raise click.BadParameter(
            f"{text}: expected [job-manager] plugins that are loaded, got none"
        )
    return files


def check_directory(_ctx: click.Context, _param: click.Parameter, path: Path) -> Path:
    """Return the path of a directory that is made when it is needed; one that cannot be made is a
    usage error.
    """
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if refusal := _refusal(there):
        raise click.BadParameter(f"{path}: expected a directory that can be written: {refusal}")
    return path


def check_file(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Return the path of a file that is written at the end; one that cannot be written is a usage
    error.
    """
    refusal = "" if path is None or path.exists() else _refusal(path.parent)
    if refusal:
        raise click.BadParameter(f"{path}: expected a file that can be written: {refusal}")
    return path


def _refusal(directory: Path) -> str:
    """Return why nothing can be made in the directory, or an empty text."""
    try:
        with TemporaryDirectory(dir=directory):
            return ""
    except OSError as error:
        return os.strerror(error.errno or 0)


def _check(files: Sequence[str | PluginFile]) -> None:
    from flux_trio.lab.world.plugin_files import check_files

    check_files(files, click.get_current_context().params.get("depth") or "cores")


DEPTHS: Final = ("cores", "stack")
STORES: Final = ("memory", "sqlite")

PROPERTY_OPTION: Final = click.option(
    "--property",
    "properties",
    type=check_property,
    multiple=True,
    metavar="MODULE:NAME",
    help="Check this flux_trio.lab.Property as well. May be given several times.",
)
