"""Arguments of modules, as `flux module load NAME ARGUMENT...` gives them.

An argument stands above the configuration until the module is loaded again. Those of flux-core's
modules that have nothing to change here are taken, too, and a remark says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flux_trio.config.parsing import Config
from flux_trio.config.tables import IngestConfig, ValidatorConfig
from flux_trio.formats import FormatError, parse_duration

Change = Callable[[Config, str], Config]
"""Returns the configuration with the value of an argument. Raises FormatError."""


def with_arguments(
    config: Config, module: str, arguments: Sequence[str]
) -> tuple[Config, list[str]]:
    """Return the configuration that `arguments` make for `module`, and remarks for the log.

    Raises FormatError for an argument that the module does not have.
    """
    remarks = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if (why := _IDLE.get(module, {}).get(name)) is not None:
            remarks.append(f"{argument} changes nothing: {why}")
            continue
        change = _CHANGES.get(module, {}).get(name)
        if change is None:
            known = sorted([*_CHANGES.get(module, {}), *_IDLE.get(module, {})])
            expected = f"one of {', '.join(known)}" if known else "no arguments"
            raise FormatError(expected, argument, module)
        config = change(config, value)
    return config, remarks


def _noverify(config: Config, value: str) -> Config:
    if value:
        raise FormatError("no value", value, "noverify")
    return msgspec.structs.replace(
        config, resource=msgspec.structs.replace(config.resource, noverify=True)
    )


def _mode(config: Config, value: str) -> Config:
    """`unlimited`, or `limited=N`: so many alloc requests at once."""
    mode, _, limit = value.partition("=")
    if mode == "unlimited" and not limit:
        sched = msgspec.structs.replace(config.sched, mode="unlimited")
    elif mode == "limited" and limit.isascii() and limit.isdigit() and int(limit) > 0:
        sched = msgspec.structs.replace(config.sched, mode="limited", limit=int(limit))
    else:
        raise FormatError("unlimited or limited=N", value, "mode")
    return msgspec.structs.replace(config, sched=sched)


def _kill_timeout(config: Config, value: str) -> Config:
    parse_duration(value)
    return msgspec.structs.replace(
        config, exec=msgspec.structs.replace(config.exec, kill_timeout=value)
    )


def _validators(config: Config, value: str) -> Config:
    validator = ValidatorConfig(plugins=[name for name in value.split(",") if name])
    return msgspec.structs.replace(config, ingest=IngestConfig(validator))


def _no_validator(config: Config, value: str) -> Config:
    """What job-ingest checks itself, it checks always."""
    if value:
        raise FormatError("no value", value, "disable-validator")
    return _validators(config, "")


_CHANGES: Final[dict[str, dict[str, Change]]] = {
    "resource": {"noverify": _noverify},
    "sched": {"mode": _mode},
    "sched-fifo": {"mode": _mode},
    "job-exec": {"kill-timeout": _kill_timeout},
    "job-ingest": {"disable-validator": _no_validator, "validator-plugins": _validators},
}

_LOG: Final = "the log has entries of all levels"
_IDLE: Final[dict[str, dict[str, str]]] = {
    "resource": {
        "notruncate": "no event of the resource eventlog is dropped",
        "monitor-force-up": "all targets are up from the start",
    },
    "sched": {"log-level": _LOG},
    "sched-fifo": {"log-level": _LOG},
    "job-ingest": {
        "validator-args": "jobspecs are validated by job-ingest itself",
        "allow-root-jobs": "the owner of an instance submits jobs to it",
    },
}
