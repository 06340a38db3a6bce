"""The inventory of this instance: from the configuration, its enclosing job, or this machine.

Left out: gpus of the machine, and a comparison of all targets with their machines (flux-core's
`verify`): here most targets are only names, so only those with this machine's name are compared.
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
    """Return all resources, and the targets that are excluded at the start.

    `allocated` is R of the job that the instance runs in: its ranks become this instance's
    (20.rerank.1). Raises FormatError or FluxError that names the invalid key of `[resource]`.
    """
    if config.config:
        inventory = inventory_from_config(config.config)
    elif allocated is not None:
        inventory = replace(allocated.rerank(), nslots=None)  # the slots belong to the job
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
    """Return what the machine `hostname`, which has `cores`, lacks: a text for each such target.

    Only targets of `[[resource.config]]` with the machine's name are compared; with `noverify` no
    target is.
    """
    if not config.config or config.noverify:
        return {}
    return {
        rank: f"missing resources: core{'s' if len(missing) > 1 else ''} {missing}"
        for rank, host in inventory.hosts.items()
        if host == hostname and (missing := inventory.cores(rank) - cores)
    }
