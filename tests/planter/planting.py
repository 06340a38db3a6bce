"""Plants a mutant, or installs a probe, in this process and in the processes that it starts.

It also lets the cores in the started processes be reborn, if they are in this one.

`site/sitecustomize.py` is found by Python processes that inherit PYTHONPATH; it calls `at_start`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.planter.mutants import FAMILIES, family_named, mutants_of
from tests.planter.reach import Writer

PLANTED: Final = "PLANTER_PLANTED"
"""Environment variable: `FAMILY MUTANT`, in a process that has one."""
RECORDS: Final = "PLANTER_RECORDS"
"""Environment variable: `FAMILY DIRECTORY`, in a process that records."""
REFUSED: Final = "PLANTER_REFUSED"
"""Environment variable: the file for pairs without a row (tests/support/refusals.py)."""
REBORN: Final = "PLANTER_REBORN"
"""Environment variable: set if cores are replaced after every turn (tests/support/reborn.py)."""

CORES: Final[dict[str, str]] = {
    "flux_trio.cores.exec.core": "ExecCore",
    "flux_trio.cores.ingest.core": "IngestCore",
    "flux_trio.cores.job_manager.core": "JobManagerCore",
    "flux_trio.cores.job_list.core": "JobListCore",
    "flux_trio.cores.kvs.core": "KvsCore",
    "flux_trio.cores.resource.core": "ResourceCore",
    "flux_trio.cores.sched.core": "SchedCore",
}
"""The cores that can be put down: class by module."""

SITE: Final = str(Path(__file__).parent / "site")


def plant(family: str, mutant: str) -> None:
    """Plant `mutant` here, where the program is imported, and in the processes started from now."""
    mutants_of(family)[mutant].plant()
    _tell_others(PLANTED, f"{family} {mutant}")


def record(family: str, directory: Path) -> Writer:
    """Write down in `directory` what tests reach, here and in the processes started from now."""
    writer = Writer(directory)
    family_named(family).probe(writer.note, writer.set_aside)
    _tell_others(RECORDS, f"{family} {directory}")
    return writer


def let_others_be_reborn() -> None:
    """Replace the cores in the processes started from now after their turns."""
    _tell_others(REBORN, "1")


def is_planted() -> bool:
    """Whether this process has a mutant."""
    return PLANTED in os.environ


def at_start() -> None:
    """In a new process: do the same as the one that started it, once the program is imported."""
    if path := os.environ.get(REFUSED):
        _after_import("flux_trio.protocols", lambda: _report_refused(path))
    if REBORN in os.environ:
        for module, name in CORES.items():
            _after_import(module, partial(_let_be_reborn, module, name))
    if told := os.environ.get(PLANTED):
        family, mutant = told.split(" ", 1)
        _after_import(FAMILIES[family][1], lambda: mutants_of(family)[mutant].plant())
    elif told := os.environ.get(RECORDS):
        family, directory = told.split(" ", 1)
        _after_import(FAMILIES[family][1], lambda: _record(family, directory))


def _report_refused(path: str) -> None:
    importlib.import_module("tests.support.refusals").report_to(path)


def _let_be_reborn(module: str, name: str) -> None:
    importlib.import_module("tests.support.reborn").let_be_reborn_in(module, name)


def _record(family: str, directory: str) -> None:
    record(family, Path(directory))


def _tell_others(variable: str, value: str) -> None:
    os.environ[variable] = value
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if SITE not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([SITE, *paths])


class _After:
    """Calls `then` when `module` has been imported: an entry of `sys.meta_path`.

    Its base class would cost each process that a test starts a fifth of its imports.
    """

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module = module
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None, f"no module {fullname}"
        assert spec.loader is not None, f"no loader of {fullname}"
        execute = spec.loader.exec_module

        def execute_then(module: ModuleType) -> None:
            execute(module)
            self._then()

        spec.loader.exec_module = execute_then  # type: ignore[method-assign]
        return spec


def _after_import(module: str, then: Callable[[], None]) -> None:
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _After(module, then))
