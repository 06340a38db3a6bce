"""RFC 28, Resource Acquisition Protocol: the payloads between scheduler and resource service.

A response to resource.acquire is a sequence of changes; in the classic edition it has one change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import (
    Codec,
    PayloadMessage,
    as_payload,
    codec,
    has_key,
    of_other_edition,
    read_idset,
)
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Payload, expect_payload

DEFAULT_GROUP: Final = "default"  # the resources that are in no other group
EXCLUDE_GROUP: Final = "exclude"


class Acquire(msgspec.Struct, frozen=True):
    """The resource.acquire request; in an edition without groups it means the default group."""

    group: str


class Release(msgspec.Struct, frozen=True):
    """The resource.release request: no job holds these shrunk targets any more."""

    group: str
    targets: Idset


class Grown(msgspec.Struct, frozen=True):
    """`resources` were added; each of their targets is in `online` or in `offline`."""

    resources: ResourceSet
    online: Idset
    offline: Idset


class Expires(msgspec.Struct, frozen=True):
    """All acquired resources end at `expiration` (seconds since the Unix epoch, 0 for no end).

    The classic edition tells of it by a grow, for which `acquired` has all resources. `acquired` is
    None in a change that was read.
    """

    expiration: float
    acquired: Grown | None = None


class Shrunk(msgspec.Struct, frozen=True):
    """These targets were taken back."""

    targets: Idset


class Online(msgspec.Struct, frozen=True):
    """These targets can be used again."""

    targets: Idset


class Offline(msgspec.Struct, frozen=True):
    """These targets cannot be used until they are online again."""

    targets: Idset


class PropertiesChanged(msgspec.Struct, frozen=True):
    """Properties (RFC 20) were added to targets, or removed; only the current edition has it."""

    added: Mapping[str, Idset]
    removed: Mapping[str, Idset]


Change: TypeAlias = Grown | Expires | Shrunk | Online | Offline | PropertiesChanged


# Classic: the `type` of a response says which keys it has.


class _Grow(msgspec.Struct, tag_field="type", tag="grow"):
    resources: dict[str, Any]
    online: str
    offline: str


class _Shrink(msgspec.Struct, tag_field="type", tag="shrink"):
    targets: str


class _Online(msgspec.Struct, tag_field="type", tag="online"):
    targets: str


class _Offline(msgspec.Struct, tag_field="type", tag="offline"):
    targets: str


class _Release(msgspec.Struct):
    group: str
    targets: str


_Typed: TypeAlias = _Grow | _Shrink | _Online | _Offline


def _write_typed(changes: Sequence[Change]) -> Payload:
    (change,) = changes
    return as_payload(_typed(change))


def _typed(change: Change) -> _Typed:
    match change:
        case Grown(resources, online, offline):
            return _Grow(resources.to_json(), str(online), str(offline))
        case Expires(_, acquired):
            assert acquired is not None  # the resource service always sets it
            return _typed(acquired)
        case Shrunk(targets):
            return _Shrink(str(targets))
        case Online(targets):
            return _Online(str(targets))
        case Offline(targets):
            return _Offline(str(targets))
        case PropertiesChanged():
            raise TypeError("the classic edition has no change of properties")


def _read_typed(message: PayloadMessage) -> Sequence[Change]:
    if not has_key(message, "type") and has_key(message, *_KEYS):
        raise of_other_edition(message, "current")
    typed: _Typed = expect_payload(message, _Typed)  # type: ignore[arg-type]  # a union is no class
    match typed:
        case _Grow():
            return [_grown(typed.resources, typed.online, typed.offline)]
        case _Shrink():
            return [Shrunk(read_idset(typed.targets, "targets"))]
        case _Online():
            return [Online(read_idset(typed.targets, "targets"))]
        case _Offline():
            return [Offline(read_idset(typed.targets, "targets"))]


def _grown(resources: dict[str, Any], online: str, offline: str) -> Grown:
    parsed = ResourceSet.parse(resources, "resources")
    return Grown(parsed, read_idset(online, "online"), read_idset(offline, "offline"))


def _write_release(release: Release) -> Payload:
    return as_payload(_Release(release.group, str(release.targets)))


def _read_release(message: PayloadMessage) -> Release:
    release = expect_payload(message, _Release)
    return Release(release.group, read_idset(release.targets, "targets"))


# Current: the keys of a response say which changes it has.


class _Keyed(msgspec.Struct, omit_defaults=True):
    resources: dict[str, Any] | None = None
    up: str | None = None
    down: str | None = None
    shrink: str | None = None
    expiration: float | None = None
    property_add: dict[str, str] | None = msgspec.field(default=None, name="property-add")
    property_remove: dict[str, str] | None = msgspec.field(default=None, name="property-remove")


_KEYS: Final = [field.encode_name for field in msgspec.structs.fields(_Keyed)]


def _write_keyed(changes: Sequence[Change]) -> Payload:
    keyed = _Keyed()
    for change in changes:
        match change:
            case Grown(resources, online):
                keyed.resources, keyed.up = resources.to_json(), str(online)
            case Expires(expiration):
                keyed.expiration = expiration
            case Shrunk(targets):
                keyed.shrink = keyed.down = str(targets)
            case Online(targets):
                keyed.up = str(targets)
            case Offline(targets):
                keyed.down = str(targets)
            case PropertiesChanged(added, removed):
                keyed.property_add = _plain_properties(added)
                keyed.property_remove = _plain_properties(removed)
    return as_payload(keyed)


def _read_keyed(message: PayloadMessage) -> Sequence[Change]:
    """Return the changes in the order in which they take effect; a shrunk target is not down."""
    if has_key(message, "type"):
        raise of_other_edition(message, "classic")
    keyed = expect_payload(message, _Keyed)
    changes: list[Change] = []
    up = read_idset(keyed.up or "", "up")
    shrunk = read_idset(keyed.shrink or "", "shrink")
    if keyed.resources is not None:
        resources = ResourceSet.parse(keyed.resources, "resources", own_widths=True)
        changes.append(Grown(resources, up, resources.ranks - up))
    elif up:
        changes.append(Online(up))
    if shrunk:
        changes.append(Shrunk(shrunk))
    if down := read_idset(keyed.down or "", "down") - shrunk:
        changes.append(Offline(down))
    if keyed.expiration is not None:
        changes.append(Expires(keyed.expiration))
    added = _properties(keyed.property_add, "property-add")
    removed = _properties(keyed.property_remove, "property-remove")
    if added or removed:
        changes.append(PropertiesChanged(added, removed))
    return changes


def _read_group(message: PayloadMessage) -> Acquire:
    if message.payload is None:
        raise of_other_edition(message, "current")
    return _GROUP.read(message)


def _read_all(message: PayloadMessage) -> Acquire:
    if has_key(message, "group"):
        raise of_other_edition(message, "classic")
    return Acquire(DEFAULT_GROUP)


def _plain_properties(properties: Mapping[str, Idset]) -> dict[str, str] | None:
    return {name: str(ids) for name, ids in properties.items()} or None


def _properties(properties: dict[str, str] | None, key: str) -> dict[str, Idset]:
    return {name: read_idset(ids, f"{key}.{name}") for name, ids in (properties or {}).items()}


_GROUP: Final = codec(Acquire)
ACQUIRE: Final = Codec(_GROUP.write, _read_group)
ACQUIRE_ALL: Final[Codec[Acquire]] = Codec(lambda _: None, _read_all)
RELEASE: Final = Codec(_write_release, _read_release)
TYPED_CHANGES: Final[Codec[Sequence[Change]]] = Codec(_write_typed, _read_typed)
KEYED_CHANGES: Final[Codec[Sequence[Change]]] = Codec(_write_keyed, _read_keyed)
