"""The modules of an instance: how each is started, with the configuration of now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import trio

from flux_trio.broker import Handle, ModuleMain, ModuleSpec, Processes
from flux_trio.config import Config, queue_hosts, with_arguments
from flux_trio.cores.resource.definition import Kept
from flux_trio.formats import FormatError, Idset
from flux_trio.instance.surroundings import Surroundings
from flux_trio.jobtap import Plugin
from flux_trio.messages import Errno, FluxError, Level
from flux_trio.services import ingest, job_list, job_manager, kvs, resource
from flux_trio.services.inventory import find_inventory
from flux_trio.services.module_process import PROCESS_MODULES, main_of, module_command


def module_specs(
    config: Config,
    given: Surroundings,
    processes: Processes,
    make_plugins: Callable[[], list[Plugin]],
    write_log: Callable[[int, str, str], None],
    *,
    find_again: bool,
) -> list[ModuleSpec]:
    """Return how each module is loaded from now on.

    With `find_again` modules find their resources anew.
    """

    def main_with(name: str, arguments: Sequence[str]) -> ModuleMain:
        try:
            changed, remarks = with_arguments(config, name, arguments)
        except FormatError as error:
            raise FluxError(Errno.EINVAL, str(error)) from None
        for remark in remarks:
            write_log(Level.NOTICE, name, remark)
        return _mains(changed, given, make_plugins, find_again)[name]

    return [
        ModuleSpec(
            name,
            main,
            essential=name == "kvs",
            process=functools.partial(processes.run, module_command(name))
            if name in PROCESS_MODULES
            else None,
            with_arguments=functools.partial(main_with, name),
        )
        for name, main in _mains(config, given, make_plugins, find_again).items()
    ]


def _mains(
    config: Config, given: Surroundings, make_plugins: Callable[[], list[Plugin]], find_again: bool
) -> dict[str, ModuleMain]:
    """Return the main function of each module, with this configuration."""
    mains: dict[str, ModuleMain] = {
        "kvs": functools.partial(kvs.run, store_factory=given.store, edition=config.edition_value),
        "resource": functools.partial(_run_resource, config, given, find_again),
        "job-manager": functools.partial(
            job_manager.run,
            make_plugins=make_plugins,
            config=config,
            users=given.users,
            search_path=given.plugin_path,
        ),
        "job-ingest": functools.partial(ingest.run, config=config),
        "job-list": functools.partial(job_list.run, config=config),
    }
    ours = {name: main_of(name, config, given.statedir, given.path) for name in PROCESS_MODULES}
    return mains | ours


async def _run_resource(
    config: Config,
    given: Surroundings,
    find_again: bool,
    handle: Handle,
    *,
    missing: Mapping[int, str] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the resource service; with `find_again`, by the configuration of now or R in the kvs.

    `missing` is what a simulated machine lacks; without it, it is what this machine lacks.
    Raises FormatError or FluxError that names the invalid key of `[resource]`.
    """
    inventory, exclude = given.inventory, given.exclude
    kept: Kept | None = "written" if config.has_native_door else None
    excluded: Idset | str = exclude
    if find_again and config.has_native_door:
        if config.resource.config or config.resource.path is not None:
            found, excluded = find_inventory(config.resource)
            inventory = found.with_times(inventory.starttime, inventory.expiration)
        else:
            kept, excluded = "read", config.resource.exclude
    is_unchecked = config.exec.simulate or config.resource.noverify
    if missing is None:
        is_other = is_unchecked or inventory.hosts != given.inventory.hosts
        missing = {} if is_other else given.missing
    await resource.run(
        handle,
        inventory,
        excluded,
        queues=queue_hosts(config),
        kept=kept,
        missing=missing,
        check=None if config.exec.simulate else config.resource.check,
        edition=config.edition_value,
        waits=find_again,
        task_status=task_status,
    )
