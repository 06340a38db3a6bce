"""The size of a job: the options for tasks, nodes, cores and gpus, and the jobspec they make.

As in flux-submit(1), a job has either resources per task (`-n -c -g`) or tasks per resource
(`--cores --tasks-per-node --tasks-per-core --gpus-per-node`), not both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_PER_TASK: Final = ("ntasks", "cores_per_task", "gpus_per_task")
_PER_RESOURCE: Final = ("cores", "tasks_per_node", "tasks_per_core", "gpus_per_node")
_MINIMUM: Final = {"gpus_per_task": 0, "gpus_per_node": 0}  # 1 for the others


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """The options as typed; each field is the option of its name, None if not given."""

    ntasks: str | None = None
    nodes: str | None = None
    cores_per_task: str | None = None
    gpus_per_task: str | None = None
    cores: str | None = None
    tasks_per_node: str | None = None
    tasks_per_core: str | None = None
    gpus_per_node: str | None = None
    exclusive: bool = False

    def counts(self) -> dict[str, Any]:
        """Return arguments of `Jobspec.from_command`. The ValueError names the option."""
        given = {name: self._count(name) for name in ("nodes", *_PER_TASK, *_PER_RESOURCE)}
        if all(given[name] is None for name in _PER_RESOURCE):
            return self._per_task(given)
        if any(given[name] is not None for name in _PER_TASK):
            raise ValueError("Per-resource options can't be used with per-task options")
        return self._per_resource(given)

    def per_resource(self) -> dict[str, Any] | None:
        """Return the shell option `per-resource`: the number of tasks on each node or core."""
        if self.tasks_per_node is not None:
            return {"type": "node", "count": self._count("tasks_per_node")}
        if self.tasks_per_core is not None:
            return {"type": "core", "count": self._count("tasks_per_core")}
        return None

    def _per_task(self, given: dict[str, int | None]) -> dict[str, Any]:
        nodes, ntasks = given["nodes"], given["ntasks"]
        if nodes is not None and ntasks is not None and nodes > ntasks:
            raise ValueError("node count must not be greater than task count")
        if nodes is None and self.exclusive:
            raise ValueError("exclusive can only be set with a node count")
        return {
            "ntasks": ntasks,
            "cores_per_task": given["cores_per_task"] or 1,
            "gpus_per_task": given["gpus_per_task"] or 0,
            "nnodes": nodes,
            # nodes alone means whole nodes
            "exclusive": self.exclusive or (nodes is not None and ntasks is None),
        }

    def _per_resource(self, given: dict[str, int | None]) -> dict[str, Any]:
        nodes, cores, gpus = given["nodes"], given["cores"], given["gpus_per_node"]
        if given["tasks_per_node"] and given["tasks_per_core"]:
            text = "Do not specify both the number of tasks per node and per core"
            raise ValueError(text)
        if nodes is None and self.exclusive:
            raise ValueError("exclusive can only be set with a node count")
        if nodes is None and cores is None:
            raise ValueError("must specify node or core count with per_resource")
        if gpus and nodes is None:
            raise ValueError("--gpus-per-node requires --nodes")
        size = 1  # cores of a slot; a node has one slot
        if nodes is not None and cores is not None:
            size = _share(cores, nodes)
        return {
            "ntasks": nodes or cores,
            "cores_per_task": size,
            "gpus_per_task": gpus or 0,
            "nnodes": nodes,
            "exclusive": self.exclusive or cores is None,
        }

    def _count(self, name: str) -> int | None:
        text = getattr(self, name)
        if text is None:
            return None
        option = "--" + name.replace("_", "-")
        try:
            count = int(text)
        except ValueError:
            raise ValueError(f"{option}: invalid int value '{text}'") from None
        if count < _MINIMUM.get(name, 1):
            raise ValueError(f"{option} must be >= {_MINIMUM.get(name, 1)}")
        return count


def _share(cores: int, nodes: int) -> int:
    if cores < nodes:
        raise ValueError("number of cores cannot be less than nnodes")
    if cores % nodes:
        raise ValueError("number of cores must be evenly divisible by node count")
    return cores // nodes
