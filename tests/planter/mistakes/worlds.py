"""The worlds of seeds in which a mutant is looked for.

Most mutants are played at depth cores. A mistake in the shells or the broker may need the whole
stack; one in a plugin of `plugins/` needs worlds that load it, with a conf that gives it work.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flux_trio.lab.stories.campaign import SeedResult, Setup

ROOT: Final = Path(__file__).parents[3]
PLUGINS: Final = "plugins"
BUILTINS: Final = "flux_trio/jobtap/builtins/"
BUSY: Final = str(Path(__file__).with_name("busy.py"))
BUSY_EVERY: Final = 3

# --- confs of the plugins for sites; `site.py` has properties that go by them

OWNER: Final = 1000  # the userid of all jobs of worlds
RUNNING_MAX: Final = 2
ACCOUNTS: Final = (
    ("bank", "physics"),
    ("queue", "queue0", "max_running_jobs=2", "max_nodes=2"),
    ("user", "ann", "bank=physics", f"userid={OWNER}", f"max_running_jobs={RUNNING_MAX}"),
    ("user", "ann", "bank=physics", "max_nodes=3", "queues=queue0,queue1"),
)
"""Rows of the accounts; queue1 is for all users."""

WINDOW: Final = ("2001-09-09T01:46:55+00:00", "2001-09-09T01:48:20+00:00")
"""From 15 to 100 seconds after the start of each world."""
CLOSED: Final = "queue1"
"""The queue to which nobody has access."""


@dataclass(frozen=True)
class Worlds:
    """What worlds are made of; without `has_faults` their plans have no faults.

    They load the file `plugin` of PLUGINS. If that is "", each third has the plugin BUSY.
    """

    depth: str = "cores"
    plugin: str = ""
    has_faults: bool = True

    @property
    def name(self) -> str:
        """Return a name for files; "" for those in which most mutants are played."""
        words = (self.depth, self.plugin.removesuffix(".py"), "" if self.has_faults else "calm")
        return "" if self == PLAIN else "-".join(each for each in words if each)


PLAIN: Final = Worlds()
"""Those in which most mutants are played."""


def is_plugin(file: str) -> bool:
    """Whether a file of the program, by its path from the root, is a plugin for sites."""
    return file.startswith(f"{PLUGINS}/")


@contextmanager
def open_worlds(worlds: Worlds, files: Mapping[str, str]) -> Iterator[Callable[[int], SeedResult]]:
    """Yield what plays the world of a seed; `files` has the texts of what is planted.

    Plugins are loaded from directories of copies, in which plugins among `files` are edited.
    """
    with TemporaryDirectory() as name:
        directory = Path(name)
        conf: dict[str, Any] = {}
        if worlds.plugin:
            for path in (ROOT / PLUGINS).glob("*.py"):
                text = files.get(f"{PLUGINS}/{path.name}") or path.read_text(encoding="utf-8")
                (directory / path.name).write_text(text, encoding="utf-8")
            conf = _conf_of(worlds.plugin, directory)
        with _builtins_in(directory / "builtins", files):
            yield partial(_play, worlds, directory, conf)


@contextmanager
def _builtins_in(directory: Path, files: Mapping[str, str]) -> Iterator[None]:
    """Let worlds load builtin plugins from copies, edited where they are among `files`."""
    from flux_trio.jobtap import builtins

    origin = Path(builtins.__file__)
    texts = {Path(file).name: text for file, text in files.items() if file.startswith(BUILTINS)}
    copytree(origin.parent, directory)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    builtins.__file__ = str(directory / origin.name)
    try:
        yield
    finally:
        builtins.__file__ = str(origin)


def _conf_of(plugin: str, directory: Path) -> dict[str, Any]:
    if plugin == "multifactor.py":
        return {"database": _accounts_in(directory), "record-usage": False, "interval": 3600}
    if plugin == "reservation.py":
        return {"windows": [dict(zip(("start", "end"), WINDOW, strict=True))]}
    return {"queues": {"queue0": {"users": [f"user{OWNER}"]}, CLOSED: {"users": ["nobody"]}}}


def _accounts_in(directory: Path) -> str:
    """Write the database as a site does; return its path."""
    path = str(directory / "site.db")
    sys.path.insert(0, str(directory))
    try:
        command = importlib.import_module("accounts").main
    finally:
        sys.path.remove(str(directory))
    for row in ACCOUNTS:
        command([path, "set", *row], standalone_mode=False)
    return path


def _play(worlds: Worlds, directory: Path, conf: dict[str, Any], seed: int) -> SeedResult:
    from flux_trio.lab.stories.campaign import play_seed

    return play_seed(seed, _setup_of(worlds, directory, conf, seed))


def _setup_of(worlds: Worlds, directory: Path, conf: dict[str, Any], seed: int) -> Setup:
    from flux_trio.lab.world.plugin_files import PluginFile
    from tests.planter.mistakes.site import PROPERTIES, make_setup

    if not worlds.plugin:
        plugins = (BUSY,) if seed % BUSY_EVERY == 1 else ()
        return make_setup(worlds, plugins, ())
    file = PluginFile(str(directory / worlds.plugin), conf)
    return make_setup(worlds, (file,), PROPERTIES[worlds.plugin])
