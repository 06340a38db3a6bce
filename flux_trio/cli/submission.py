"""From the options of `submit` and `run` to a jobspec and the rest of a submission."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from flux_trio.cli.constraint_query import parse_constraint_query
from flux_trio.cli.environment import job_environment
from flux_trio.formats import Jobspec, parse_dependency_uri
from flux_trio.protocols import URGENCY_DEFAULT, JobFlag


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What was asked for; each field is the option of its name."""

    command: tuple[str, ...] = ()
    ntasks: int | None = None
    cores_per_task: int = 1
    gpus_per_task: int = 0
    nodes: int | None = None
    exclusive: bool = False
    time_limit: float | None = None  # seconds; infinite or None: no limit
    urgency: int = URGENCY_DEFAULT
    requires: tuple[str, ...] = ()
    dependency: tuple[str, ...] = ()
    begin_time: float | None = None  # seconds since the Unix epoch
    setattr: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: str | None = None
    job_name: str | None = None
    flags: tuple[str, ...] = ()
    queue: str | None = None

    def to_jobspec(self, environ: Mapping[str, str], cwd: str) -> Jobspec:
        """The jobspec; `environ` and `cwd` are the command's own.

        Raises ValueError that names the option, or FormatError with the path in the jobspec.
        """
        if not self.command:
            raise ValueError("job command and arguments are missing")
        no_limit = self.time_limit is None or math.isinf(self.time_limit)
        return Jobspec.from_command(
            self.command,
            ntasks=self.ntasks,
            cores_per_task=self.cores_per_task,
            gpus_per_task=self.gpus_per_task,
            nnodes=self.nodes,
            # as flux submit: nodes alone means whole nodes
            exclusive=self.exclusive or (self.nodes is not None and self.ntasks is None),
            duration=None if no_limit else self.time_limit,
            cwd=self.cwd or cwd,
            environment=_named("--env", job_environment, self.env, environ),
            queue=self.queue,
            attributes=self._attributes(),
        )

    def _attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        if self.job_name is not None:
            attributes["system.job.name"] = self.job_name
        if self.requires:
            query = " and ".join(f"({text})" for text in self.requires)
            attributes["system.constraints"] = _named("--requires", parse_constraint_query, query)
        if dependencies := self._dependencies():  # without any, no such key (RFC 26, in jobspec)
            attributes["system.dependencies"] = dependencies
        for text in self.setattr:
            key, value = _named("--setattr", parse_attribute, text)
            attributes[key] = value
        return attributes

    def _dependencies(self) -> list[dict[str, Any]]:
        dependencies = [
            _named("--dependency", parse_dependency_uri, uri) for uri in self.dependency
        ]
        if self.begin_time is not None:
            dependencies.append({"scheme": "begin-time", "value": f"{self.begin_time:.3f}"})
        return dependencies

    def flag_mask(self) -> int:
        """The flags as one number. Raises ValueError for one that is not known."""
        mask = 0
        for name in ",".join(self.flags).split(","):
            if name:
                try:
                    mask |= JobFlag[name.upper()]
                except KeyError:
                    raise ValueError(f"--flags: Unknown flag {name}") from None
        return mask


def parse_attribute(text: str) -> tuple[str, Any]:
    """A dotted key below `attributes` and its value, from KEY[=VALUE].

    The value is JSON where it can be read as such, else a string, and 1 if there is none; a key
    that begins with neither `system.` nor `user.` is the system's.
    """
    key, has_value, value = text.partition("=")
    key = key.removeprefix("attributes.")
    if not key.startswith(("system.", "user.")):
        key = f"system.{key}"
    if "" in key.split("."):
        raise ValueError(f"expected KEY=VALUE with a dotted key, got {text!r}")
    if not has_value:
        return key, 1
    try:
        return key, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return key, value


def read_jobspec(text: bytes, where: str) -> Jobspec:
    """A jobspec from a file. Raises FormatError that names file and field."""
    return Jobspec.parse(text, where)


def _named(option: str, read: Any, *values: Any) -> Any:
    try:
        return read(*values)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
