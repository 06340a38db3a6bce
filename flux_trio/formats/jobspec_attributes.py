"""The `attributes` of a jobspec: those of RFC 14 are checked, others are kept unchecked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flux_trio.formats.constraint import Constraint, parse_constraint
from flux_trio.formats.errors import FormatError
from flux_trio.formats.fields import (
    Object,
    as_object,
    get_list,
    get_object,
    get_seconds,
    get_str,
    only_keys,
)
from flux_trio.formats.jobspec_cost import check_costs


def read_attributes(attributes: Object, *, v1: bool) -> Constraint | None:
    """Check `attributes` and return the job's constraint, or None without a constraint.

    FormatError has the path below `attributes`. Version 1 requires `system`; its `duration` may be
    absent from a jobspec that is submitted (readings: The key duration).
    """
    only_keys(attributes, ("system", "user"))
    if "user" in attributes:
        get_object(attributes, "user")
    if "system" not in attributes and not v1:
        return None
    system = get_object(attributes, "system")
    try:
        check_costs(system)
        for key in system:
            if key in _CHECKS:
                _CHECKS[key](system, key)
        if "constraints" in system:
            return parse_constraint(system["constraints"], "constraints")
    except FormatError as error:
        raise error.at("system") from None
    return None


def _check_environment(system: Object, key: str) -> None:
    environment = get_object(system, key)
    if not set(map(type, environment.values())) <= _STRING_OR_NULL:
        name = next(name for name in environment if type(environment[name]) not in _STRING_OR_NULL)
        raise FormatError("a string, or null to unset", environment[name], f"{key}.{name}")


_STRING_OR_NULL = {str, type(None)}


def _check_dependencies(system: Object, key: str) -> None:
    dependencies = get_list(system, key)
    if not dependencies:
        raise FormatError("at least one dependency (or leave out the key)", dependencies, key)
    for index, value in enumerate(dependencies):
        try:
            dependency = as_object(value)
            get_str(dependency, "scheme")
            get_str(dependency, "value")
        except FormatError as error:
            raise error.at(f"{key}[{index}]") from None


def _check_job(system: Object, key: str) -> None:
    job = get_object(system, key)
    try:
        for name in job:
            get_str(job, name)
    except FormatError as error:
        raise error.at(key) from None


def _check_shell(system: Object, key: str) -> None:
    shell = get_object(system, key)
    try:
        if "options" in shell:
            get_object(shell, "options")
    except FormatError as error:
        raise error.at(key) from None


_CHECKS: Mapping[str, Callable[[Object, str], object]] = {
    "bank": get_str,
    "cwd": get_str,
    "dependencies": _check_dependencies,
    "duration": get_seconds,
    "environment": _check_environment,
    "files": get_object,
    "job": _check_job,
    "preemptible-after": get_seconds,
    "project": get_str,
    "queue": get_str,
    "shell": _check_shell,
}
