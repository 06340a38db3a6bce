"""Our scheduler as a module of flux-core; its argument is `policy=fifo`, `easy`, `conservative`."""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.attach import sched
from flux_trio.attach.module import ModuleHandle
from flux_trio.formats import FormatError
from flux_trio.messages import Level

POLICIES: Final = ("fifo", "easy", "conservative")
_POLICY: Final = "policy="


async def mod_main(
    flux: ModuleHandle, *args: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Schedule until cancelled. Raises FormatError for other arguments."""
    policy = POLICIES[0]
    for arg in args:
        policy = arg.removeprefix(_POLICY)
        if not arg.startswith(_POLICY) or policy not in POLICIES:
            raise FormatError(" or ".join(_POLICY + each for each in POLICIES), arg)

    def tell(held: int) -> None:
        flux.log(Level.INFO, f"schedules by {policy}; {held} jobs hold resources")

    await sched.run(flux, policy, tell, task_status=task_status)
