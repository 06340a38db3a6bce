"""Our execution service for a live flux-core: what its broker is asked first, and the service."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from flux_trio.attach.bridged import BridgedHandle
from flux_trio.attach.exec.bridge import SHELL_EVENTS, ExecBridge, Instance
from flux_trio.attach.handle import URI_VARIABLE, FluxHandle
from flux_trio.broker import ServiceExit
from flux_trio.config import ExecConfig
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.editions import CURRENT
from flux_trio.formats import FormatError, parse_duration, treeobj
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.process.console import id_form
from flux_trio.services import exec as exec_service

SERVICE: Final = "flux-trio-exec"
DIRECTORY: Final = "flux-trio-exec"  # in the broker's state directory
OUTPUT_BYTES: Final = 1 << 30  # of one job, unless its jobspec says otherwise; as flux-core's shell


class _Exec(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of flux-core's table `exec` that the service follows; see flux-config-exec(5)."""

    kill_timeout: str | float = ExecConfig().kill_timeout


class _Config(msgspec.Struct):
    """The part of the answer to config.get that the service follows."""

    exec: _Exec = _Exec()


async def run(
    flux: FluxHandle,
    on_ready: Callable[[Path], None],
    *,
    directory: Path | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the jobs of a live flux-core until cancelled; their processes go on after that.

    `directory` is the shell host's, by default in the broker's state directory. Whoever comes later
    finds there the jobs that run. `on_ready` is called with it when flux-core has accepted the
    service, which counts as started then. Raises ServiceExit if flux-core refuses, or has another
    service later; FluxError for a wrong answer of the broker.
    """
    instance = await _ask_instance(flux)
    if directory is None:
        directory = Path(await _attribute(flux, "statedir"), DIRECTORY)
    environment = {URI_VARIABLE: await _attribute(flux, "local-uri")}
    is_accepted = trio.Event()
    handle = BridgedHandle(flux, ExecBridge(SERVICE, instance, is_accepted.set))
    handle.subscribe(SHELL_EVENTS)
    serve = partial(
        exec_service.run,
        handle,
        directory=directory,
        config=await _ask_config(flux),
        environment=environment,
        id_form=instance.id_form,
        service=SERVICE,
        edition=CURRENT,
        guests=GuestSettings(root=instance.empty_root, is_stored=True, leader=instance.rank),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handle.carry)
        nursery.start_soon(serve)
        await is_accepted.wait()
        on_ready(directory)
        task_status.started()


async def _ask_config(flux: FluxHandle) -> ExecConfig:
    grace = (await flux.ask(topics.CONFIG_GET, _Config)).exec.kill_timeout
    try:
        parse_duration(grace)
    except FormatError as error:
        text = f"{topics.CONFIG_GET}: {error.at('exec.kill-timeout')}"
        raise FluxError(Errno.EPROTO, text) from None
    return ExecConfig(kill_timeout=str(grace), output_limit=str(OUTPUT_BYTES))


async def _ask_instance(flux: FluxHandle) -> Instance:
    rank = await _attribute(flux, "rank")
    if rank != "0":
        raise ServiceExit(f"expected the broker of rank 0, where the job manager is, got {rank}")
    owner = await _attribute(flux, "security.owner")
    if owner != str(os.getuid()):
        raise ServiceExit(f"expected to run as the instance's owner {owner}, got {os.getuid()}")
    try:
        root = treeobj.empty_root(await _attribute(flux, "content.hash"))
    except ValueError as error:
        raise ServiceExit(str(error)) from None
    path = await _attribute(flux, "jobid-path")
    return Instance(int(owner), int(rank), root, path, id_form())


async def _attribute(flux: FluxHandle, name: str) -> str:
    value = await flux.attribute(name)
    if value is None:
        raise ServiceExit(f"attr.get: the broker has no attribute {name}")
    return value
