"""Our execution service as a module of flux-core; its argument may be `directory=DIRECTORY`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from flux_trio.attach.exec.run import run
from flux_trio.attach.module import ModuleHandle
from flux_trio.formats import FormatError
from flux_trio.messages import Level

_DIRECTORY: Final = "directory="


async def mod_main(
    flux: ModuleHandle, *args: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run jobs until cancelled. Raises FormatError for other arguments."""
    directory = None
    for arg in args:
        if not arg.startswith(_DIRECTORY) or arg == _DIRECTORY:
            raise FormatError(f"{_DIRECTORY}DIRECTORY", arg)
        directory = Path(arg.removeprefix(_DIRECTORY))

    def tell(where: Path) -> None:
        flux.log(Level.INFO, f"runs jobs; their processes are kept in {where}")

    await run(flux, tell, directory=directory, task_status=task_status)
