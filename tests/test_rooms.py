"""What decides loads nothing that could wait, read or write: shown in a fresh interpreter."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

import flux_trio

PURE: Final = ("cores", "protocols", "policies", "judge", "editions", "formats", "messages")
IMPURE: Final = ("trio", "sqlite3", "asyncio", "anyio", "subprocess", "socket")


def modules_of(room: str) -> list[str]:
    """Every module of the package `room`, itself included."""
    package = __import__(f"flux_trio.{room}", fromlist=["__path__"])
    found = pkgutil.walk_packages(package.__path__, f"flux_trio.{room}.")
    return [f"flux_trio.{room}", *(module.name for module in found)]


@pytest.mark.parametrize("room", PURE)
def test_importing_what_decides_imports_nothing_that_waits(room: str) -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {modules_of(room)!r}: importlib.import_module(name)\n"
        f"print(*sorted(set(sys.modules) & set({IMPURE!r})))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/"
    )
    assert run.stdout.split() == []


def test_a_start_imports_no_other_event_loop_and_no_client() -> None:
    """Each costs a start some hundredths of a second."""
    script = "import flux_trio.cli.instance.foreground, sys\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/"
    )
    imported = set(run.stdout.split())
    assert "flux_trio.instance" in imported
    assert imported & {"asyncio", "anyio", "flux_trio.client.client", "flux_trio.judge"} == set()


def test_the_rooms_are_there() -> None:
    assert set(PURE) <= {module.name for module in pkgutil.iter_modules(flux_trio.__path__)}


def test_the_package_shows_its_rooms_in_the_order_in_which_they_may_import() -> None:
    contracts = ConfigParser()
    contracts.read(Path(__file__).parent.parent / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["layers"].split()
    pure = contracts["importlinter:contract:pure"]["source_modules"].split()
    shown = re.findall(r"^    (\w+) +(pure: )?\S", flux_trio.__doc__ or "", re.MULTILINE)
    assert [room for room, _ in shown] == layers
    assert {f"flux_trio.{room}" for room, mark in shown if mark} == set(pure)


DESIGN: Final = (Path(__file__).parent.parent / "docs" / "design.md").read_text()


def test_the_page_on_design_shows_them_in_the_same_order() -> None:
    shown = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", DESIGN, re.MULTILINE)
    contracts = ConfigParser()
    contracts.read(Path(__file__).parent.parent / ".importlinter")
    assert shown == contracts["importlinter:contract:layers"]["layers"].split()


def test_the_files_on_one_jobs_way_are_there() -> None:
    table = DESIGN.partition("## One job's way")[2].partition("\n## ")[0]
    package = Path(flux_trio.__path__[0])
    missing = []
    for row in table.splitlines():
        folder = Path()
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row.rpartition(" | ")[2]):
            place = next(
                (at for at in (folder, *folder.parents) if (package / at / name).exists()), None
            )
            if place is None:
                missing.append(name)
            else:
                folder = (place / name).parent
    assert missing == []
