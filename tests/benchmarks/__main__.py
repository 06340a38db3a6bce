"""Run benchmarks: all of them, or those named. One JSON line each: name, value, unit, n.

They measure and never fail; the marks they are held against are in docs/how-we-know/speed.md. With
BENCH_SMALL=1 in the environment each one runs once, at a small size, as `make gate` has it;
BENCH_EDITION names the edition of the instances.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from inspect import isgeneratorfunction
from pathlib import Path

from tests.benchmarks.measure import Figure


def _benchmarks() -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return the functions of the files beside this one that yield figures, by name."""
    files = Path(__file__).parent.glob("[!_]*.py")
    names = sorted(path.stem for path in files if not path.stem.startswith("test_"))
    modules = [import_module(f"tests.benchmarks.{name}") for name in names]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isgeneratorfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    }


BENCHMARKS = _benchmarks()


def main(names: list[str]) -> int:
    """Run what is named; 2 for a name that there is not."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(json.dumps({"name": name, **asdict(figure)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
