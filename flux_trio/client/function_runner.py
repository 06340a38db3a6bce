"""Calls a function for `FluxTrioExecutor`: `python -m flux_trio.client.function_runner FILE`."""

from __future__ import annotations

import pickle
import runpy
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flux_trio.client.executor import result_file
from flux_trio.jobtap.failures import attempt, describe


def main(path: Path) -> None:
    """Call the function in `path`, and write what it returned or raised."""
    read, why_not = attempt(_read, path)
    if why_not is None:
        what, pickled = _call(*read)
    else:
        what, pickled = f"the function cannot be read where it runs: {describe(why_not)}", None
    whole = path.with_suffix(".part")
    whole.write_bytes(pickle.dumps((what, pickled)))
    whole.rename(result_file(path))


def _read(path: Path) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the function and its arguments. Raises what their unpickling raises."""
    with path.open("rb") as file:
        sys.path[:], main_file = pickle.load(file)
        if main_file is not None:
            _take_for_main(main_file)
        function, args, kwargs = pickle.load(file)
    return function, args, kwargs


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, bytes | None]:
    """Return a text about what the function did, and its value and error, pickled if possible."""
    value, error = attempt(partial(function, *args, **kwargs))
    what = f"the function raised {describe(error)}" if error else "the function returned a value"
    pickled, why_not = attempt(pickle.dumps, (value, error))
    return (f"{what}, which cannot be pickled: {describe(why_not)}" if why_not else what), pickled


def _take_for_main(file: str) -> None:
    """Let `__main__` be the program that submitted the call: the function may be from there.

    As `multiprocessing` does, the program runs with another name, so that it does not begin again.
    """
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_path(file, run_name=module.__name__))
    sys.modules["__main__"] = sys.modules[module.__name__] = module


if __name__ == "__main__":
    main(Path(sys.argv[1]))
