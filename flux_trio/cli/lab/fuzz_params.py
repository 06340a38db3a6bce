"""Click types of the options of `flux-trio fuzz`."""

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


class SeedsParam(click.ParamType[Seeds]):
    """`A:B` or `A:`."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Seeds:
        """Return the seeds; other text is a usage error."""
        if isinstance(value, Seeds):
            return value
        found = _SEEDS.fullmatch(value)
        if found is None:
            self.fail(
                f"expected A:B, two numbers of 1 to 18 digits, or A:, got {value}", param, ctx
            )
        seeds = Seeds(int(found[1]), int(found[2]) if found[2] else None)
        if seeds.end is not None and seeds.end <= seeds.first:
            self.fail(f"expected A:B with A below B, got {value}", param, ctx)
        return seeds


class BudgetParam(click.ParamType[float]):
    """A duration above 0, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds; other text is a usage error."""
        from flux_trio.formats import parse_duration

        text = str(value)
        try:
            seconds = parse_duration(text.removeprefix("-"))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if text.startswith("-") or seconds <= 0:  # of less, parse_duration says that 0 is right
            self.fail(f"expected a duration above 0, got {value}", param, ctx)
        return seconds


class ImportParam(click.ParamType[Any]):
    """`module:name`, of a module that can be imported or is in the working directory."""

    name = "module:name"

    def load(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the text names; what cannot be imported is a usage error."""
        from flux_trio.jobtap.failures import attempt

        module, _, name = value.partition(":")
        if not (module and name):
            self.fail(f"expected {self.name}, got {value}", param, ctx)
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)  # the workers have the same path
        found, error = attempt(lambda: getattr(importlib.import_module(module), name))
        if error is not None:
            self.fail(f"{value}: {_raised_text(error)}", param, ctx)
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


class ExecutorParam(ImportParam):
    """The value is the callable, which returns an Executor."""

    name = "module:callable"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[], Executor]:
        """Return the callable; another thing that it returns is a usage error then."""
        from concurrent.futures import Executor

        from flux_trio.jobtap.failures import attempt

        expected = f"{value}: expected a callable that returns an Executor"
        make = self.load(value, param, ctx)
        if not callable(make):
            self.fail(f"{expected}, got {make!r}", param, ctx)

        def made() -> Executor:
            executor, error = attempt(make)
            if error is not None:
                self.fail(f"{expected}; it raised {_raised_text(error)}", param, ctx)
            if not isinstance(executor, Executor):
                self.fail(f"{expected}; it returned {executor!r}", param, ctx)
            return executor

        return made


class PropertyParam(ImportParam):
    """The value is the text, which names a Property: a worker imports it, too."""

    name = "module:property"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        from flux_trio.lab import Property
        from flux_trio.lab.stories.telling import name_refusal

        found = self.load(value, param, ctx)
        if not isinstance(found, Property):
            self.fail(
                f"{value}: expected a flux_trio.lab.Property, which is made by {_MAKERS}, got "
                f"{found!r}",
                param,
                ctx,
            )
        if refusal := name_refusal(found.name):
            self.fail(f"{value}: {refusal}", param, ctx)
        return str(value)


class PluginFileParam(click.ParamType[str]):
    """A file of a jobtap plugin that can be in a world; the value is its whole path."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path; a file without such a plugin is a usage error."""
        from flux_trio.jobtap import PluginError

        path = str(Path(value).resolve())
        try:
            _check([path], ctx)
        except PluginError as error:
            self.fail(str(error), param, ctx)
        return path


class PluginConfigParam(click.ParamType["list[PluginFile]"]):
    """A configuration; the value has the files of the plugins that it loads, with their conf."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[PluginFile]:
        """Return the plugins.

        A file that cannot be read, and a plugin that cannot be in a world, is a usage error.
        """
        from flux_trio.cli.lab.simulating import read_config_file
        from flux_trio.jobtap import Loader, PluginError, search_path
        from flux_trio.lab import PluginFile

        loader = Loader(search_path(os.environ))
        try:
            directives = read_config_file(Path(value)).job_manager.plugins
            files = [
                PluginFile(loader.find(each.load)[1], each.conf) for each in directives if each.load
            ]
            _check(files, ctx)
        except PluginError as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not files:
            self.fail(f"{value}: expected [job-manager] plugins that are loaded, got none")
        return files


class OutputDirectoryParam(click.Path[Path]):
    """A directory that is made when it is needed; one that cannot be made is a usage error."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path."""
        path = super().convert(value, param, ctx)
        there = next(each for each in (path, *path.parents) if os.path.lexists(each))
        refusal = _refusal(there)
        if refusal:
            self.fail(f"{path}: expected a directory that can be written: {refusal}", param, ctx)
        return path


class OutputFileParam(click.Path[Path]):
    """A file that is written at the end; one that cannot be written is a usage error."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, readable=False, writable=True, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path."""
        path = super().convert(value, param, ctx)
        refusal = "" if path.exists() else _refusal(path.parent)
        if refusal:
            self.fail(f"{path}: expected a file that can be written: {refusal}", param, ctx)
        return path


def _refusal(directory: Path) -> str:
    """Return why nothing can be made in the directory, or an empty text."""
    try:
        with TemporaryDirectory(dir=directory):
            return ""
    except OSError as error:
        return os.strerror(error.errno or 0)


def _check(files: Sequence[str | PluginFile], ctx: click.Context | None) -> None:
    from flux_trio.lab.world.plugin_files import check_files

    check_files(files, ctx.params.get("depth") or "cores" if ctx else "cores")


DEPTHS: Final = ("cores", "stack")
STORES: Final = ("memory", "sqlite")

PROPERTY_OPTION: Final = click.option(
    "--property",
    "properties",
    type=PropertyParam(),
    multiple=True,
    metavar="MODULE:NAME",
    help="Check this flux_trio.lab.Property as well. May be given several times.",
)
