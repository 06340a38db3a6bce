"""The `tasks` section of a jobspec (RFC 14 and 25, Tasks): commands, their slots and counts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flux_trio.formats.errors import MISSING, FormatError, Words
from flux_trio.formats.fields import (
    Object,
    as_object,
    get_count,
    get_list,
    get_object,
    get_str,
    only_keys,
)
from flux_trio.formats.jobspec_resources import Resources, Slot


class Task(msgspec.Struct, frozen=True):
    command: tuple[str, ...]
    """Program and arguments, at least one."""
    slot: str
    """Label of the slots that run the task."""
    count: Mapping[str, object]
    """As received, such as `{"per_slot": 1}`; the key may also be `total` or `per_resource`."""
    ntasks: int
    """Copies in all slots together."""


def read_tasks_v1(values: list[object], resources: Resources) -> tuple[Task, ...]:
    """Read the single task of a version 1 jobspec; FormatError has the path below `tasks`."""
    if len(values) != 1:
        raise FormatError("exactly one task", Words(f"{len(values)}"))
    (task,) = _read(values, resources, _KEYS, ("per_slot", "total"))
    if task.count.get("per_slot", 1) != 1:
        raise FormatError("the integer 1", task.count["per_slot"], "[0].count.per_slot")
    # No upper bound: RFC 25's use case 2.1 has more tasks than slots, and its schema agrees.
    nnodes = resources.totals.get("node", 0)
    if task.ntasks < nnodes:
        expected = f"an integer of at least {nnodes}, the number of nodes"
        raise FormatError(expected, task.ntasks, "[0].count.total")
    return (task,)


def read_tasks_general(values: list[object], resources: Resources) -> tuple[Task, ...]:
    """Read the tasks of any RFC 14 jobspec; FormatError has the path below `tasks`."""
    if not values:
        raise FormatError("at least one task", values)
    keys = (*_KEYS, "attributes", "distribution")
    return _read(values, resources, keys, ("per_slot", "per_resource", "total"))


_KEYS = ("command", "slot", "count")


def _read(
    values: list[object], resources: Resources, keys: tuple[str, ...], counts: tuple[str, ...]
) -> tuple[Task, ...]:
    tasks = []
    for index, value in enumerate(values):
        try:
            task = as_object(value)
            only_keys(task, keys)
            command, slot = _read_command(task), _read_slot(task, resources)
            count = get_object(task, "count")
            tasks.append(Task(command, slot.label, count, _read_ntasks(count, slot, counts)))
            if "attributes" in task:
                get_object(task, "attributes")
            if "distribution" in task:
                get_str(task, "distribution")
        except FormatError as error:
            raise error.at(f"[{index}]") from None
    return tuple(tasks)


def _read_command(task: Object) -> tuple[str, ...]:
    command = get_list(task, "command")
    if not command:
        raise FormatError("a program and its arguments", command, "command")
    for index, word in enumerate(command):
        if type(word) is not str:
            raise FormatError("a string", word, f"command[{index}]")
    return tuple(command)  # type: ignore[arg-type]  # the loop has checked that each is a str


def _read_slot(task: Object, resources: Resources) -> Slot:
    label = get_str(task, "slot")
    slot = resources.slots.get(label)
    if slot is None:
        labels = ", ".join(resources.slots) or "none"
        raise FormatError(f"the label of a slot in resources ({labels})", label, "slot")
    return slot


def _read_ntasks(count: Object, slot: Slot, kinds: tuple[str, ...]) -> int:
    try:
        if len(count) != 1 or not set(count) <= set(kinds):
            got = Words(", ".join(count)) if count else MISSING
            raise FormatError(f"exactly one of {', '.join(kinds)}", got)
        if "total" in count:
            return get_count(count, "total")
        if "per_slot" in count:
            return slot.nslots * get_count(count, "per_slot")
        return slot.nslots * _per_resource(get_object(count, "per_resource"), slot)
    except FormatError as error:
        raise error.at("count") from None


def _per_resource(per_resource: Object, slot: Slot) -> int:
    """Return the number of tasks in one slot."""
    try:
        kind = get_str(per_resource, "type")
        if kind not in slot.counts:
            expected = f"a type in the slot ({', '.join(slot.counts)})"
            raise FormatError(expected, kind, "type")
        return slot.counts[kind] * get_count(per_resource, "count")
    except FormatError as error:
        raise error.at("per_resource") from None
