"""R version 1 as JSON (RFC 20, R Format): strict reading and canonical writing.

Keys that RFC 20 does not name are ignored, at every level (readings: RFC 28's grow example). Of
`scheduling` only `writer` is read; the rest belongs to the scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, convert

from flux_trio.formats.characters import check_property_name
from flux_trio.formats.errors import MISSING, FormatError, Words
from flux_trio.formats.fields import (
    COUNT_MAX,
    EXACT_MAX,
    Object,
    as_object,
    document,
    get_count,
    get_list,
    get_object,
    get_seconds,
    get_str,
)
from flux_trio.formats.hostlist import Hostlist
from flux_trio.formats.idset import Idset
from flux_trio.formats.resource_ops import Group, Groups, all_ranks, canonical

VERSION: Final = 1
WRITER_DEFAULT: Final = "fluxion"  # 20.scheduling.4

CACHED_CHARS_MAX: Final = 64
"""Idsets and hostlists up to that length are kept as they were read: they repeat in most R."""

CACHED_ENTRIES_MAX: Final = 4
"""The resources of an R with as few entries are kept as they were read: many jobs get the same."""

PLAIN_BYTES_MAX: Final = 2048
"""A longer text is not an R of so few entries, each with idsets and hosts as short as that."""

CACHED_BITS_MAX: Final = 256
"""The text of a set of ids below this is kept, and of the nodelist of as few hosts as four."""

_WRITER = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(:.*)?", re.DOTALL)


class Parts(NamedTuple):
    """The contents of R; the fields of `ResourceSet` in order."""

    groups: Groups
    hostnames: tuple[str, ...]
    properties: Mapping[str, Idset]
    nslots: int | None
    starttime: float
    expiration: float
    scheduling: Mapping[str, object] | None


_Short: TypeAlias = Annotated[str, Meta(max_length=CACHED_CHARS_MAX)]


class _PlainChildren(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    core: _Short
    gpu: _Short | UnsetType = UNSET


class _PlainEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rank: _Short
    children: _PlainChildren


class _PlainExecution(msgspec.Struct, forbid_unknown_fields=True):
    """The `execution` of an R without properties, of few resources."""

    R_lite: Annotated[tuple[_PlainEntry, ...], Meta(max_length=CACHED_ENTRIES_MAX)]
    nodelist: Annotated[tuple[_Short, ...], Meta(max_length=CACHED_ENTRIES_MAX)]
    starttime: int | float = 0
    expiration: int | float = 0
    nslots: int | float | UnsetType = UNSET


class _PlainR(msgspec.Struct, forbid_unknown_fields=True):
    """An R as most jobs have it."""

    version: int | float
    execution: _PlainExecution


def read(value: object, *, own_widths: bool = False) -> Parts:
    """Read R from decoded JSON or bytes of JSON; FormatError names the field.

    `own_widths` as in `hostlist.host_parts`.
    """
    return _read_plain(value, own_widths) or _read_any(value, own_widths)


def _read_plain(value: object, own_widths: bool) -> Parts | None:
    """Read a short R without properties; None for any other, and for what is refused."""
    if isinstance(value, bytes) and len(value) > PLAIN_BYTES_MAX:
        return None
    try:
        plain = _decode_plain(value) if isinstance(value, bytes) else convert(value, _PlainR)
        execution = plain.execution
        places = _places(execution.R_lite, execution.nodelist, own_widths)
    except (msgspec.MsgspecError, FormatError, RecursionError, UnicodeError):
        return None
    start, end, nslots = execution.starttime, execution.expiration, execution.nslots
    if type(plain.version) is not int or plain.version != VERSION:
        return None
    if not (0 <= start <= EXACT_MAX and 0 <= end <= EXACT_MAX):
        return None
    if nslots is UNSET:
        return Parts(*places, {}, None, float(start), float(end), None)
    if type(nslots) is int and 1 <= nslots <= COUNT_MAX:
        return Parts(*places, {}, nslots, float(start), float(end), None)
    return None


@lru_cache(maxsize=1024)
def _places(
    entries: tuple[_PlainEntry, ...], nodelist: tuple[str, ...], own_widths: bool
) -> tuple[Groups, tuple[str, ...]]:
    """Read `R_lite` and `nodelist`. Raises FormatError."""
    groups = _read_groups(msgspec.to_builtins(entries))
    return groups, _read_nodelist(list(nodelist), all_ranks(groups), own_widths)


_decode_plain: Final = msgspec.json.Decoder(_PlainR).decode


def _read_any(value: object, own_widths: bool) -> Parts:
    top = document(value)
    version = top.get("version", MISSING)
    if type(version) is not int or version != VERSION:
        raise FormatError("the integer 1", version, "version")
    execution = get_object(top, "execution")
    try:
        groups = _read_groups(get_list(execution, "R_lite"))
        ranks = all_ranks(groups)
        hostnames = _read_nodelist(get_list(execution, "nodelist"), ranks, own_widths)
        properties = _read_properties(execution, ranks)
        nslots = get_count(execution, "nslots") if "nslots" in execution else None
        starttime = get_seconds(execution, "starttime") if "starttime" in execution else 0.0
        expiration = get_seconds(execution, "expiration") if "expiration" in execution else 0.0
    except FormatError as error:
        raise error.at("execution") from None
    scheduling = _read_scheduling(top) if "scheduling" in top else None
    return Parts(groups, hostnames, properties, nslots, starttime, expiration, scheduling)


def ranks_named(text: str) -> Idset:
    """Return the ranks in R_lite of an R that `read` may refuse; none if they cannot be read."""
    try:
        execution = get_object(document(text.encode(errors="replace")), "execution")
        entries = get_list(execution, "R_lite")
        named = [_ids(as_object(entry), "rank") for entry in entries]
    except FormatError:
        return Idset()
    return Idset.from_bits(reduce(or_, named, 0))


def write(parts: Parts) -> Object:
    """Return the canonical JSON object; ValueError for a set that version 1 cannot express."""
    for group in parts.groups:
        if not group.cores:
            ranks = Idset.from_bits(group.ranks)
            raise ValueError(f"R needs at least one core on each rank, but {ranks} has only gpus")
    if not parts.groups:
        raise ValueError("R needs at least one rank, but this resource set is empty")
    execution: Object = {
        "R_lite": [_entry(group) for group in parts.groups],
        "starttime": parts.starttime,
        "expiration": parts.expiration,
    }
    if parts.nslots is not None:
        execution["nslots"] = parts.nslots
    hosts = parts.hostnames
    execution["nodelist"] = [_nodelist_cached(hosts) if len(hosts) <= 4 else _nodelist(hosts)]
    if parts.properties:
        execution["properties"] = {name: str(ids) for name, ids in parts.properties.items()}
    top: Object = {"version": VERSION, "execution": execution}
    if parts.scheduling is not None:
        top["scheduling"] = parts.scheduling
    return top


def _entry(group: Group) -> Object:
    children = {"core": _ids_text(group.cores)}
    if group.gpus:
        children["gpu"] = _ids_text(group.gpus)
    return {"rank": _ids_text(group.ranks), "children": children}


def _ids_text(bits: int) -> str:
    return _few_ids_text(bits) if bits.bit_length() <= CACHED_BITS_MAX else _many_ids_text(bits)


def _many_ids_text(bits: int) -> str:
    return str(Idset.from_bits(bits))


def _nodelist(hosts: tuple[str, ...]) -> str:
    return str(Hostlist.of(hosts))


_few_ids_text = lru_cache(maxsize=1024)(_many_ids_text)
_nodelist_cached = lru_cache(maxsize=256)(_nodelist)


def _read_groups(entries: list[object]) -> Groups:
    if not entries:
        raise FormatError("an array that names at least one rank", entries, "R_lite")
    groups = tuple(_read_entries(entries))
    _check_once(groups)
    return canonical(groups)


def _check_once(groups: Groups) -> None:
    """Raise FormatError if two entries name the same core or gpu of a rank (20.format.10)."""
    seen = 0
    for index, group in enumerate(groups):
        if seen & group.ranks:
            for before in groups[:index]:
                _check_apart(before, group, f"R_lite[{index}]")
        seen |= group.ranks


def _check_apart(before: Group, group: Group, where: str) -> None:
    ranks = before.ranks & group.ranks
    both = {"core": before.cores & group.cores, "gpu": before.gpus & group.gpus}
    for kind, twice in both.items():
        if ranks and twice:
            got = Words(f"rank {Idset.from_bits(ranks)} {kind} {Idset.from_bits(twice)} again")
            raise FormatError(f"each {kind} of a rank once", got, where)


def _read_entries(entries: list[object]) -> Iterator[Group]:
    for index, value in enumerate(entries):
        try:
            entry = as_object(value)
            ranks = _ids(entry, "rank")
            yield Group(ranks, *_read_children(get_object(entry, "children")))
        except FormatError as error:
            raise error.at(f"R_lite[{index}]") from None


def _read_children(children: Object) -> tuple[int, int]:
    try:
        return _ids(children, "core"), _ids(children, "gpu") if "gpu" in children else 0
    except FormatError as error:
        raise error.at("children") from None


def _ids(parent: Object, key: str) -> int:
    text = get_str(parent, key)
    try:
        bits = _bits_cached(text) if len(text) <= CACHED_CHARS_MAX else _bits(text)
    except FormatError as error:
        raise error.at(key) from None
    if not bits:
        raise FormatError("an idset with at least one id", text, key)
    return bits


def _bits(text: str) -> int:
    return Idset.parse(text).bits


_bits_cached = lru_cache(maxsize=1024)(_bits)  # most entries repeat another's text


def _read_nodelist(entries: list[object], ranks: int, own_widths: bool = False) -> tuple[str, ...]:
    """Return the hosts in order; the list may have fewer or more elements than R_lite."""
    count = ranks.bit_count()
    hosts: list[str] = []
    for index, text in enumerate(entries):
        try:
            if type(text) is not str:
                raise FormatError("a string", text)
            is_short = len(text) <= CACHED_CHARS_MAX and "[" not in text  # a few hosts
            hosts += (
                _hosts_cached(text) if is_short else Hostlist.parse(text, own_widths=own_widths)
            )
        except FormatError as error:
            raise error.at(f"nodelist[{index}]") from None
        if len(hosts) > count:
            break
    if len(hosts) != count:
        got = Words(f"more than {count}" if len(hosts) > count else f"{len(hosts)}")
        raise FormatError(f"{count} hosts, one for each rank", got, "nodelist")
    return tuple(hosts)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(Hostlist.parse(text))


_hosts_cached = lru_cache(maxsize=256)(_hosts)


def _read_properties(execution: Object, ranks: int) -> dict[str, Idset]:
    if "properties" not in execution:
        return {}
    properties = get_object(execution, "properties")
    try:
        return {name: _read_property(properties, name, ranks) for name in properties}
    except FormatError as error:
        raise error.at("properties") from None


def _read_property(properties: Object, name: str, ranks: int) -> Idset:
    check_property_name(name)
    bits = _ids(properties, name)
    if foreign := bits & ~ranks:
        got = Words(f"also {Idset.from_bits(foreign)}")
        raise FormatError("ranks that R_lite names", got, name)
    return Idset.from_bits(bits)


def _read_scheduling(top: Object) -> Object:
    scheduling = get_object(top, "scheduling")
    writer = scheduling.get("writer", WRITER_DEFAULT)
    if type(writer) is not str or not _WRITER.fullmatch(writer):
        raise FormatError("a URI that begins with a scheme", writer, "scheduling.writer")
    return scheduling
