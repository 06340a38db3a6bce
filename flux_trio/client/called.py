"""Calls a function for `FluxTrioExecutor`: `python -m flux_trio.client.called FILE`."""

from __future__ import annotations

import pickle
import runpy
import sys
import types
from functools import partial
from pathlib import Path

from flux_trio.client.executor import result_file
from flux_trio.jobtap.failures import attempt


def main(path: Path) -> None:
    """Call the function in `path`, and write what it returned or raised."""
    with path.open("rb") as file:
        sys.path[:], main_file = pickle.load(file)
        if main_file is not None:
            _take_for_main(main_file)
        function, args, kwargs = pickle.load(file)
    value, error = attempt(partial(function, *args, **kwargs))
    text = pickle.dumps((value, error))
    whole = path.with_suffix(".part")
    whole.write_bytes(text)
    whole.rename(result_file(path))


def _take_for_main(file: str) -> None:
    """Let `__main__` be the program that submitted the call: the function may be from there.

    As `multiprocessing` does, the program runs with another name, so that it does not begin again.
    """
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_path(file, run_name=module.__name__))
    sys.modules["__main__"] = sys.modules[module.__name__] = module


if __name__ == "__main__":
    main(Path(sys.argv[1]))
