"""A process that has imported the program, and forks one that plays for each mutant.

The import takes longer than the seeds of most mutants. This module imports
the program, then reads a `Task` a line; for each it forks, plants in the memory of the new process
and plays there. An edit is planted this way if it changes bodies of functions alone: they get the
code of the edited text. The answer is a line with an `Answer`, or null if an edit cannot be planted
so; then `tests.planter.mistakes.worker` does it.
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
from dataclasses import asdict
from queue import SimpleQueue
from typing import Final

import msgspec

from tests.planter.coding import Functions, Unplantable, functions_now, plant_code
from tests.planter.findings import ROOT
from tests.planter.mistakes.worker import (
    BROKEN,
    MEMORY_BYTES,
    Answer,
    Task,
    play_seeds,
    stop_worlds_that_hang,
)

PROGRAM: Final = ("tests.planter.mistakes.site",)
COMMAND: Final = [sys.executable, "-m", "tests.planter.mistakes.forking"]


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
