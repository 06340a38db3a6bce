"""A simulated instance for a test; its clock is Trio's.

With pytest-trio, a test with the fixture `autojump_clock` has a virtual clock. Left out: real
processes, a listening socket, and a store that outlives the block.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import User
from flux_trio.formats import ResourceSet
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.jobtap import PluginSource
from flux_trio.sim import make_machine

EPOCH: Final = 1_000_000_000.0
"""The instance's time at the start of the block, in seconds since the Unix epoch."""

USERID: Final = 1000
"""The instance owner, and the user of peers of `Instance.connect`."""


@asynccontextmanager
async def simulated_instance(
    inventory: ResourceSet | None = None,
    config: Config | None = None,
    plugins: Iterable[PluginSource] = (),
    users: Mapping[int, User] | None = None,
) -> AsyncIterator[Instance]:
    """Open a running instance without processes, files or connections.

    The default `inventory` has four nodes of four cores. In `config`, `[exec] simulate` is always
    on and `[resource]` is ignored. A job runs for its jobspec's
    `attributes.system.exec.test.run_duration`, else for its time limit. Each job manager makes
    anew those of `plugins` that are given as classes, functions or files; an object stays the same
    when the job manager is loaded again. `users` is the user database, by userid. Raises the error
    of a service or plugin that does not start.
    """

    async def user(userid: int) -> User:
        return (users or {}).get(userid, User())

    config = config or Config()
    pretending = msgspec.structs.replace(config.exec, simulate=True)
    given = Surroundings(
        inventory=inventory or make_machine(nnodes=4, cores_per_node=4),
        userid=USERID,
        epoch=EPOCH,
        plugins=plugins,
        users=user,
    )
    async with open_instance(msgspec.structs.replace(config, exec=pretending), given) as instance:
        yield instance
