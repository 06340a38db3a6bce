"""The inventory of this instance: as configured, that of the job it is in, or this machine.

The only file here that looks.

Left out: comparing all targets with their machines (flux-core's `verify`), since most targets are
names here: only those that are named like this machine are; and gpus of the machine.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace

from flux_trio.config import ResourceConfig
from flux_trio.cores.resource.targets import (
    inventory_from_config,
    inventory_of_machine,
    parse_targets,
)
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import FluxError


def find_inventory(
    config: ResourceConfig, allocated: ResourceSet | None = None
) -> tuple[ResourceSet, Idset]:
    """All resources, and the targets that start out excluded.

    `allocated` is R of the job that the instance runs in: its ranks become ours (20.rerank.1).
    Raises FormatError or FluxError that names the key of `[resource]` that is wrong.
    """
    if config.config:
        inventory = inventory_from_config(config.config)
    elif allocated is not None:
        inventory = replace(allocated.rerank(), nslots=None)  # slots are the job's, not ours
    else:
        cores = Idset.of(os.sched_getaffinity(0))
        inventory = inventory_of_machine(socket.gethostname(), cores, config.targets)
    if not config.exclude:
        return inventory, Idset()
    try:
        return inventory, parse_targets(config.exclude, inventory)
    except FluxError as error:
        raise FluxError(error.errnum, f"resource.exclude: {error.text}") from None


def missing_cores(
    config: ResourceConfig, inventory: ResourceSet, hostname: str, cores: Idset
) -> dict[int, str]:
    """What the machine `hostname`, which has `cores`, lacks: a text for each target it is short of.

    Only targets of `[[resource.config]]` that bear the machine's name are looked at, and none with
    `noverify`.
    """
    if not config.config or config.noverify:
        return {}
    return {
        rank: f"missing resources: core{'s' if len(missing) > 1 else ''} {missing}"
        for rank, host in inventory.hosts.items()
        if host == hostname and (missing := inventory.cores(rank) - cores)
    }
