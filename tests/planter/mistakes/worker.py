"""A process in which one mistake is planted: `python -m tests.planter.mistakes.worker`.

It reads a `Task` as JSON from standard input, plants before anything of the program is imported,
plays seeds until one breaks a property, and writes an `Answer` as JSON. A world that takes
WORLD_S of processor time hangs, which breaks a property, too.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import FrameType, ModuleType
from typing import Any, Final

import msgspec

from tests.planter.mistakes.worlds import PLAIN, Worlds, is_plugin, open_worlds

WORLD_S: Final = 60.0  # a world takes less than a second
MEMORY_BYTES: Final = 4 << 30
HANGS: Final = "hangs"
BROKEN: Final = "cannot run"


@dataclass(frozen=True)
class Task:
    """What to plant, and the seeds of `worlds` to play: `first` to `end`, without `end`.

    `files` has the text of each changed file of the program, by its path from the root. Seeds in
    `without` are left out.
    """

    first: int
    end: int
    files: dict[str, str]
    without: tuple[int, ...] = ()
    worlds: Worlds = PLAIN

    @property
    def program(self) -> dict[str, str]:
        """The files without plugins, which worlds load from copies."""
        return {file: text for file, text in self.files.items() if not is_plugin(file)}


@dataclass(frozen=True)
class Answer:
    """The property that `seed` has broken, or "" after all seeds; `seconds` of processor time."""

    seed: int
    broken: str
    problem: str
    seconds: float


class Hangs(BaseException):
    """A world takes too long; no handler of the program may catch it."""


Play = Callable[[Task], tuple[int, str, str]]
"""Plays the seeds of a task; returns the last one that was played, and what `Answer` says of it."""


def main(play: Play) -> None:
    """Plant what the task on standard input says, and write the answer of `play`."""
    task = msgspec.convert(json.load(sys.stdin), Task)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    begin = time.process_time()
    try:
        plant(task.program)
        stop_worlds_that_hang()
        seed, broken, problem = play(task)
    except Exception as error:  # noqa: BLE001 - whatever a mistake does to the world
        seed, broken, problem = task.first, BROKEN, f"{type(error).__name__}: {error}"
    seconds = round(time.process_time() - begin, 2)
    print(json.dumps(asdict(Answer(seed, broken, problem, seconds))))


def stop_worlds_that_hang() -> None:
    """From now on a world that takes too long raises Hangs."""
    signal.signal(signal.SIGPROF, _stop)


def limit_time() -> None:
    """Let the world that begins now raise Hangs after WORLD_S of processor time."""
    signal.setitimer(signal.ITIMER_PROF, WORLD_S)


def play_seeds(task: Task) -> tuple[int, str, str]:
    """Play seeds as `flux-trio fuzz` does."""
    with open_worlds(task.worlds, task.files) as play:
        for seed in range(task.first, task.end):
            if seed in task.without:
                continue
            limit_time()
            try:
                result = play(seed)
            except Hangs:
                return seed, HANGS, f"the world of the seed takes more than {WORLD_S:g} s"
            if result.broken:
                problems = [each for each in result.problems if each.startswith(result.broken)]
                return seed, result.broken, problems[0][:300]
    return task.end - 1, "", ""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Hangs


def plant(files: dict[str, str]) -> None:
    """Let modules be imported from these texts instead of from their files."""
    sys.meta_path.insert(0, _Planted(files))


class _Planted(importlib.abc.MetaPathFinder):
    def __init__(self, files: dict[str, str]) -> None:
        self._texts = {
            file.removesuffix(".py").replace("/", "."): each for file, each in files.items()
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._texts:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._texts[fullname])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a text; what is compiled of the file stays as it is."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec", dont_inherit=True)


if __name__ == "__main__":
    main(play_seeds)
