"""An instance for a test: nothing real behind it, and its clock is Trio's.

With pytest-trio, a test that asks for `autojump_clock` gets the virtual clock. Left out: real
processes, listening on a socket, and keeping the store after the block.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.requests.entrance import User
from flux_trio.formats import ResourceSet
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.sim import make_machine

EPOCH: Final = 1_000_000_000.0
"""When the block begins by the instance's clock, seconds since the Unix epoch."""

USERID: Final = 1000
"""The instance owner; peers of `Instance.connect` are the owner's."""


@asynccontextmanager
async def simulated_instance(
    inventory: ResourceSet | None = None,
    config: Config | None = None,
    plugins: Iterable[Plugin] = (),
    users: Mapping[int, User] | None = None,
) -> AsyncIterator[Instance]:
    """A running instance without processes, files or connections.

    `inventory` is four nodes of four cores unless given; of `config`, `[exec] simulate` is always
    on and `[resource]` does not matter. Jobs pretend to run for as long as their jobspec's
    `attributes.system.exec.test.run_duration` says, else their time limit. `users` is the user
    database, by userid. Raises what a service or plugin does not come up with.
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
