"""The `resources` section of a jobspec: check it and count the requested resources.

Two forms share one walk over the tree of vertices: version 1 (RFC 25: four types, four shapes,
fixed counts) and the general form (RFC 14: any type, ranges of counts). A range is taken at its
smallest count. Types other than node, slot, core and gpu are counted but never scheduled; `unit`
and `id` are not interpreted.
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

KEPT_MAX: Final = 256
"""Lists of resources that are kept with the result of the walk."""

KEPT_CHARS_MAX: Final = 1024
"""The length of the longest list of resources that is kept, as text."""

_DEPTH_MAX: Final = 32  # levels of `with`: the walk recurses, and real requests have five


class ResourceRequest(msgspec.Struct, frozen=True):
    """The resources that a jobspec with one kind of slot requests from the scheduler."""

    nnodes: int | None
    """Requested nodes; None leaves the number to the scheduler."""
    nslots: int
    """Slots in total."""
    slots_per_node: int | None
    """Slots on each of `nnodes`; None without `nnodes`, or if one slot spans several nodes."""
    cores_per_slot: int
    """At least 1 in version 1; 0 for an RFC 14 slot that requests whole nodes only."""
    gpus_per_slot: int
    exclusive: bool
    """Whether the job wants its nodes for itself alone."""

    @property
    def ncores(self) -> int:
        return self.nslots * self.cores_per_slot

    @property
    def ngpus(self) -> int:
        return self.nslots * self.gpus_per_slot


class Slot(NamedTuple):
    label: str
    nslots: int  # in total
    per_node: int | None  # slots on each node, if a node vertex contains the slot
    counts: Mapping[str, int]  # type -> resources of that type in one slot


class Resources(msgspec.Struct, frozen=True):
    """The result of the walk; jobspecs share it."""

    totals: Mapping[str, int]
    """Type -> number of resources in total."""
    slots: Mapping[str, Slot]
    """Label -> slot."""
    exclusive: bool

    def request(self) -> ResourceRequest:
        """Return the request; ValueError unless there is exactly one kind of slot."""
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
    """Read the resources of a version 1 jobspec (RFC 25); FormatError has the path below them."""
    return _read(vertices, _V1)


def read_resources_general(vertices: list[object]) -> Resources:
    """Read the resources of any RFC 14 jobspec; FormatError has the path below them."""
    return _read(vertices, _GENERAL)


class _Form(msgspec.Struct, frozen=True):
    """The rules that differ between the two forms."""

    keys: tuple[str, ...]
    count: Callable[[Object, str], int]
    shapes: Mapping[str, Collection[str]]  # type -> allowed children; "" is the top of the tree
    kept: dict[str, Resources] = msgspec.field(default_factory=dict)  # by their text


class _Scope(NamedTuple):
    """The place of a list of vertices in the tree."""

    kind: str  # type of the vertex that contains the list, "" at the top
    factor: int  # total number of that vertex
    nodes: int | None  # total number of the nearest node above
    in_slot: bool
    depth: int


def _read(vertices: list[object], form: _Form) -> Resources:
    """Read the vertices. Most jobs request the same as another, so results are kept for a while."""
    try:
        text = repr(vertices)  # it tells 1 from 1.0 and from True, which are equal
    except RecursionError:
        return _walked(vertices, form)  # deeper than anything that is accepted
    kept = form.kept.get(text)
    if kept is None:
        kept = _walked(vertices, form)
        if len(text) <= KEPT_CHARS_MAX:
            if len(form.kept) >= KEPT_MAX:
                form.kept.clear()
            form.kept[text] = kept
    return kept


def _walked(vertices: list[object], form: _Form) -> Resources:
    walk = _Walk(form)
    walk.level(vertices, _Scope("", 1, None, False, 0))
    return Resources(walk.totals, walk.slots, walk.exclusive)


class _Walk:
    def __init__(self, form: _Form) -> None:
        self.form = form
        self.totals: dict[str, int] = {}
        self.slots: dict[str, Slot] = {}
        self.exclusive = False
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
        self.totals[kind] = self.totals.get(kind, 0) + factor
        nodes, in_slot = scope.nodes, scope.in_slot
        if kind == "node":
            nodes = factor
            self.exclusive |= in_slot if exclusive is None else exclusive
        inner = _Scope(kind, factor, nodes, in_slot or kind == "slot", scope.depth + 1)
        if kind == "slot":
            self.slot(vertex, inner)
        elif "with" in vertex or self.form.shapes.get(kind):
            self.below(vertex, inner)

    def slot(self, vertex: Object, inner: _Scope) -> None:
        label = get_str(vertex, "label")
        before = dict(self.totals)
        self.below(vertex, inner)
        counts = {
            kind: (total - before.get(kind, 0)) // inner.factor
            for kind, total in self.totals.items()
            if total != before.get(kind)
        }
        per_node = inner.factor // inner.nodes if inner.nodes else None
        self.slots[label] = Slot(label, inner.factor, per_node, counts)

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
_GENERAL = _Form(keys=(*_V1.keys, "id"), count=least_count, shapes={})
