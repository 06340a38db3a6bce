"""A process that has imported the program, and forks one that plays for each mutant.

The import takes longer than the seeds of most mutants. `python -m tests.mistakes.forking` imports
the program, then reads a `Task` a line; for each it forks, plants in the memory of the new process
and plays there. An edit is planted this way if it changes bodies of functions alone: they get the
code of the edited text. The answer is a line with an `Answer`, or null if an edit cannot be planted
so; then `tests.mistakes.worker` does it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from inspect import CO_OPTIMIZED
from queue import SimpleQueue
from types import CodeType, FunctionType
from typing import Final, TypeAlias

import msgspec

from tests.mistakes.worker import (
    BROKEN,
    MEMORY_BYTES,
    Answer,
    Task,
    play_seeds,
    stop_worlds_that_hang,
)
from tests.planter.findings import ROOT

PROGRAM: Final = ("tests.mistakes.site",)
Functions: TypeAlias = dict[tuple[str, str, int], list[FunctionType]]
"""By file, name and line of their code."""
COMMAND: Final = [sys.executable, "-m", "tests.mistakes.forking"]


class Forks:
    """Processes that fork; as many are started as are asked at once."""

    def __init__(self) -> None:
        self._free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._all: list[subprocess.Popen[str]] = []

    def play(self, task: Task) -> Answer | None:
        """Play the seeds of a task; None if it cannot be planted in memory."""
        process = self._start() if self._free.empty() else self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(task)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that forks ended with {process.wait()}")
        self._free.put(process)
        found = json.loads(line)
        return None if found is None else Answer(**found)

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(COMMAND, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._all.append(process)
        return process

    def close(self) -> None:
        """End the processes."""
        for process in self._all:
            process.kill()
            process.communicate()


class Unplantable(Exception):
    """More than bodies of functions is changed."""


def plant_code(files: dict[str, str], functions: Functions) -> None:
    """Give functions the code of the edited texts. Raises Unplantable."""
    for file, text in files.items():
        for old, new in changed_in(file, text):
            found = functions.get(_key(old), [])
            if not found or old.co_freevars != new.co_freevars:
                raise Unplantable
            for each in found:
                each.__code__ = new


def changed_in(file: str, text: str) -> list[tuple[CodeType, CodeType]]:
    """The code of each function whose body is changed, and its new code. Raises Unplantable."""
    path = ROOT / file
    old, new = (
        compile(each, str(path), "exec", dont_inherit=True)
        for each in (path.read_text(encoding="utf-8"), text)
    )
    return list(_changed(old, new))


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    if _plain(old) == _plain(new):
        return
    if old.co_flags & CO_OPTIMIZED:  # no module and no body of a class
        yield old, new
    elif _plain(old, _name) == _plain(new, _name):
        for pair in zip(_codes_in(old), _codes_in(new), strict=True):
            yield from _changed(*pair)
    else:
        raise Unplantable


def _codes_in(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _plain(code: CodeType, inner: Callable[..., object] | None = None) -> CodeType:
    """The code without its lines, since those of later functions move."""
    inner = inner or _plain
    consts = [inner(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=tuple(consts))


def _name(code: CodeType) -> str:
    return code.co_qualname


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def functions_now() -> Functions:
    """All functions that there are, by the place of their code."""
    found: Functions = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found.setdefault(_key(each.__code__), []).append(each)
    return found


def _played(task: Task, functions: Functions) -> Answer | None:
    begin = time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        plant_code(task.program, functions)
        stop_worlds_that_hang()
        seed, broken, problem = play_seeds(task)
    except Unplantable:
        return None
    except Exception as error:  # noqa: BLE001 - whatever a mistake does to the world
        seed, broken, problem = task.first, BROKEN, f"{type(error).__name__}: {error}"
    return Answer(seed, broken, problem, round(time.process_time() - begin, 2))


def main() -> None:
    """Fork for each task on standard input, one after the other."""
    for module in PROGRAM:
        importlib.import_module(module)
    functions = functions_now()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                answer = _played(msgspec.convert(json.loads(line), Task), functions)
                print(json.dumps(answer and asdict(answer)), flush=True)
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(process, 0)[1]:  # a mistake may end it in any way
            print("null", flush=True)


if __name__ == "__main__":
    main()
