"""The `resources` section of a jobspec: checking it and counting what it asks for.

Two forms share one walk over the tree of vertices: version 1 (RFC 25: four types, four shapes,
fixed counts) and the general one (RFC 14: any type, ranges of counts). A range is taken at its
smallest count. Left out: types other than node, slot, core and gpu, which are counted but never
scheduled, and what `unit` and `id` mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from flux_trio.formats.counts import least_count
from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.fields import (
    Object,
    as_object,
    get_bool,
    get_count,
    get_list,
    get_str,
    only_keys,
)

_DEPTH_MAX: Final = 32  # levels of `with`: real requests have five, and the walk recurses


class ResourceRequest(msgspec.Struct, frozen=True):
    """What a jobspec with one kind of slot asks the scheduler for."""

    nnodes: int | None
    """Nodes asked for by name; None leaves their number to the scheduler."""
    nslots: int
    """Slots in all."""
    slots_per_node: int | None
    """Slots on each of `nnodes`; None without them, or if one slot spans several."""
    cores_per_slot: int
    """At least 1 in version 1; 0 for an RFC 14 slot that asks for whole nodes only."""
    gpus_per_slot: int
    exclusive: bool
    """Whether the nodes are wanted whole, shared with no other job."""

    @property
    def ncores(self) -> int:
        """Cores in all slots."""
        return self.nslots * self.cores_per_slot

    @property
    def ngpus(self) -> int:
        """Gpus in all slots."""
        return self.nslots * self.gpus_per_slot


class Slot(NamedTuple):
    label: str
    nslots: int  # in all
    per_node: int | None  # slots on each node, where a node vertex holds them
    counts: Mapping[str, int]  # resources of each type in one slot


class Resources(msgspec.Struct):
    """What the walk has counted."""

    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Resources of each type in all."""
    slots: dict[str, Slot] = msgspec.field(default_factory=dict)
    """By label."""
    exclusive: bool = False

    def request(self) -> ResourceRequest:
        """The request; ValueError unless there is exactly one kind of slot."""
        if len(self.slots) != 1:
            raise ValueError(f"expected one kind of slot, got {len(self.slots)}")
        (slot,) = self.slots.values()
        inside = slot.counts.get("node")
        return ResourceRequest(
            self.totals.get("node"),
            slot.nslots,
            1 if inside == 1 else slot.per_node,
            slot.counts.get("core", 0),
            slot.counts.get("gpu", 0),
            self.exclusive,
        )


def read_resources_v1(vertices: list[object]) -> Resources:
    """The resources of a version 1 jobspec (RFC 25); FormatError with the path below them."""
    return _read(vertices, _V1)


def read_resources_general(vertices: list[object]) -> Resources:
    """The resources of any RFC 14 jobspec; FormatError with the path below them."""
    return _read(vertices, _GENERAL)


class _Form(msgspec.Struct, frozen=True):
    """What differs between the two."""

    keys: tuple[str, ...]
    count: Callable[[Object, str], int]
    shapes: Mapping[str, Collection[str]]  # what a type may hold; "" is the top of the tree


class _Scope(NamedTuple):
    """Where in the tree a list of vertices is."""

    kind: str  # type of the vertex that holds them, "" at the top
    factor: int  # how often that vertex occurs in all
    nodes: int | None  # how often the nearest node above occurs
    in_slot: bool
    depth: int


def _read(vertices: list[object], form: _Form) -> Resources:
    walk = _Walk(form)
    walk.level(vertices, _Scope("", 1, None, False, 0))
    return walk.found


class _Walk:
    """One pass over the tree."""

    def __init__(self, form: _Form) -> None:
        self.form = form
        self.found = Resources()
        self.labels: set[str] = set()

    def level(self, vertices: list[object], scope: _Scope) -> None:
        if not vertices:
            raise FormatError("at least one resource", vertices)
        if scope.depth > _DEPTH_MAX:
            raise FormatError(f"at most {_DEPTH_MAX} levels of resources", Words("more"))
        kinds = []
        for index, value in enumerate(vertices):
            try:
                kinds.append(get_str(as_object(value), "type"))
            except FormatError as error:
                raise error.at(f"[{index}]") from None
        shapes = self.form.shapes.get(scope.kind)
        if shapes is not None and ",".join(sorted(kinds)) not in shapes:
            raise FormatError(f"exactly {' or '.join(shapes)}", Words(",".join(kinds)))
        for index, vertex in enumerate(vertices):
            try:
                self.vertex(as_object(vertex), kinds[index], scope)
            except FormatError as error:
                raise error.at(f"[{index}]") from None

    def vertex(self, vertex: Object, kind: str, scope: _Scope) -> None:
        only_keys(vertex, self.form.keys if self.form.shapes.get(kind, "any") else _LEAF_KEYS)
        factor = scope.factor * self.form.count(vertex, "count")
        self.check_strings(vertex)
        exclusive = get_bool(vertex, "exclusive") if "exclusive" in vertex else None
        totals = self.found.totals
        totals[kind] = totals.get(kind, 0) + factor
        nodes, in_slot = scope.nodes, scope.in_slot
        if kind == "node":
            nodes = factor
            self.found.exclusive |= in_slot if exclusive is None else exclusive
        inner = _Scope(kind, factor, nodes, in_slot or kind == "slot", scope.depth + 1)
        if kind == "slot":
            self.slot(vertex, inner)
        elif "with" in vertex or self.form.shapes.get(kind):
            self.below(vertex, inner)

    def slot(self, vertex: Object, inner: _Scope) -> None:
        label = get_str(vertex, "label")
        before = dict(self.found.totals)
        self.below(vertex, inner)
        counts = {
            kind: (total - before.get(kind, 0)) // inner.factor
            for kind, total in self.found.totals.items()
            if total != before.get(kind)
        }
        per_node = inner.factor // inner.nodes if inner.nodes else None
        self.found.slots[label] = Slot(label, inner.factor, per_node, counts)

    def below(self, vertex: Object, inner: _Scope) -> None:
        vertices = get_list(vertex, "with")
        try:
            self.level(vertices, inner)
        except FormatError as error:
            raise error.at("with") from None

    def check_strings(self, vertex: Object) -> None:
        for key in _STRINGS:
            if key in vertex:
                get_str(vertex, key)
        label = vertex.get("label")
        if label is not None:
            if label in self.labels:
                raise FormatError("a label that no other resource has", label, "label")
            self.labels.add(str(label))


_STRINGS = ("label", "unit", "id")
_LEAF_KEYS = ("type", "count", "unit", "label")  # of version 1's core and gpu
_V1 = _Form(
    # RFC 25's prose has `exclusive` on nodes, its schema on slots; flux submit writes it on nodes.
    keys=("type", "count", "unit", "with", "label", "exclusive"),
    count=get_count,
    shapes={
        "": ("node", "slot"),
        "node": ("slot",),
        "slot": ("core", "core,gpu"),
        "core": (),
        "gpu": (),
    },
)
_GENERAL = _Form(
    keys=(*_V1.keys, "id"),
    count=least_count,
    shapes={},
)
