"""The inventory of this instance: from the configuration, its enclosing job, or this machine.

Left out: gpus of the machine, and a comparison of all targets with their machines (flux-core's
`verify`): here most targets are only names, so only those with this machine's name are compared.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from flux_trio.config import FakeResourcesConfig, ResourceConfig, VerifyMode
from flux_trio.cores.resource.targets import (
    inventory_from_config,
    inventory_of_machine,
    parse_targets,
)
from flux_trio.formats import FormatError, Idset, ResourceSet, Words
from flux_trio.messages import FluxError


def find_inventory(
    config: ResourceConfig,
    fake: FakeResourcesConfig | None = None,
    allocated: ResourceSet | None = None,
) -> tuple[ResourceSet, Idset]:
    """Return all resources, and the targets that are excluded at the start.

    `allocated` is R of the job that the instance runs in: its ranks become this instance's
    (20.rerank.1). Raises FormatError or FluxError that names the invalid key of `[resource]`.
    """
    inventory = _inventory(config, fake, allocated)
    if not config.exclude:
        return inventory, Idset()
    try:
        return inventory, parse_targets(config.exclude, inventory)
    except FluxError as error:
        raise FluxError(error.errnum, f"resource.exclude: {error.text}") from None


def core_differences(
    config: ResourceConfig, inventory: ResourceSet, hostname: str, cores: Idset
) -> dict[int, str]:
    """Return how the machine `hostname`, which has `cores`, differs: a text for each such target.

    Only targets of `[[resource.config]]` with the machine's name are compared. `resource.verify`
    tells whether missing and extra cores count.
    """
    if not config.config:
        return {}
    compared = {
        rank: _difference(config.core_mode, inventory.cores(rank), cores)
        for rank, host in inventory.hosts.items()
        if host == hostname
    }
    return {rank: text for rank, text in compared.items() if text}


def _inventory(
    config: ResourceConfig, fake: FakeResourcesConfig | None, allocated: ResourceSet | None
) -> ResourceSet:
    if config.config:
        return inventory_from_config(config.config)
    if config.path is not None:
        return _inventory_in(Path(config.path))
    if fake is not None:
        return _inventory_of_fake(fake)
    if allocated is not None and not config.rediscover:
        return replace(allocated.rerank(), nslots=None)  # the slots belong to the job
    cores = Idset.of(os.sched_getaffinity(0))
    return inventory_of_machine(socket.gethostname(), cores, config.targets)


def _inventory_in(path: Path) -> ResourceSet:
    """Return the resources of a file with R; its times are those of another instance."""
    try:
        return ResourceSet.parse(path.read_bytes(), str(path)).with_times(0.0, 0.0)
    except OSError as error:
        problem = Words(error.strerror)
        raise FormatError(f"R (RFC 20) in {path}", problem, "resource.path") from None


def _inventory_of_fake(fake: FakeResourcesConfig) -> ResourceSet:
    cores, gpus = (1 << fake.cores_per_node) - 1, (1 << fake.gpus_per_node) - 1
    return ResourceSet.build(
        ((rank, cores, gpus) for rank in range(fake.nnodes)), lambda n: f"{fake.host_prefix}{n}"
    )


def _difference(mode: VerifyMode, wanted: Idset, found: Idset) -> str:
    """Return what a machine lacks, or has more than configured, as far as it counts; or ""."""
    lists = []
    if mode in ("strict", "allow-extra"):
        lists.append(("missing", wanted - found))
    if mode in ("strict", "allow-missing"):
        lists.append(("extra", found - wanted))
    return ", ".join(
        f"{kind} resources: core{'s' if len(ids) > 1 else ''} {ids}" for kind, ids in lists if ids
    )
