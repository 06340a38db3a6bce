"""Jobspec: what a job asks for and what it runs (RFC 25 version 1; RFC 14 as far as counting).

`Jobspec.parse` takes version 1, strictly, and is what a submission goes through; `parse_general`
takes any RFC 14 jobspec. Where RFC 25 is at odds with itself: `total` may exceed the number of
slots, as in its use case 2.1 and its schema, but not fall short of the nodes; a command is a list,
as its prose has it. Left out: what schedulers and shells make of the attributes.
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

VERSION: Final = 1
SLOT_LABEL: Final = "task"  # as flux submit labels its slots


@dataclass(frozen=True, slots=True)
class Jobspec:
    """A checked jobspec. Compares by its JSON; unknown attributes are kept."""

    json: Object
    """The jobspec as it came; not to be changed."""
    resources: Resources = field(compare=False)
    tasks: tuple[Task, ...] = field(compare=False)
    constraints: Constraint | None = field(compare=False)
    """What the job asks of each execution target; None if nothing is said."""

    @classmethod
    def parse(cls, value: object, where: str = "jobspec") -> Jobspec:
        """A version 1 jobspec, decoded or as bytes of JSON; FormatError with the field's path."""
        return cls._parse(value, where, v1=True)

    @classmethod
    def parse_general(cls, value: object, where: str = "jobspec") -> Jobspec:
        """Any RFC 14 jobspec, counted at the smallest counts that will do; else as `parse`."""
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
        """The version 1 jobspec that flux submit makes: a slot for each task.

        `ntasks` is `nnodes` if not given, or 1. `duration` is in seconds, None or 0 = unset.
        `attributes` has dotted keys, such as `system.exec.test.run_duration`. ValueError for
        numbers that do not fit together, FormatError for values out of range.
        """
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

    # What is asked for

    @property
    def request(self) -> ResourceRequest:
        """What the scheduler needs to know; ValueError if there are several kinds of slot."""
        return self.resources.request()

    @property
    def nnodes(self) -> int | None:
        """Nodes asked for by name; None if there is no node vertex."""
        return self.resources.totals.get("node")

    @property
    def nslots(self) -> int:
        """Slots of all kinds."""
        return self.resources.totals.get("slot", 0)

    @property
    def ncores(self) -> int:
        """Cores in all."""
        return self.resources.totals.get("core", 0)

    @property
    def ngpus(self) -> int:
        """Gpus in all."""
        return self.resources.totals.get("gpu", 0)

    @property
    def ntasks(self) -> int:
        """Tasks in all."""
        return sum([task.ntasks for task in self.tasks])

    # Attributes

    @property
    def system(self) -> Object:
        """`attributes.system`; not to be changed."""
        system = self.attribute("system")
        return system if isinstance(system, dict) else {}

    @property
    def duration(self) -> float:
        """Seconds; 0.0 = unset."""
        duration = self.system.get("duration")
        return float(duration) if isinstance(duration, (int, float)) else 0.0

    @property
    def cwd(self) -> str | None:
        """Working directory of the tasks."""
        cwd = self.system.get("cwd")
        return cwd if isinstance(cwd, str) else None

    @property
    def queue(self) -> str | None:
        queue = self.system.get("queue")
        return queue if isinstance(queue, str) else None

    @property
    def environment(self) -> Mapping[str, str | None]:
        """Variables to set; None = to unset (14.attributes.4)."""
        environment = self.system.get("environment")
        return environment if isinstance(environment, dict) else {}

    def attribute(self, path: str) -> object:
        """The value at a dotted path below `attributes`, such as `system.queue`, or None."""
        value: object = self.json["attributes"]
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def to_json(self) -> Object:
        """The jobspec as a JSON object; not to be changed."""
        return self.json

    def without_environment(self) -> Object:
        """The JSON without attributes.system.environment, which a scheduler has no need to see."""
        if "environment" not in self.system:
            return self.json
        system = {key: value for key, value in self.system.items() if key != "environment"}
        return apply_update(self.json, "attributes.system", system)


def apply_update(jobspec: Mapping[str, object], key: str, value: object) -> Object:
    """A copy of a jobspec's JSON with `value` at the dotted path `key` (RFC 21, Jobspec-update).

    Objects missing on the way are made; FormatError if something else is there. Shares with the
    original what does not change. The result is not checked: parse it.
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
