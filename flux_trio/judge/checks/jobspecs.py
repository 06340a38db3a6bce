"""Checks of a version 1 jobspec by RFC 14, 25 and 26: one function per sentence.

Each function takes a jobspec as JSON and returns what is wrong with it, or None. A check ignores a
missing or misshapen part if another sentence covers it. The parser in `formats` is not used, on
purpose: the judge reads the RFCs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from flux_trio.judge.checks.shapes import NUMBER, is_integer, members, part

Problem: TypeAlias = Callable[[Any], "str | None"]
T = TypeVar("T")

TOP: Final = ("resources", "tasks", "attributes", "version")
TYPES: Final = ("node", "slot", "core", "gpu")
VERTEX_KEYS: Final = ("type", "count", "unit", "with", "label")
EXCLUSIVE: Final = ("node", "slot")
"""The types of vertices that may have the key exclusive: node by the prose, slot by the schema."""
RESERVED: Final = ("string", "fluid")
"""The schemes whose dependencies have a type and a scope."""
GRAPHS: Final = ("slot>core", "slot>core,gpu")


ENVIRONMENT: Final = "environment"
KNOWN_MAX: Final = 1024


def known_by_value(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache what `read` returns by the JSON of its argument: most jobs of a trace have one of a few
    sizes, so the same values come again and again.
    """
    known: dict[bytes, T] = {}

    def cached(value: Any) -> T:
        try:
            written = msgspec.json.encode(value)
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
            return read(value)
        if written not in known:
            if len(known) >= KNOWN_MAX:
                known.clear()
            known[written] = read(value)
        return known[written]

    return functools.wraps(read)(cached)


def vertices(jobspec: Any) -> Iterator[dict[str, Any]]:
    """Yield all vertices of the resource graph, parents first."""
    waiting = members(part(jobspec, "resources", list))
    while waiting:
        vertex = waiting.pop(0)
        yield vertex
        waiting = members(vertex.get("with")) + waiting


def count(vertex: dict[str, Any]) -> int:
    """Return the count of a vertex; 1 if it is not an integer."""
    found = vertex.get("count")
    return found if type(found) is int else 1


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def totals(jobspec: Any) -> Mapping[str, int]:
    """Return the requested nodes, slots, cores and gpus: products of counts along the path."""
    found: Mapping[str, int] = _totals(part(jobspec, "resources", list))
    return found


@known_by_value
def _totals(resources: list[Any]) -> dict[str, int]:
    found = dict.fromkeys(TYPES, 0)
    waiting = [(vertex, 1) for vertex in members(resources)]
    while waiting:
        vertex, above = waiting.pop()
        total = above * count(vertex)
        kind = vertex.get("type")
        if kind in TYPES:
            found[str(kind)] += total
        waiting += [(each, total) for each in members(vertex.get("with"))]
    return found


def system(jobspec: Any) -> dict[str, Any]:
    """Return attributes.system."""
    found: dict[str, Any] = part(part(jobspec, "attributes", dict), "system", dict)
    return found


def without_environment(jobspec: Any) -> Any:
    """Return a jobspec without the environment of its job, which may be left out."""
    if ENVIRONMENT not in system(jobspec):
        return jobspec
    others = {key: value for key, value in system(jobspec).items() if key != ENVIRONMENT}
    return jobspec | {"attributes": jobspec["attributes"] | {"system": others}}


def task(jobspec: Any) -> dict[str, Any]:
    tasks = members(part(jobspec, "tasks", list))
    return tasks[0] if tasks else {}


# --- RFC 25


def is_one_document(jobspec: Any) -> str | None:
    """25.top.1: the jobspec is one object."""
    tasks = part(jobspec, "tasks", list)
    return f"tasks: expected one program, got {len(tasks)}" if len(tasks) > 1 else None


def has_its_keys(jobspec: Any) -> str | None:
    """25.top.2: it has the keys version, resources, tasks and attributes, and version is 1."""
    if not isinstance(jobspec, dict):
        return f"expected a dictionary, got {jobspec!r:.80}"
    missing = [key for key in TOP if key not in jobspec]
    if missing:
        return f"expected keys {', '.join(TOP)}, {missing[0]} is missing"
    version = jobspec["version"]
    return None if is_integer(version) and version == 1 else f"version: expected 1, got {version!r}"


def has_one_node_or_slot(jobspec: Any) -> str | None:
    """25.resources.1: resources has one vertex, a node or a slot."""
    found = part(jobspec, "resources", list)
    kinds = [each.get("type") if isinstance(each, dict) else each for each in found]
    if len(kinds) == 1 and kinds[0] in ("node", "slot"):
        return None
    return f"resources: expected one node or slot, got {kinds!r:.80}"


def vertices_have_known_keys(jobspec: Any) -> str | None:
    """25.resources.2: vertices have only the keys that RFC 25 names."""
    for vertex in vertices(jobspec):
        kind = vertex.get("type")
        keys = (*VERTEX_KEYS, "exclusive") if kind in EXCLUSIVE else VERTEX_KEYS
        more = [key for key in vertex if key not in keys]
        if more:
            return f"{kind}: expected no key {more[0]}"
        if not isinstance(vertex.get("exclusive", False), bool):
            return f"{kind}: exclusive: expected true or false"
        if not isinstance(vertex.get("unit", ""), str):
            return f"{kind}: unit: expected a string, got {vertex['unit']!r:.80}"
    return None


def types_are_known(jobspec: Any) -> str | None:
    """25.resources.3: vertices are nodes, slots, cores and gpus."""
    for vertex in vertices(jobspec):
        if vertex.get("type") not in TYPES:
            return f"type: expected one of {', '.join(TYPES)}, got {vertex.get('type')!r}"
    return None


def counts_are_integers(jobspec: Any) -> str | None:
    """25.resources.4: the count of a vertex is an integer of at least 1."""
    for vertex in vertices(jobspec):
        found = vertex.get("count")
        if not is_integer(found) or int(str(found)) < 1:
            return f"{vertex.get('type')}: count: expected an integer of 1 or more, got {found!r}"
    return None


def has_a_core(jobspec: Any) -> str | None:
    """25.resources.5: a slot has a core."""
    has = any(vertex.get("type") == "core" for vertex in vertices(jobspec))
    return None if has else "resources: expected a core somewhere"


def graph_is_one_of_four(jobspec: Any) -> str | None:
    """25.resources.6: the graph has one of the four forms of RFC 25."""
    found = _graph(members(part(jobspec, "resources", list)))
    if found.removeprefix("node>") in GRAPHS:
        return None
    expected = "an optional node, then slot>core or slot>core,gpu"
    return f"resources: expected {expected}, got {found or 'nothing'}"


def _graph(siblings: list[dict[str, Any]]) -> str:
    """Return the types of siblings, then the types of their children: `node>slot>core,gpu`."""
    kinds = ",".join(sorted(str(each.get("type")) for each in siblings))
    below = [_graph(members(each.get("with"))) for each in siblings]
    return ">".join([kinds, *filter(None, below)])


def has_one_task(jobspec: Any) -> str | None:
    """25.tasks.1: tasks has one entry."""
    found = part(jobspec, "tasks", list)
    keys = sorted(found[0]) if len(found) == 1 and isinstance(found[0], dict) else None
    if keys == ["command", "count", "slot"]:
        return None
    return f"tasks: expected one with keys command, slot and count, got {keys or found!r:.80}"


def task_count_is_per_slot_or_total(jobspec: Any) -> str | None:
    """25.tasks.2: the count of a task is per_slot or total."""
    found = task(jobspec).get("count")
    if isinstance(found, dict) and len(found) == 1 and set(found) <= {"per_slot", "total"}:
        return None
    return f"tasks: count: expected one of per_slot and total, got {found!r:.80}"


def per_slot_is_one(jobspec: Any) -> str | None:
    """25.tasks.3: per_slot is 1."""
    found = part(task(jobspec), "count", dict)
    if "per_slot" not in found or (is_integer(found["per_slot"]) and found["per_slot"] == 1):
        return None
    return f"tasks: per_slot: expected 1, got {found['per_slot']!r:.80}"


def total_is_at_least_nnodes(jobspec: Any) -> str | None:
    """25.tasks.4: total is at least the number of nodes.

    The upper bound of the clause is left out: the use case 2.1 of RFC 25 goes beyond it. See
    readings: Schemas and their prose.
    """
    found = part(task(jobspec), "count", dict)
    least = max(totals(jobspec)["node"], 1)
    if "total" not in found or (is_integer(found["total"]) and found["total"] >= least):
        return None
    return f"tasks: total: expected an integer of {least} or more, got {found['total']!r:.80}"


def attributes_are_system_and_user(jobspec: Any) -> str | None:
    """25.attributes.1: attributes has only the keys system and user."""
    found = part(jobspec, "attributes", dict)
    if "system" not in found:
        return "attributes: expected key system"
    more = [key for key in found if key not in ("system", "user")]
    if more:
        return f"attributes: expected system and user alone, got {more[0]}"
    bad = [key for key, value in found.items() if not isinstance(value, dict)]
    return f"attributes: {bad[0]}: expected a dictionary" if bad else None


def has_a_duration(jobspec: Any) -> str | None:
    """25.attributes.2: attributes.system has a duration, a number of seconds."""
    found = system(jobspec).get("duration")
    if NUMBER.fits(found) and float(str(found)) >= 0:
        return None
    return f"attributes.system.duration: expected a number of 0 or more, got {found!r:.80}"


# --- RFC 14


def with_is_a_list(jobspec: Any) -> str | None:
    """14.vertex.4: the key with of a vertex is an array."""
    for vertex in vertices(jobspec):
        found = vertex.get("with")
        if "with" in vertex and (not isinstance(found, list) or not members(found)):
            return f"{vertex.get('type')}: with: expected a list of vertices, got {found!r:.80}"
    return None


def slots_have_labels(jobspec: Any) -> str | None:
    """14.vertex.5: a slot has a label, a string."""
    labels = [vertex["label"] for vertex in vertices(jobspec) if "label" in vertex]
    for vertex in vertices(jobspec):
        if vertex.get("type") == "slot" and "label" not in vertex:
            return "slot: expected a label"
    if all(isinstance(label, str) for label in labels) and len(set(labels)) == len(labels):
        return None
    return f"label: expected strings, each once, got {labels!r:.80}"


def command_is_strings(jobspec: Any) -> str | None:
    """14.vertex.7: the command of a task is an array of strings."""
    found = task(jobspec).get("command")
    if found and _strings(found):
        return None
    return f"tasks: command: expected a list of strings that is not empty, got {found!r:.80}"


def task_names_a_slot(jobspec: Any) -> str | None:
    """14.vertex.8: the slot of a task is the label of a slot."""
    labels = [each.get("label") for each in vertices(jobspec) if each.get("type") == "slot"]
    found = task(jobspec).get("slot")
    return None if found in labels else f"tasks: slot: expected one of {labels!r}, got {found!r}"


def dependencies_are_a_list(jobspec: Any) -> str | None:
    """14.attributes.6 and 26.format.3: dependencies is an array of objects."""
    found = system(jobspec).get("dependencies", [])
    if isinstance(found, list) and len(members(found)) == len(found):
        return None
    return f"dependencies: expected a list of objects, got {found!r:.80}"


def constraints_are_an_object(jobspec: Any) -> str | None:
    """14.attributes.7: constraints is an object."""
    found = system(jobspec).get("constraints", {})
    if isinstance(found, dict):
        return None
    return f"constraints: expected an object, got {found!r:.80}"


def preemptible_after_is_a_number(jobspec: Any) -> str | None:
    """14.attributes.8: preemptible-after is a number."""
    found = system(jobspec).get("preemptible-after", 0)
    if NUMBER.fits(found) and float(str(found)) >= 0:
        return None
    return f"preemptible-after: expected a number of 0 or more, got {found!r:.80}"


# --- RFC 26


def dependencies_have_scheme_and_value(jobspec: Any) -> str | None:
    """26.format.1: a dependency has a scheme and a value, both strings."""
    for each in members(system(jobspec).get("dependencies")):
        for key in ("scheme", "value"):
            if not isinstance(each.get(key), str):
                return f"dependencies: {key}: expected a string, got {each.get(key)!r:.80}"
    return None


def no_empty_dependencies(jobspec: Any) -> str | None:
    """26.format.4: the array of dependencies is not empty."""
    is_empty = system(jobspec).get("dependencies") == []
    return "dependencies: expected no such key when there are none" if is_empty else None


def reserved_schemes_have_type_and_scope(jobspec: Any) -> str | None:
    """26.schemes.8: a dependency of a reserved scheme has a type and a scope."""
    choices = {"type": ("in", "out", "inout"), "scope": ("user", "global")}
    for each in members(system(jobspec).get("dependencies")):
        if each.get("scheme") not in RESERVED:
            continue
        for key, values in choices.items():
            if each.get(key) not in values:
                expected = ", ".join(values)
                return f"dependencies: {key}: expected one of {expected}, got {each.get(key)!r}"
    return None


PROBLEMS: Final[dict[str, Problem]] = {
    "25.top.1": is_one_document,
    "25.top.2": has_its_keys,
    "25.resources.1": has_one_node_or_slot,
    "25.resources.2": vertices_have_known_keys,
    "25.resources.3": types_are_known,
    "25.resources.4": counts_are_integers,
    "25.resources.5": has_a_core,
    "25.resources.6": graph_is_one_of_four,
    "25.tasks.1": has_one_task,
    "25.tasks.2": task_count_is_per_slot_or_total,
    "25.tasks.3": per_slot_is_one,
    "25.tasks.4": total_is_at_least_nnodes,
    "25.attributes.1": attributes_are_system_and_user,
    "25.attributes.2": has_a_duration,
    "14.vertex.4": with_is_a_list,
    "14.vertex.5": slots_have_labels,
    "14.vertex.7": command_is_strings,
    "14.vertex.8": task_names_a_slot,
    "14.attributes.6": dependencies_are_a_list,
    "14.attributes.7": constraints_are_an_object,
    "14.attributes.8": preemptible_after_is_a_number,
    "26.format.1": dependencies_have_scheme_and_value,
    "26.format.3": dependencies_are_a_list,
    "26.format.4": no_empty_dependencies,
    "26.schemes.8": reserved_schemes_have_type_and_scope,
}
"""By clause: the function that returns what is wrong with a jobspec, or None."""

DURATION: Final = "25.attributes.2"
_BESIDE_DURATION: Final = {k: v for k, v in PROBLEMS.items() if k != DURATION}


def problems_of(jobspec: Any) -> Mapping[str, str]:
    """Return what is wrong with a jobspec, by clause.

    The results are cached for the parts in which most jobs do not differ.
    """
    duration = PROBLEMS[DURATION](jobspec)
    found: Mapping[str, str] = _problems_beside_duration(common_part(jobspec))
    return found if duration is None else {**found, DURATION: duration}


JUDGED: Final = ("dependencies", "constraints", "preemptible-after")
"""The keys of attributes.system whose values are judged, beside the duration."""


def common_part(jobspec: Any) -> Any:
    """Return a jobspec with just these keys in attributes.system, as many jobs have them."""
    found = system(jobspec)
    if not found:
        return jobspec
    judged = {key: found[key] for key in JUDGED if key in found}
    return {**jobspec, "attributes": {**jobspec["attributes"], "system": judged}}


@known_by_value
def _problems_beside_duration(bare: Any) -> Mapping[str, str]:
    return _found(bare, _BESIDE_DURATION)


def _found(jobspec: Any, problems: Mapping[str, Problem]) -> dict[str, str]:
    found = ((clause, problem(jobspec)) for clause, problem in problems.items())
    return {clause: text for clause, text in found if text is not None}


def problem_with(jobspec: Any) -> str | None:
    """Return the first error of a jobspec that is submitted, or None.

    The key duration may be absent (readings: The key duration).
    """
    found = problems_of(jobspec)
    if "duration" not in system(jobspec):
        found = {clause: text for clause, text in found.items() if clause != DURATION}
    return next((found[clause] for clause in PROBLEMS if clause in found), None)


def schema_problem(problems: Mapping[str, str]) -> str | None:
    """25.attributes.5: return the first error that the schema of RFC 25 would find."""
    return next((problems[each] for each in _SCHEMA if each in problems), None)


_SCHEMA: Final = tuple(clause for clause in PROBLEMS if clause.startswith("25."))
