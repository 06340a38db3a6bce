"""Loads a module that is written for Trio into flux-core: a file with an async `mod_main`.

    async def mod_main(flux, *args, task_status=trio.TASK_STATUS_IGNORED): ...

`flux` is a `ModuleHandle`, and `args` are the arguments of the module. The function registers its
services, says `task_status.started()`, and serves until it is cancelled.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final, cast

from flux_trio.attach.module import end_module, errno_of, explain, open_module, run_module
from flux_trio.attach.serving import Service
from flux_trio.formats import FormatError, Words

MAIN: Final = "mod_main"
EXPECTED: Final = f"a file of Python with `async def {MAIN}(flux, *args, task_status)`"
MODULES: Final = Path(__file__).with_name("modules")
"""Where our own modules are."""


async def load_module(uri: str, path: str) -> int:
    """Run the module at `path` at the broker at `uri` until that ends it; return an exit code.

    Raises the errors of `open_module`.
    """
    async with open_module(uri) as handle:
        try:
            main = main_in(Path(path))
        except (FormatError, OSError) as error:
            explain(handle, str(error))
            await end_module(handle, errno_of(error))
            return 1
        return 1 if await run_module(handle, main) else 0


def main_in(path: Path) -> Service:
    """Return the function that a file has. Raises FormatError if it has none, OSError."""
    names: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), names)
    except (SyntaxError, ValueError, ImportError) as error:
        raise FormatError(EXPECTED, Words(str(error)), str(path)) from None
    main = names.get(MAIN)
    if not inspect.iscoroutinefunction(main):
        raise FormatError(EXPECTED, Words(f"no async function {MAIN}"), str(path))
    return cast(Service, main)
