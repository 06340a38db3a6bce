"""Which tests reach which places, how long each takes: written down by many processes, then read.

Each process appends lines of JSON to a file of its own. No pytest here: processes that a test
starts write too.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

NO_TEST: Final = "-"
"""Reached while no test runs: an import, or a process that knows of no test."""


@dataclass
class Reached:
    """What one test did, without a mutant."""

    seconds: float = 0.0
    passed: bool = False
    places: set[str] = field(default_factory=set)
    set_aside: str = ""
    """Why it is no behaviour test, empty for one that is."""


class Writer:
    """Appends what is reached to a file of this process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)  # to the end
        self._seen: set[tuple[str, str, str]] = set()

    def note(self, place: str) -> None:
        self._say("place", place)

    def set_aside(self, why: str) -> None:
        self._say("aside", why)

    def ended(self, test: str, seconds: float, passed: bool) -> None:
        self._write(test, "ended", [seconds, passed])

    def _say(self, kind: str, value: str) -> None:
        test = current_test()
        if (test, kind, value) not in self._seen:
            self._seen.add((test, kind, value))
            self._write(test, kind, value)

    def _write(self, test: str, kind: str, value: Any) -> None:
        with suppress(OSError):  # a test may allow its processes no file of any size
            os.write(self._file, json.dumps([test, kind, value]).encode() + b"\n")


def current_test() -> str:
    """The test that runs, in this process or in the one that started it."""
    return os.environ.get("PYTEST_CURRENT_TEST", NO_TEST).rpartition(" (")[0] or NO_TEST


def read(directory: Path) -> dict[str, Reached]:
    """By test, what the files of `directory` say."""
    found: dict[str, Reached] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            test, kind, value = json.loads(line)
            reached = found.setdefault(test, Reached())
            match kind:
                case "place":
                    reached.places.add(value)
                case "aside":
                    reached.set_aside = value
                case "ended":
                    reached.seconds, reached.passed = value
    return found
