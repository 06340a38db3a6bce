"""Jobspec: the resources and the tasks of a job (RFC 25 version 1; RFC 14 for counting only).

`Jobspec.parse` accepts version 1, strictly; every submission uses it. `parse_general` accepts any
RFC 14 jobspec. RFC 25 contradicts itself twice. Here `total` may exceed the number of slots, as in
its use case 2.1 and its schema, but must not be smaller than the number of nodes; and a command is
a list, as in its prose. Schedulers and shells interpret the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flux_trio.formats.constraint import Constraint
from flux_trio.formats.errors import MISSING, FormatError
from flux_trio.formats.fields import Object, document, get_list, get_object
from flux_trio.formats.jobspec_attributes import read_attributes
from flux_trio.formats.jobspec_resources import (
    ResourceRequest,
    Resources,
    read_resources_general,
    read_resources_v1,
)
from flux_trio.formats.jobspec_tasks import Task, read_tasks_general, read_tasks_v1
from flux_trio.formats.short_texts import cached_for_short

VERSION: Final = 1
SLOT_LABEL: Final = "task"  # the label that flux submit writes


@dataclass(frozen=True, slots=True)
class Jobspec:
    """A checked jobspec. It compares by its JSON and keeps unknown attributes."""

    json: Object
    """The JSON as received; do not change it."""
    resources: Resources = field(compare=False)
    tasks: tuple[Task, ...] = field(compare=False)
    constraints: Constraint | None = field(compare=False)
    """Which execution targets the job accepts; None without a constraint."""

    @classmethod
    def parse(cls, value: object, where: str = "jobspec") -> Jobspec:
        """Parse version 1 from decoded JSON or bytes of JSON; FormatError has the field's path."""
        return cls._parse(value, where, v1=True)

    @classmethod
    def parse_general(cls, value: object, where: str = "jobspec") -> Jobspec:
        """Parse any RFC 14 jobspec; a range of counts is taken at its smallest count."""
        return cls._parse(value, where, v1=False)

    @classmethod
    def _parse(cls, value: object, where: str, *, v1: bool) -> Jobspec:
        place = ""
        try:
            json = document(value)
            _check_version(json, v1=v1)
            vertices = get_list(json, "resources")
            values = get_list(json, "tasks")
            attributes = get_object(json, "attributes")
            place = "resources"
            resources = (read_resources_v1 if v1 else read_resources_general)(vertices)
            place = "tasks"
            tasks = (read_tasks_v1 if v1 else read_tasks_general)(values, resources)
            place = "attributes"
            constraints = read_attributes(attributes, v1=v1)
        except FormatError as error:
            raise error.at(place).at(where) from None
        return cls(json, resources, tasks, constraints)

    @classmethod
    def from_command(
        cls,
        command: Sequence[str],
        *,
        ntasks: int | None = None,
        cores_per_task: int = 1,
        gpus_per_task: int = 0,
        nnodes: int | None = None,
        exclusive: bool = False,
        duration: float | None = None,
        cwd: str | None = None,
        environment: Mapping[str, str | None] | None = None,
        queue: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Jobspec:
        """Build the version 1 jobspec that flux submit builds, with one slot per task.

        `ntasks` defaults to `nnodes`, or else to 1. `duration` is in seconds; None or 0 = unset.
        `attributes` has dotted keys, such as `system.exec.test.run_duration`. ValueError if the
        numbers contradict each other, FormatError if a value is out of range, TypeError if
        `command` is one text.
        """
        if isinstance(command, str):
            raise TypeError(f'command: expected a list of words, got the text "{command}"')
        ntasks = (nnodes or 1) if ntasks is None else ntasks
        if nnodes is None and exclusive:
            raise ValueError("exclusive needs a number of nodes (nnodes)")
        if nnodes is not None and nnodes > ntasks:
            raise ValueError(f"nnodes ({nnodes}) must not exceed ntasks ({ntasks})")
        per_node = -(-ntasks // nnodes) if nnodes else ntasks
        uneven = nnodes and ntasks % nnodes
        vertex = _slot_vertex(per_node, cores_per_task, gpus_per_task)
        if nnodes is not None:
            vertex = _node_vertex(nnodes, exclusive, vertex)
        system: Object = {"duration": 0 if duration is None else duration}
        variables = None if environment is None else dict(environment)
        given = {"cwd": cwd, "environment": variables, "queue": queue}
        system |= {key: value for key, value in given.items() if value is not None}
        count = {"total": ntasks} if uneven else {"per_slot": 1}
        json: Object = {
            "resources": [vertex],
            "tasks": [{"command": list(command), "slot": SLOT_LABEL, "count": count}],
            "attributes": {"system": system},
            "version": VERSION,
        }
        for key, value in (attributes or {}).items():
            json = apply_update(json, f"attributes.{key}", value)
        return cls.parse(json)

    # Requested resources

    @property
    def request(self) -> ResourceRequest:
        """Return the scheduler's view; ValueError if there are several kinds of slot."""
        return self.resources.request()

    @property
    def nnodes(self) -> int | None:
        """Return the number of requested nodes; None if there is no node vertex."""
        return self.resources.totals.get("node")

    @property
    def nslots(self) -> int:
        return self.resources.totals.get("slot", 0)

    @property
    def ncores(self) -> int:
        return self.resources.totals.get("core", 0)

    @property
    def ngpus(self) -> int:
        return self.resources.totals.get("gpu", 0)

    @property
    def ntasks(self) -> int:
        return sum([task.ntasks for task in self.tasks])

    # Attributes

    @property
    def system(self) -> Object:
        """Return `attributes.system`; do not change it."""
        system = self.attribute("system")
        return system if isinstance(system, dict) else {}

    @property
    def duration(self) -> float:
        """Return the duration in seconds; 0.0 = unset."""
        duration = self.system.get("duration")
        return float(duration) if isinstance(duration, (int, float)) else 0.0

    @property
    def cwd(self) -> str | None:
        cwd = self.system.get("cwd")
        return cwd if isinstance(cwd, str) else None

    @property
    def queue(self) -> str | None:
        queue = self.system.get("queue")
        return queue if isinstance(queue, str) else None

    @property
    def environment(self) -> Mapping[str, str | None]:
        """Return the variables to set; a value of None unsets the variable (14.attributes.4)."""
        environment = self.system.get("environment")
        return environment if isinstance(environment, dict) else {}

    def attribute(self, path: str) -> object:
        """Return the value at a dotted path below `attributes`, such as `system.queue`, or None."""
        return value_at(self.json["attributes"], path)

    def to_json(self) -> Object:
        """Return the jobspec as a JSON object; do not change it."""
        return self.json

    def without_environment(self) -> Object:
        """Return the JSON without attributes.system.environment: a scheduler does not need it."""
        if "environment" not in self.system:
            return self.json
        system = {key: value for key, value in self.system.items() if key != "environment"}
        return apply_update(self.json, "attributes.system", system)


def parse_jobspec(text: bytes) -> Jobspec:
    """Parse version 1 as `Jobspec.parse`; the last few texts are not parsed again.

    Many jobs that are submitted together have equal jobspecs.
    """
    return _parse_cached(text)


def _parse(text: bytes) -> Jobspec:
    return Jobspec.parse(text)


_parse_cached = cached_for_short(_parse, maxsize=16)


def value_at(json: object, path: str) -> object:
    """Return the value at a dotted path below `json`; None if there is nothing."""
    for key in path.split("."):
        json = json.get(key) if isinstance(json, dict) else None
    return json


def apply_update(jobspec: Mapping[str, object], key: str, value: object) -> Object:
    """Return a copy of a jobspec's JSON with `value` at the dotted path `key` (RFC 21).

    Missing objects on the path are created; FormatError if the path meets another type. The copy
    shares unchanged parts with the original and is not checked: parse it.
    """
    *parents, last = key.split(".")
    updated = dict(jobspec)
    inner = updated
    for index, name in enumerate(parents):
        child = inner.get(name, {})
        if not isinstance(child, dict):
            raise FormatError("an object", child, ".".join(parents[: index + 1]))
        inner[name] = child = dict(child)
        inner = child
    inner[last] = value
    return updated


def apply_updates(jobspec: Mapping[str, object], updates: Mapping[str, object]) -> Object:
    """Return a copy of a jobspec's JSON with each value at its dotted path; see `apply_update`."""
    updated = dict(jobspec)
    for path, value in updates.items():
        updated = apply_update(updated, path, value)
    return updated


def _check_version(json: Object, *, v1: bool) -> None:
    version = json.get("version", MISSING)
    if type(version) is not int or version < 1:
        raise FormatError("a version number", version, "version")
    if v1 and version != VERSION:
        raise FormatError("the integer 1", version, "version")


def _slot_vertex(count: int, cores: int, gpus: int) -> Object:
    children: list[Object] = [{"type": "core", "count": cores}]
    if gpus:
        children.append({"type": "gpu", "count": gpus})
    return {"type": "slot", "count": count, "with": children, "label": SLOT_LABEL}


def _node_vertex(count: int, exclusive: bool, slot: Object) -> Object:
    whole = {"exclusive": True} if exclusive else {}
    return {"type": "node", "count": count, **whole, "with": [slot]}
